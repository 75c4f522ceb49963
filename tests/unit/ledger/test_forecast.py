"""What is forecast comes true: so many more runs fit and no more; no fresh block is exhausted at the price named."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import BudgetRefused, PrivacyError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, forecast, history
from sordino.ledger.blocks import Blocks
from sordino.ledger.continual import Budget, continual
from sordino.privacy import events
from sordino.privacy.permits import Line

STEP = events.gaussian(8.0)
KEY = events.key(STEP)


def account(name, **terms):
    shared = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 4.0, "delta": 1e-5}
    return Account(name, **{**shared, **terms})


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests move."""
    times = {"now": datetime.fromisoformat("2026-01-01T00:00:00+00:00")}
    monkeypatch.setattr(history, "now", lambda: times["now"].isoformat(timespec="microseconds"))
    return times


def run(ledger, name, *silos, delta=1e-6, count=4):
    ledger.admit(name, "d", {silo: [(STEP, count)] for silo in silos}, delta, noise_at=NoiseAt.SILO)


def outlook(ledger, name, now=None):
    return next(found for found in ledger.outlooks(now) if found.account == name)


def runs_until_refused(ledger, *silos, **terms):
    done = 0
    with contextlib.suppress(BudgetRefused):
        while done < 100:
            run(ledger, f"more-{done}", *silos, **terms)
            done += 1
    return done


@pytest.mark.parametrize(("delta", "binding"), [(1e-6, "epsilon"), (4e-6, "delta")])
def test_so_many_more_plans_fit_and_no_more(ledger, delta, binding):
    ledger.open_account(account("north"))
    assert outlook(ledger, "north").runs is None
    run(ledger, "first", "north", delta=delta)
    told = outlook(ledger, "north")
    assert (told.run, told.by, told.binding) == ("first", "north", binding)
    assert told.runs == runs_until_refused(ledger, "north", delta=delta) > 0
    assert outlook(ledger, "north").runs == 0


def test_the_binding_scope_is_named(ledger):
    """The silo alone could pay more often than the federation that contains it."""
    ledger.open_accounts(
        [account("all", scope="federation", epsilon=2.0), *(account(n, parent="all") for n in ("a", "b"))]
    )
    run(ledger, "first", "a", "b")
    told = outlook(ledger, "a")
    assert (told.by, told.runs) == ("all", outlook(ledger, "all").runs)
    assert forecast.tightest(ledger.outlooks()).runs == told.runs
    assert told.runs == runs_until_refused(ledger, "a", "b")


def test_so_many_more_live_runs_fit_and_no_more(ledger):
    ledger.open_account(account("live", currency="gdp"))

    def live(name):
        ledger.open_run(name)
        ledger.reserve(f"{name}/0", name, 0, "train", [Line("live", Unit.RECORD, KEY, 6)])

    live("first")
    told = outlook(ledger, "live")
    assert told.binding == "units"
    for number in range(told.runs):
        live(f"more-{number}")
    with pytest.raises(BudgetRefused):
        live("last")


def test_an_aborted_charge_and_a_closed_account_count(ledger):
    ledger.open_account(account("live", currency="gdp"))
    ledger.open_run("run")
    ledger.abort(ledger.reserve("t", "run", 0, "train", [Line("live", Unit.RECORD, KEY, 6)]))
    assert outlook(ledger, "live").runs is None
    ledger.reserve("u", "run", 0, "train", [Line("live", Unit.RECORD, KEY, 6)])
    ledger.freeze("live")
    told = outlook(ledger, "live")
    assert (told.runs, told.binding) == (0, "frozen")


def test_the_date_follows_from_the_rate(ledger, clock):
    """A run every ten days: as many more as fit, ten days each. Idle time lowers the rate, it does not hide it."""
    ledger.open_account(account("north"))
    run(ledger, "0", "north")
    assert outlook(ledger, "north", clock["now"]).used_up is None
    for number in (1, 2):
        clock["now"] += timedelta(days=10)
        run(ledger, str(number), "north")
    told = outlook(ledger, "north", clock["now"])
    assert told.used_up == clock["now"] + timedelta(days=10 * told.runs)
    assert told.per_day == pytest.approx(ledger.balance("north").epsilon_used / 30, rel=1e-9)
    later = outlook(ledger, "north", clock["now"] + timedelta(days=20))
    assert later.per_day == pytest.approx(told.per_day / 2)
    assert later.used_up - clock["now"] > told.used_up - clock["now"]


BLOCKS = Blocks.first("north", "week", "0").then("4")


def plan(price=1.0, fresh=3.0, left=None, **terms):
    names = [window.name for window in BLOCKS.windows]
    budgets = dict.fromkeys(names, Budget.limit(fresh, 1.0)) if left is None else left
    shared = {"window": 4, "every": 2, "runs": 6, **terms}
    return continual(BLOCKS, price=Budget.price(price, 1e-3), fresh=Budget.limit(fresh, 1.0), left=budgets, **shared)


def test_each_run_charges_the_blocks_of_its_window():
    """Windows of 4 every 2 over blocks of 4: a block is read in three runs, then never again."""
    found = plan()
    assert [step.at for step in found.steps] == ["4", "6", "8", "10", "12", "14"]
    assert found.steps[0].charges == ("north/week[0,4)",)
    assert found.steps[1].charges == ("north/week[0,4)", "north/week[4,8)")
    assert found.steps[1].opened == ("north/week[4,8)",)
    assert found.steps[2].charges == ("north/week[4,8)",)
    assert (found.most, found.affordable) == (3, 1.0)
    assert not any(step.exhausted for step in found.steps)


def test_an_exhausted_block_is_said_when_it_happens():
    """One unit too dear: each block misses its last run."""
    found = plan(price=1.0 + 1e-12)
    assert [step.exhausted for step in found.steps[:4]] == [(), (), (), ("north/week[4,8)",)]
    spent = plan(left={"north/week[0,4)": Budget.limit(0.0, 0.0)})
    assert spent.steps[0].exhausted == ("north/week[0,4)",)


@given(window=st.integers(1, 12), every=st.integers(1, 5), fresh=st.floats(0.1, 10))
def test_at_the_affordable_price_no_fresh_block_is_ever_exhausted(window, every, fresh):
    """The smallest step above it exhausts one."""
    terms = {"window": window, "every": every, "runs": 20, "fresh": fresh}
    price = plan(**terms).affordable
    assert not any(step.exhausted for step in plan(price=price, **terms).steps)
    assert any(step.exhausted for step in plan(price=price + 2e-12, **terms).steps)


def test_a_window_that_reaches_back_too_far_is_refused():
    later = Blocks(BLOCKS.windows[1:])
    with pytest.raises(PrivacyError, match="lies in no block"):
        continual(later, price=Budget(1, 1), fresh=Budget(9, 9), left={}, window=9, every=1, runs=1)
