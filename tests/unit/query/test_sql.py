"""The part of SQL that is understood, and what is refused by name."""

from __future__ import annotations

import pytest
from patients import DECLARED

from sordino.core.errors import ConfigError
from sordino.query import Question, Statistic, sql
from sordino.query.predicates import Both, Compare, Missing, Not, OneOf


def asked(text):
    return sql.question(text, "patients")


def test_what_is_understood():
    text = (
        "SELECT sex, COUNT(*), COUNT(age) AS known, SUM(oldpeak), AVG(age), MEDIAN(chol), QUANTILE(age, 0.9), "
        "HISTOGRAM(age, 7), HISTOGRAM(\"cp\") FROM patients WHERE age >= 65 AND NOT (sex = 'Male') "
        "AND oldpeak BETWEEN -1 AND 2.5 AND chol IS NOT NULL GROUP BY sex"
    )
    found = asked(text)

    assert found.by == ("sex",)
    assert [item.title for item in found.statistics] == [
        "COUNT(*)", "known", "SUM(oldpeak)", "AVG(age)", "QUANTILE(chol, 0.5)", "QUANTILE(age, 0.9)",
        "HISTOGRAM(age, 7)", "HISTOGRAM(cp)",
    ]  # fmt: skip
    assert found.where == Both(
        Both(
            Both(Compare("age", ">=", 65.0), Not(OneOf("sex", ("Male",)))),
            Both(Compare("oldpeak", ">=", -1.0), Compare("oldpeak", "<=", 2.5)),
        ),
        Not(Missing("chol")),
    )
    found.measures(DECLARED)


