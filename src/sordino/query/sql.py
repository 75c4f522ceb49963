"""A small part of SQL, parsed by sqlglot. What is not listed here is refused by name, never guessed at.

SELECT keys and statistics FROM table [WHERE condition] [GROUP BY keys]

statistics   COUNT(*) COUNT(c) SUM(c) AVG(c) MEDIAN(c) QUANTILE(c, q) HISTOGRAM(c [, bins]), each with AS name
condition    c = < <= > >= <> number · c = <> 'name' · BETWEEN · IN · IS [NOT] NULL · AND OR NOT ( )
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.query.predicates import Both, Compare, Missing, Not, OneOf, Predicate, Sign, either
from sordino.query.questions import Question, Statistic

LONGEST = 5_000
"""Characters of a question: deeper nesting than a parser bears does not fit in."""

_STATISTICS = "COUNT, SUM, AVG, MEDIAN, QUANTILE, HISTOGRAM"
_SIGNS: dict[str, Sign] = {"EQ": "=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_MIRRORED: dict[Sign, Sign] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def question(text: str, table: str) -> Question:
    """The question that a SELECT asks of a table.

    Raises:
        ConfigError: It is no SQL, or uses what is not supported: says what.

    >>> question("SELECT sex, AVG(age) FROM patients GROUP BY sex", "patients").by
    ('sex',)
    """
    tree = _parsed(text)
    if _kind(tree) != "Select":
        raise _refused(_kind(tree).upper(), "ask SELECT … FROM … [WHERE …] [GROUP BY …]")
    parts = _only(tree, "expressions", "from_", "where", "group")
    if "from_" not in parts:
        raise ConfigError.about("query", "names no table", f"write FROM {table}")
    _table(_only(parts["from_"], "this")["this"], table)
    by = tuple(_column(key) for key in _only(parts["group"], "expressions")["expressions"]) if "group" in parts else ()
    where = _predicate(_only(parts["where"], "this")["this"]) if "where" in parts else None
    statistics = []
    for item in parts["expressions"]:
        if _kind(item) == "Column":
            if _column(item) not in by:
                raise ConfigError.about(
                    "query", "is selected and not grouped", "add it to GROUP BY", column=_column(item)
                )
        else:
            statistics.append(_statistic(item))
    return Question(tuple(statistics), by, where)


def condition(text: str) -> Predicate:
    """A WHERE condition by itself.

    >>> condition("age < 65")
    Compare(column='age', sign='<', value=65.0)
    """
    tree = _parsed(f"SELECT COUNT(*) FROM t WHERE {text}")  # noqa: S608 - parsed, never run
    parts = _only(tree, "expressions", "from_", "where") if _kind(tree) == "Select" else {}
    if "where" not in parts:
        raise _refused(repr(text), "write a condition such as age >= 65 AND sex = 'female'")
    return _predicate(_only(parts["where"], "this")["this"])


def _parsed(text: str) -> Any:
    try:
        import sqlglot
        from sqlglot import errors
    except ImportError as missing:
        raise ConfigError.about("query", f"needs {missing.name}", "pip install 'sordino[query]'") from None
    if len(text) > LONGEST:
        raise ConfigError.about("query", f"is longer than {LONGEST} characters", "ask less at once")
    first = text.split(maxsplit=1)[0].upper() if text.split() else "nothing"
    if first != "SELECT":  # the parser logs a warning of its own about some other statements
        raise _refused(first, "ask SELECT … FROM … [WHERE …] [GROUP BY …]")
    try:
        found = [tree for tree in sqlglot.parse(text) if tree is not None]
    except errors.ParseError as problem:
        what = problem.errors[0] if problem.errors else {}
        place = f" at column {what['col']}" if what.get("col") else ""
        raise ConfigError.about("query", f"is not understood{place}: {what.get('description', 'no SQL')}") from None
    except (errors.SqlglotError, RecursionError) as problem:
        raise ConfigError.about("query", f"is not understood: {str(problem).splitlines()[0]}") from None
    if len(found) != 1:
        raise _refused("more than one statement", "ask one SELECT at a time")
    return found[0]


def _statistic(node: Any) -> Statistic:
    name = ""
    if _kind(node) == "Alias":
        parts = _only(node, "this", "alias")
        node, name = parts["this"], str(parts["alias"].name)
    kind = _kind(node)
    if kind == "Count":
        inner = _only(node, "this", "big_int")["this"]
        column = None if _kind(inner) == "Star" else _argument(inner, "COUNT")
        return Statistic("count", column, name=name)
    if kind == "Sum":
        return Statistic("sum", _argument(_only(node, "this")["this"], "SUM"), name=name)
    if kind == "Avg":
        return Statistic("avg", _argument(_only(node, "this")["this"], "AVG"), name=name)
    if kind == "Median":
        return Statistic("quantile", _argument(_only(node, "this")["this"], "MEDIAN"), level=0.5, name=name)
    if kind == "Quantile":
        parts = _only(node, "this", "quantile")
        return Statistic("quantile", _argument(parts["this"], "QUANTILE"), level=_number(parts["quantile"]), name=name)
    if kind == "Anonymous" and str(node.this).upper() == "HISTOGRAM":
        return _histogram(node.expressions, name)
    raise _refused(_shown(node), f"known: {_STATISTICS}")


def _histogram(arguments: Sequence[Any], name: str) -> Statistic:
    if not 1 <= len(arguments) <= 2:
        raise ConfigError.about("query", "HISTOGRAM takes a column and a number of bins", "e.g. HISTOGRAM(age, 10)")
    bins = None
    if len(arguments) == 2:
        bins = int(_number(arguments[1]))
        if bins != _number(arguments[1]):
            raise ConfigError.about("query", "must be a whole number", bins=_number(arguments[1]))
    return Statistic("histogram", _argument(arguments[0], "HISTOGRAM"), bins=bins, name=name)


def _predicate(node: Any) -> Predicate:
    kind = _kind(node)
    if kind == "Paren":
        return _predicate(_only(node, "this")["this"])
    if kind == "Not":
        return Not(_predicate(_only(node, "this")["this"]))
    if kind in ("And", "Or"):
        parts = _only(node, "this", "expression")
        left, right = _predicate(parts["this"]), _predicate(parts["expression"])
        return Both(left, right) if kind == "And" else either(left, right)
    if kind == "Between":
        parts = _only(node, "this", "low", "high")
        column = _column(parts["this"])
        return Both(Compare(column, ">=", _number(parts["low"])), Compare(column, "<=", _number(parts["high"])))
    if kind == "In":
        parts = _only(node, "this", "expressions")
        return _among(_column(parts["this"]), parts.get("expressions", []))
    if kind == "Is":
        parts = _only(node, "this", "expression")
        if _kind(parts["expression"]) != "Null":
            raise _refused(_shown(node), "write IS NULL or IS NOT NULL")
        return Missing(_column(parts["this"]))
    if kind in _SIGNS or kind == "NEQ":
        return _comparison(node, kind)
    raise _refused(_shown(node), "compare declared columns with values")


def _comparison(node: Any, kind: str) -> Predicate:
    parts = _only(node, "this", "expression")
    left, right, sign = parts["this"], parts["expression"], _SIGNS.get(kind, "=")
    if _kind(left) != "Column":
        left, right, sign = right, left, _MIRRORED[sign]
    column = _column(left)
    if _kind(right) == "Literal" and right.is_string:
        if sign != "=":
            raise _refused(_shown(node), "names have no order; use = or IN")
        found: Predicate = OneOf(column, (str(right.this),))
    else:
        found = Compare(column, sign, _number(right))
    return Not(found) if kind == "NEQ" else found


def _among(column: str, values: Sequence[Any]) -> Predicate:
    if values and all(_kind(value) == "Literal" and value.is_string for value in values):
        return OneOf(column, tuple(str(value.this) for value in values))
    parts: list[Predicate] = [Compare(column, "=", _number(value)) for value in values]
    if not parts:
        raise _refused("an empty IN", "list values")
    found = parts[0]
    for part in parts[1:]:
        found = either(found, part)
    return found


def _table(node: Any, table: str) -> None:
    if _kind(node) != "Table":
        raise _refused(f"FROM {_shown(node)}", f"write FROM {table}")
    asked = str(_only(node, "this")["this"].name)
    if asked != table:
        raise ConfigError.about("query", "is not this table", checks.nearest(asked, [table]), table=asked)


def _column(node: Any) -> str:
    if _kind(node) != "Column":
        raise _refused(_shown(node), "name a column")
    return str(_only(node, "this")["this"].name)


def _argument(node: Any, function: str) -> str:
    if _kind(node) == "Distinct":
        raise _refused(f"{function}(DISTINCT …)", "one person could change it by more than is known")
    if _kind(node) != "Column":
        raise _refused(f"{function}({_shown(node)})", "give one declared column")
    return _column(node)


def _number(node: Any) -> float:
    if _kind(node) == "Neg":
        return -_number(_only(node, "this")["this"])
    if _kind(node) != "Literal" or node.is_string:
        raise _refused(_shown(node), "write a number")
    value = float(node.this)
    checks.non_negative("query", number=value)
    return value


def _only(node: Any, *allowed: str) -> dict[str, Any]:
    """A node's parts, if it has no others: LIMIT, JOIN, ORDER BY, DISTINCT and all that is to come are refused."""
    found = {name: part for name, part in node.args.items() if part not in (None, False, [])}
    for name in found:
        if name not in allowed:
            words = {"order": "ORDER BY", "joins": "JOIN", "with_": "WITH", "db": "a name with a dot"}
            known = words.get(name, name.strip("_").replace("_", " ").upper())
            raise _refused(f"{known} in {_kind(node).upper()}", "leave it out")
    return found


def _kind(node: Any) -> str:
    return type(node).__name__


def _shown(node: Any) -> str:
    text = node.sql() if hasattr(node, "sql") else str(node)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _refused(what: str, remedy: str) -> ConfigError:
    return ConfigError.about("query", f"{what} is not supported", remedy)
