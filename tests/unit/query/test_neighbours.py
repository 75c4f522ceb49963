"""What one person can move: the noise-free numbers of neighbouring tables differ by at most the derived bound.

Neighbours are made by adding, removing or replacing all rows of one person, however many, with worst values. Broken
twins of each step move more, so the test would find a step that is broken.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
from sordino.query import Declared, Question, Statistic, noise, rows, sql
from sordino.query.declared import Numbers
from sordino.query.measures import Bins, Cells, Count, Rank, Total

CAP = 2
DECLARED = Declared(
    name="t",
    ranges={"a": (-3, 10), "b": (0, 1)},
    categories={"g": ("x", "y", "z"), "h": ("0", "1")},
    person="who",
    rows_per_person=CAP,
    missing="indicator",
)
COLUMNS = ["who", "a", "b", "g", "h"]
MEASURES = (
    Count(),
    Count("a"),
    Total("a"),
    Total("a", DECLARED.numbers("a").centre),
    Total("b"),
    Bins("a", (-3_000_000, 0, 10_000_000)),
    Bins("h"),
)
CONDITIONS = (None, "a > 1 OR b IS NULL", "NOT (g = 'x' AND a <= 3)")

values = st.one_of(
    st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1e9, -3.0, 10.0]), st.floats(-5, 12, allow_nan=False)
)
row = st.tuples(values, values, st.sampled_from(["x", "y", "z", "w", None]), st.sampled_from(["0", "1", None]))
others = st.lists(
    st.tuples(st.sampled_from(["p", "q", None, " "]), row).map(lambda pair: (pair[0], *pair[1])), max_size=6
)
persons = st.lists(row.map(lambda values: ("me", *values)), max_size=4)
place = st.lists(st.integers(0, 10), min_size=4, max_size=4)


def mixed(shared, mine, places):
    """One person's rows among the others', at the same places in both neighbours."""
    table = list(shared)
    for item, at in zip(mine, places, strict=False):
        table.insert(at, item)
    return table


def encoded(table, where=None, by=(), unit=Unit.USER):
    """A table's rows, and the group of each."""
    frame = pd.DataFrame(table, columns=COLUMNS).astype({"a": float, "b": float})
    private = rows.encoded(frame, DECLARED, unit)
    keep = np.ones(private.size, bool)
    if where is not None:
        keep = sql.condition(where).truth(private, DECLARED)[0]
    return private, Cells(by).of(private, keep, DECLARED), len(Cells(by).labels(DECLARED))


def numbers(table, measure, by=()):
    """The noise-free numbers of a table."""
    return measure.exact(*encoded(table, None, by), DECLARED)


def apart(before, after, measure):
    """How far the numbers of two encoded tables lie apart, in L1 (which bounds L2)."""
    return int(np.abs(measure.exact(*before, DECLARED) - measure.exact(*after, DECLARED)).sum())


def moved(before, after, measure, by=()):
    """The same of two tables."""
    return apart(encoded(before, None, by), encoded(after, None, by), measure)


@settings(max_examples=40)
@given(shared=others, mine=persons, instead=persons, places=place, where=st.sampled_from(CONDITIONS))
@pytest.mark.parametrize("by", [(), ("g",), ("g", "h")], ids=str)
def test_a_person_moves_at_most_the_bound(by, shared, mine, instead, places, where):
    tables = shared, mixed(shared, mine, places), mixed(shared, instead, places)
    without, one, other = (encoded(table, where, by) for table in tables)
    for measure in MEASURES:
        bound = CAP * measure.bound(DECLARED)

        assert apart(without, one, measure) <= bound
        assert apart(other, one, measure) <= 2 * bound


@settings(max_examples=40)
@given(shared=others, mine=row, places=place, where=st.sampled_from(CONDITIONS))
def test_a_record_moves_at_most_the_bound_of_one_row(shared, mine, places, where):
    tables = shared, mixed(shared, [("me", *mine)], places)
    without, one = (encoded(table, where, ("g",), Unit.RECORD) for table in tables)
    for measure in MEASURES:
        assert apart(without, one, measure) <= measure.bound(DECLARED)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_the_bound_is_reached(measure):
    """
    By the worst person: a bound that nothing reaches would waste budget, and this test could not fail.
    """
    for value in (1e300, -1e300):
        mine = [("me", value, value, "x", "1")] * 5
        if moved([], mine, measure) == CAP * measure.bound(DECLARED):
            return
    pytest.fail("no person reaches it")


def breaches(measure, by=()):
    """Whether a person with many extreme rows moves more than the bound."""
    shared = [("p", 1.0, 0.5, "x", "0"), (None, 2.0, 0.5, "y", "1"), ("q", 1.0, 0.5, "y", "1")]
    worst = [("me", value, 1.0, group, "0") for value in (1e6, -1e6) for group in ("x", "w", None)]
    tables = [[*worst, *shared], [*shared, *worst], [*worst[:1], *shared], [(None, 9.0, 1.0, "z", "0"), *shared]]
    return any(moved(shared, table, measure, by) > CAP * measure.bound(DECLARED) for table in tables)


