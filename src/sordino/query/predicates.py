"""WHERE: which rows count, by SQL's three values. A comparison with a missing value is neither true nor false."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from sordino.core.errors import ConfigError
from sordino.query.declared import Declared, listed
from sordino.query.rows import Mask, Rows

Truth: TypeAlias = tuple[Mask, Mask]
"""Where it is true, and where it is false; elsewhere it is unknown. Shapes (rows,)."""

Sign: TypeAlias = Literal["=", "<", "<=", ">", ">="]
_COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Predicate(Protocol):
    """A condition on one row by itself."""

    def check(self, declared: Declared) -> None:
        """Raise a `ConfigError` if it asks for what is not declared."""
        ...

    def truth(self, rows: Rows, declared: Declared) -> Truth:
        """Where it holds."""
        ...


@dataclass(frozen=True)
class Compare:
    """A numeric column against a number. The column is clamped to its range and rounded to its step before."""

    column: str
    sign: Sign
    value: float

    def check(self, declared: Declared) -> None:
        declared.numbers(self.column)

    def truth(self, rows: Rows, declared: Declared) -> Truth:
        place = float(declared.numbers(self.column).place(self.value))
        holds, known = _COMPARE[self.sign](rows.numbers[self.column], place), rows.has(self.column)
        return holds & known, ~holds & known


@dataclass(frozen=True)
class OneOf:
    """A column of names among some of its declared values."""

    column: str
    values: tuple[str, ...]

    def check(self, declared: Declared) -> None:
        known = declared.values(self.column)
        for value in self.values:
            if value not in known:
                rule = f"is not a declared value of {self.column!r}"
                raise ConfigError.about("query", rule, f"known: {listed(known)}", value=value)

    def truth(self, rows: Rows, declared: Declared) -> Truth:
        known = declared.values(self.column)
        holds = np.isin(rows.places[self.column], [known.index(value) for value in self.values])
        return holds, ~holds & rows.has(self.column)


@dataclass(frozen=True)
class Missing:
    """A column that a row lacks: never unknown."""

    column: str

    def check(self, declared: Declared) -> None:
        if self.column not in declared.categories:
            declared.numbers(self.column)

    def truth(self, rows: Rows, declared: Declared) -> Truth:  # noqa: ARG002 - the protocol's
        return ~rows.has(self.column), rows.has(self.column)


@dataclass(frozen=True)
class Not:
    """The opposite; unknown stays unknown."""

    part: Predicate

    def check(self, declared: Declared) -> None:
        self.part.check(declared)

    def truth(self, rows: Rows, declared: Declared) -> Truth:
        true, false = self.part.truth(rows, declared)
        return false, true


@dataclass(frozen=True)
class Both:
    """Two conditions together."""

    left: Predicate
    right: Predicate

    def check(self, declared: Declared) -> None:
        self.left.check(declared)
        self.right.check(declared)

    def truth(self, rows: Rows, declared: Declared) -> Truth:
        (true, false), (also_true, also_false) = self.left.truth(rows, declared), self.right.truth(rows, declared)
        return true & also_true, false | also_false


def either(left: Predicate, right: Predicate) -> Predicate:
    """One of two conditions: by De Morgan, which holds for three values too."""
    return Not(Both(Not(left), Not(right)))
