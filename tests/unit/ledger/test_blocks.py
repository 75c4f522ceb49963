"""I10: every record up to the last end falls in exactly one block, and no range of records is read for free."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.places import point
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, blocks, verify
from sordino.ledger.blocks import Blocks
from sordino.ledger.windows import Window
from sordino.privacy import events

SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "epsilon": 8.0}
SILO = Account("north", overlap=1, **SHARED)
NEW_YEAR = "north/admitted[..,2026-01-01)"
SPRING = "north/admitted[2026-01-01,2026-04-01)"
QUARTERS = Blocks.first("north", "admitted", "2026-01-01").then("2026-04-01").then("2026-07-01")


def block(name, **terms):
    return Account(name, scope="block", **{"parent": "north", **SHARED, **terms})


numbers = st.decimals(min_value=-(10**9), max_value=10**9, allow_nan=False, places=9)
times = st.integers(-(10**15), 10**15).map(lambda us: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
edges = st.one_of(*(st.lists(kind, min_size=2, max_size=6, unique=True).map(sorted) for kind in (numbers, times)))


def made(places):
    found = Blocks.first("north", "x", places[0])
    for place in places[1:]:
        found = found.then(place)
    return found


def moves(places):
    """Steps from an edge: none, the smallest there is, and 0.0001 to both sides."""
    if isinstance(places[0], datetime):
        return [timedelta(0), *(timedelta(microseconds=sign * step) for sign in (-1, 1) for step in (1, 100))]
    return [Decimal(0), *(Decimal(sign) * Decimal(step) for sign in (-1, 1) for step in ("1e-12", "0.0001"))]


def uncovered(found, places):
    """Moments near an edge that fall in no block, in two, or in one that reading them does not charge."""
    problems, smallest = [], moves(places)[3]
    near = [edge + move for edge in places for move in moves(places)]
    for at in (at for at in near if at + smallest <= places[-1]):
        holds = [w.name for w in found.windows if (w.start is None or w.start <= at) and at < w.end]
        try:
            if len(holds) != 1 or found.place(at) != holds[0] or holds[0] not in found.covering(at, at + smallest):
                problems.append(at)
        except PrivacyError:
            problems.append(at)
    return problems


@given(edges)
def test_every_record_is_in_one_block_and_reading_it_is_charged(places):
    assert uncovered(made(places), places) == []


@given(edges)
def test_a_range_is_charged_to_all_that_it_touches(places):
    found = made(places)
    for i, start in enumerate(places[:-1]):
        for j, end in enumerate(places[i + 1 :], start=i + 1):
            assert found.covering(start, end) == [window.name for window in found.windows[i + 1 : j + 1]]
    assert found.covering(None, places[0]) == [found.windows[0].name]


class TestMutants:
    def test_a_gap_between_blocks_is_refused(self):
        """The planted bug of another ledger: an interval that starts 0.0001 after an edge is charged to nobody."""
        one = Window("north", "x", None, point("10"))
        with pytest.raises(ConfigError, match="gap or overlaps; start it at 10"):
            Blocks((one, Window("north", "x", point("10.0001"), point("20"))))
        with pytest.raises(ConfigError, match="gap or overlaps"):
            Blocks((one, Window("north", "x", point("9.9999"), point("20"))))

    @pytest.mark.parametrize("start", ["10.0001", "9.9999"])
    def test_the_property_finds_a_gap_and_an_overlap(self, monkeypatch, start):
        """The twin without the check fails the test above."""
        monkeypatch.setattr(Blocks, "__post_init__", lambda _: None)
        places = [point("10"), point("20")]
        twin = Blocks((Window("north", "x", None, places[0]), Window("north", "x", point(start), places[1])))
        assert uncovered(twin, places) != []

    def test_an_edge_that_is_rounded_is_refused(self):
        """A nanosecond after an edge would be rounded onto it, and read for free."""
        with pytest.raises(ConfigError, match="microsecond"):
            QUARTERS.covering("2025-12-31", "2026-01-01T00:00:00.0000001")
        assert QUARTERS.covering("2025-12-31", "2026-01-01T00:00:00.000001") == [NEW_YEAR, SPRING]
        exact = Blocks.first("north", "x", "0.1").then("0.3")
        assert exact.place(0.1) == "north/x[0.1,0.3)", "the float lies above the decimal, and is not moved"
        assert exact.place("0.0999999999999999999999999999999999") == "north/x[..,0.1)"


class TestWindows:
    def test_names_tell_windows(self):
        assert [window.name for window in QUARTERS.windows[:2]] == [NEW_YEAR, SPRING]
        assert Window.parse(SPRING) == QUARTERS.windows[1]
        assert Window.parse("north") is None
        assert Window("a/b", "age", point("1.50"), point("1e2")).name == "a/b/age[1.5,100)"
        assert Window.parse("a/b/age[1.5,100)").silo == "a/b"

    def test_days_times_and_zones_are_one_line(self):
        assert point(date(2026, 1, 1)) == point("2026-01-01") == point("2026-01-01T02:00:00+02:00")
        assert QUARTERS.place(datetime(2026, 3, 31, 23, 59, tzinfo=UTC)) == SPRING

    @pytest.mark.parametrize("value", ["nan", "inf", "yesterday", "", True])
    def test_what_is_no_place_is_refused(self, value):
        with pytest.raises(ConfigError):
            QUARTERS.place(value)

    def test_what_is_not_covered_is_refused(self):
        with pytest.raises(PrivacyError, match="lies in no block"):
            QUARTERS.place("2026-07-01")
        with pytest.raises(PrivacyError, match="open the next block first"):
            QUARTERS.covering("2026-06-01", "2026-07-01T00:00:00.000001")
        later = Blocks(QUARTERS.windows[1:])
        with pytest.raises(PrivacyError, match="lies in no block"):
            later.covering(None, "2026-02-01")
        with pytest.raises(ConfigError, match="before the end"):
            QUARTERS.covering("2026-02-01", "2026-02-01")
        with pytest.raises(ConfigError, match="number beside a time"):
            QUARTERS.place(5)

    def test_old_blocks_can_be_retired(self):
        assert QUARTERS.ended("2026-04-01") == [NEW_YEAR, SPRING]


class TestLedger:
    @pytest.fixture
    def ledger(self, tmp_path):
        with Ledger(tmp_path / "ledger.db") as opened:
            opened.open_accounts([SILO, block(NEW_YEAR), block(SPRING)])
            yield opened
        assert verify(tmp_path / "ledger.db").ok

    @pytest.mark.parametrize(
        ("name", "rule"),
        [
            ("north/admitted[2026-04-01T00:00:00.000100,2026-07-01)", "gap or overlaps; start it at 2026-04-01"),
            ("north/admitted[2026-03-01,2026-07-01)", "gap or overlaps"),
            ("north/admitted[..,2027-01-01)", "gap or overlaps"),
            ("north/born[2026-04-01,2026-07-01)", "another silo or column"),
            ("north/admitted[1,2)", "number beside a time"),
            ("north/admitted[2026-04-01T00:00:00,2026-07-01)", "call it"),
            ("north/admitted[2026-07-01,2026-04-01)", "ends before it starts"),
            ("north/cohort=new", "named unlike"),
            ("south/admitted[2026-04-01,2026-07-01)", "after another silo"),
        ],
    )
    def test_the_ledger_opens_no_block_beside_the_line(self, ledger, name, rule):
        with pytest.raises(ConfigError, match=rule):
            ledger.open_account(block(name))
        ledger.open_account(block("north/admitted[2026-04-01,2026-07-01)"))
        assert ledger.blocks("north") == QUARTERS

    def test_a_record_has_no_second_budget(self, ledger):
        """Neither beside its silo, nor in a silo opened beside its blocks; cohorts stay among themselves."""
        with pytest.raises(ConfigError, match="open it inside"):
            ledger.open_account(block("north/admitted[2026-04-01,2026-07-01)", parent=None))
        ledger.open_account(block("south/x[..,10)", parent=None))
        with pytest.raises(ConfigError, match="two budgets"):
            ledger.open_account(Account("south", **SHARED))
        ledger.open_accounts([Account("east", overlap=1, **SHARED), block("east/cohort=a", parent="east")])
        with pytest.raises(ConfigError, match="named unlike"):
            ledger.open_account(block("east/x[..,1)", parent="east"))

    def test_new_records_bring_a_fresh_budget_and_a_retired_block_pays_no_more(self, ledger):
        step = events.gaussian(4.0)
        asked = {name: [(step, 10)] for name in ledger.blocks("north").covering("2026-01-05", "2026-02-01")}
        ledger.admit("one", "d", asked, 1e-6, noise_at=NoiseAt.SILO)
        assert ledger.balance(NEW_YEAR).epsilon_used == 0 < ledger.balance(SPRING).epsilon_used
        ledger.open_account(block("north/admitted[2026-04-01,2026-07-01)"))
        assert ledger.balance("north/admitted[2026-04-01,2026-07-01)").epsilon_left == 8.0
        ledger.retire(SPRING, reason="retention")
        with pytest.raises(BudgetRefused, match="is retired"):
            ledger.admit("two", "d", asked, 1e-6, noise_at=NoiseAt.SILO)

    def test_a_record_is_in_one_block_a_person_in_any_number(self):
        assert blocks.overlap(Unit.RECORD) == 1
        assert blocks.overlap(Unit.USER) is None
        made_ = blocks.account(SILO, QUARTERS.windows[1], epsilon=4.0, delta=1e-5)
        assert (made_.name, made_.scope, made_.parent, made_.epsilon) == (SPRING, "block", "north", 4.0)