def test_twin_without_clamping(monkeypatch):
    assert not breaches(Total("a"))
    monkeypatch.setattr(Numbers, "steps", lambda self, values: np.rint(values * 10.0**self.places).astype(np.int64))
    assert breaches(Total("a"))


def test_twin_without_truncation(monkeypatch):
    assert not breaches(Count())
    monkeypatch.setattr(rows, "_first", lambda people, _cap: np.ones(len(people), bool))
    assert breaches(Count())


def test_twin_that_keeps_the_first_rows_of_the_whole_table(monkeypatch):
    """
    A new person would push others out: then who counts depends on others.
    """
    monkeypatch.setattr(rows, "_first", lambda people, cap: np.arange(len(people)) < cap)
    shared = [("p", 10.0, 1.0, "x", "0"), ("q", 10.0, 1.0, "x", "0")]
    me = [("me", -3.0, 0.0, "y", "1")] * 2
    assert moved(shared, [*me, *shared], Bins("h")) > CAP


def test_twin_that_takes_the_nameless_for_one_person(monkeypatch):
    """
    One of them, who has two rows, decides over two rows of others: twice the bound.
    """
    shared, me = [(None, 0.0, 0.0, "x", "0")] * 2, [(None, 0.0, 0.0, "y", "1")] * 2
    assert moved(shared, [*me, *shared], Bins("h")) == 0
    honest = rows._first
    monkeypatch.setattr(rows, "_first", lambda people, cap: honest([p or "nobody" for p in people], cap))
    assert moved(shared, [*me, *shared], Bins("h")) > CAP


def test_twin_with_keys_found_in_the_data(monkeypatch):
    """
    Then the answer's very shape says who is there; with declared keys it never changes.
    """
    shared, me = [("p", 0.0, 0.0, "x", "0")], [("me", 0.0, 0.0, "z", "0")]
    assert len(numbers(shared, Count(), ("g",))) == len(numbers([*shared, *me], Count(), ("g",))) == 3
    found = lambda table: sorted({row[3] for row in table})  # noqa: E731 - the twin
    assert len(found(shared)) != len(found([*shared, *me]))
    assert Question((Statistic("count"),), ("g",)).measures(DECLARED) == (Count(),)
    with pytest.raises(ConfigError, match="no declared range or categories"):
        Question((Statistic("count"),), ("who",)).measures(DECLARED)


def test_twin_that_counts_what_is_distinct():
    """
    Distinct (person, group) pairs, priced as the one person that is added, move by as many groups as it has; distinct
    values move with what others have. So nothing in the language says DISTINCT.
    """
    shared, me = [("p", 0.0, 0.0, "x", "0")], [("me", 0.0, 0.0, group, "0") for group in "xyz"]
    pairs = [len({(row[0], row[3]) for row in table}) for table in (shared, [*shared, *me])]
    assert pairs[1] - pairs[0] > CAP
    for text in ("SELECT COUNT(DISTINCT who) FROM t", "SELECT SUM(DISTINCT a) FROM t"):
        with pytest.raises(ConfigError, match="DISTINCT"):
            sql.question(text, "t")


@pytest.mark.parametrize("level", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_scores_of_a_quantile_move_as_opendp_says(level):
    """
    For k rows in a cell by at most the map of k, and the worst row reaches it: cells share a person's rows.
    """
    dp = noise.opendp()
    space = dp.vector_domain(dp.atom_domain(T=dp.i64))
    points = list(Numbers.of("a", (-3, 10)).spaced(5))
    scores = dp.t.make_quantile_score_candidates(space, dp.symmetric_distance(), points, level)
    draw = np.random.default_rng(3)
    largest = 0
    for _ in range(60):
        rest = draw.integers(-3_000_000, 10_000_000, draw.integers(0, 6)).tolist()
        mine = draw.choice([*points, -3_000_000, 10_000_000, 1_000_000], CAP).tolist()
        change = np.abs(np.array(scores(rest + mine), np.int64) - np.array(scores(rest), np.int64)).max()
        assert change <= scores.map(CAP)
        largest = max(largest, change)
    assert largest == scores.map(CAP)


def test_a_quantile_sees_a_person_in_few_rows_of_all_cells_together():
    """
    Rows that the cap drops are in no cell, so the parts k of K add up to at most 1.
    """
    table = [("me", 5.0, 1.0, group, "0") for group in "xyzxyz"]
    private = rows.encoded(pd.DataFrame(table, columns=COLUMNS), DECLARED, Unit.USER)
    cells = Cells(("g",)).of(private, np.ones(private.size, bool), DECLARED)

    assert sum(len(Rank("a", 0.5).values(private, cells, cell)) for cell in range(3)) == CAP