def test_one_question_is_one_digest():
    """
    Names, order and spelling do not matter; what is asked does.
    """

    def digest(text):
        return asked(text).digest(DECLARED)

    same = ["SELECT SUM(age), COUNT(*) FROM patients", "select count(*) as n, sum( age ) from patients"]
    other = ["SELECT SUM(chol), COUNT(*) FROM patients", "SELECT SUM(age), COUNT(*) FROM patients WHERE age > 3"]
    assert len({digest(text) for text in same}) == 1
    assert len({digest(text) for text in [*same, *other]}) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing is not supported"),
        ("DROP TABLE patients", "DROP is not supported"),
        ("EXPLAIN SELECT COUNT(*) FROM patients", "EXPLAIN is not supported"),
        ("WITH a AS (SELECT 1) SELECT COUNT(*) FROM a", "WITH is not supported"),
        ("SELECT COUNT(*) FROM patients; SELECT COUNT(*) FROM patients", "more than one statement"),
        ("SELECT COUNT( FROM patients", "not understood at column"),
        ("SELECT 'abc", "not understood"),
        ("SELECT COUNT(*)", "names no table; write FROM patients"),
        ("SELECT COUNT(*) FROM patient", "did you mean 'patients'"),
        ("SELECT COUNT(*) FROM other.patients", "a name with a dot in TABLE"),
        ("SELECT COUNT(*) FROM patients p", "ALIAS in TABLE"),
        ("SELECT COUNT(*) FROM patients TABLESAMPLE (10)", "SAMPLE in TABLE"),
        ("SELECT COUNT(*) FROM patients JOIN visits ON id = id", "JOIN in SELECT"),
        ("SELECT COUNT(*) FROM patients, visits", "JOIN in SELECT"),
        ("SELECT COUNT(*) FROM (SELECT * FROM patients)", "FROM .* is not supported"),
        ("SELECT COUNT(*) FROM patients UNION SELECT COUNT(*) FROM patients", "UNION is not supported"),
        ("SELECT COUNT(*) FROM patients LIMIT 3", "LIMIT in SELECT"),
        ("SELECT sex, COUNT(*) FROM patients GROUP BY sex ORDER BY 2", "ORDER BY in SELECT"),
        ("SELECT sex, COUNT(*) FROM patients GROUP BY sex HAVING COUNT(*) > 3", "HAVING in SELECT"),
        ("SELECT DISTINCT sex FROM patients", "DISTINCT in SELECT"),
        ("SELECT COUNT(DISTINCT sex) FROM patients", "COUNT.DISTINCT"),
        ("SELECT COUNT(*) FILTER (WHERE age > 3) FROM patients", "FILTER.* is not supported"),
        ("SELECT COUNT(*) OVER () FROM patients", "OVER .* is not supported"),
        ("SELECT MAX(age) FROM patients", r"MAX\(age\) is not supported; known: COUNT"),
        ("SELECT STDDEV(age) FROM patients", "STDDEV"),
        ("SELECT * FROM patients", r"\* is not supported"),
        ("SELECT age FROM patients", "selected and not grouped"),
        ("SELECT SUM(age + 1) FROM patients", r"SUM\(age \+ 1\) is not supported"),
        ("SELECT 2 * SUM(age) FROM patients", "is not supported"),
        ("SELECT SUM(age) FROM patients GROUP BY age / 10", "age / 10 is not supported"),
        ("SELECT COUNT(*) FROM patients GROUP BY ROLLUP (sex)", "ROLLUP"),
        ("SELECT COUNT(*) FROM patients WHERE age > chol", "chol is not supported; write a number"),
        ("SELECT COUNT(*) FROM patients WHERE age = NULL", "write a number"),
        ("SELECT COUNT(*) FROM patients WHERE LOWER(sex) = 'male'", "name a column"),
        ("SELECT COUNT(*) FROM patients WHERE sex LIKE 'F%'", "LIKE"),
        ("SELECT COUNT(*) FROM patients WHERE sex > 'F'", "names have no order"),
        ("SELECT COUNT(*) FROM patients WHERE age IN (SELECT 1)", "IN"),
        ("SELECT COUNT(*) FROM patients WHERE EXISTS (SELECT 1)", "EXISTS"),
        ("SELECT COUNT(*) FROM patients WHERE age", "compare declared columns"),
        ("SELECT COUNT(*) FROM patients WHERE " + "(" * 6000, "longer than"),
        ("SELECT COUNT(*) FROM patients WHERE " + "(" * 2000 + "age > 1" + ")" * 2000, "not understood|recursion"),
        ("SELECT HISTOGRAM(age, 2.5) FROM patients", "whole number"),
        ("SELECT HISTOGRAM(age, 1, 2) FROM patients", "number of bins"),
    ],
)  # fmt: skip
def test_what_is_refused(text, why):
    """
    In one line, by name.
    """
    with pytest.raises(ConfigError, match=why) as told:
        asked(text)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT AVG(weight) FROM patients", "'weight' has no declared range or categories"),
        ("SELECT AVG(ag) FROM patients", "did you mean 'age'"),
        ("SELECT AVG(sex) FROM patients", "has categories, not numbers"),
        ("SELECT COUNT(id) FROM patients", "no declared range"),
        ("SELECT id, COUNT(*) FROM patients GROUP BY id", "no declared range or categories"),
        ("SELECT COUNT(*) FROM patients WHERE id = '7'", "no declared range or categories"),
        ("SELECT COUNT(*) FROM patients WHERE id IS NULL", "no declared range or categories"),
        ("SELECT age, COUNT(*) FROM patients GROUP BY age", "use HISTOGRAM"),
        ("SELECT COUNT(*) FROM patients WHERE sex = 'male'", "is not a declared value of 'sex'; known: Female"),
        ("SELECT COUNT(*) FROM patients WHERE age = 'old'", "has numbers, not categories"),
        ("SELECT QUANTILE(age, 1.5) FROM patients", r"must lie in \[0, 1\]"),
        ("SELECT HISTOGRAM(age) FROM patients", "needs bins"),
        ("SELECT HISTOGRAM(cp, 3) FROM patients", "leave bins out"),
        ("SELECT HISTOGRAM(age, 100000) FROM patients", "more than 10000 numbers"),
        ("SELECT sex, COUNT(*) FROM patients GROUP BY sex, sex", "twice"),
        ("SELECT sex FROM patients GROUP BY sex", "asks for 1 to"),
    ],
)
def test_what_is_not_declared_cannot_be_asked(text, why):
    with pytest.raises(ConfigError, match=why):
        asked(text).measures(DECLARED)


@pytest.mark.parametrize("bins", [(20.0, 20.0), (3.0, 1.0), (1.0,), 0])
def test_edges_of_a_histogram_must_rise(bins):
    with pytest.raises(ConfigError):
        Question((Statistic("histogram", "age", bins=bins),)).measures(DECLARED)
