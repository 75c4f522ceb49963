"""Planted bugs: each guard of the ledger is taken out in turn, and what it guards is seen to break.

A check outside the lock stands in the contracts (`TestPlantedBugs`), for both databases; a refund by a restart and a
second draw in the kill study (`test_ledger_crash.py`).
"""

from __future__ import annotations

import math
from contextlib import closing
from fractions import Fraction

import pytest

from sordino.core.errors import BudgetRefused, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, amounts, currencies, verify
from sordino.ledger.stores import sqlite
from sordino.privacy import accounting, events
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line, Reservation

STEP = events.gaussian(4.0)
KEY = events.key(STEP)
NAIVE = {
    "floor": lambda value, places, times: math.floor(value * 10**places) * times,
    "as it is": lambda value, places, times: int(value * 10**places * times),
}


def opened(path, *, epsilon=8.0, currency="gdp", delta=1e-5):
    ledger = Ledger(path)
    ledger.open_account(Account("silo", Unit.RECORD, Adjacency.ADD_REMOVE, epsilon, delta, currency))
    ledger.open_run("run")
    return ledger


def reserve(ledger, txid="t", key=KEY, count=1):
    return ledger.reserve(txid, "run", 0, "train", [Line("silo", Unit.RECORD, key, count)])


def units(ledger):
    from sqlalchemy import select

    from sordino.ledger.schema import account

    with ledger._store.read() as db:
        return db.execute(select(account.c.spent_units + account.c.held_units)).scalar_one()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def charge_as(monkeypatch):
    """Replaces the rounding of charges, in this test, until `undo`."""

    def replace(rule):
        monkeypatch.setattr(amounts, "charge", lambda where, value, places, times=1: rule(value, places, times))

    return replace


class TestSynchronous:
    @pytest.mark.parametrize("weak", ["NORMAL", "OFF"])
    def test_a_file_that_may_lose_commits_is_not_opened(self, path, monkeypatch, weak):
        """I11: the database is asked what it does, so the weaker setting stops the first connection."""
        monkeypatch.setattr(sqlite, "DURABLE", weak)
        with pytest.raises(PrivacyError, match=rf"synchronous = {weak}.*commits may be lost"):
            Ledger(path)

    def test_the_control_syncs(self, path):
        with closing(opened(path)) as ledger, ledger._store.write() as db:
            assert db.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2


class TestFence:
    def late(self, path, patch):
        """A replaced owner reserves once more, and draws."""
        with closing(opened(path)) as old, closing(Ledger(path)) as new:
            new.open_run("run")
            patch()
            reserve(old, "late")

    def test_the_control_is_refused(self, path):
        with pytest.raises(PrivacyError, match="taken over"):
            self.late(path, lambda: None)
        assert verify(path).ok

    def test_without_the_fence_verify_tells(self, path, monkeypatch):
        self.late(path, lambda: monkeypatch.setattr(Ledger, "_guard", lambda *_: None))
        assert any("replaced" in problem for problem in verify(path).problems)


class TestRefundAfterTheDraw:
    def drawn(self, ledger, rounds):
        """Draws, and then asks for the money back, as often as it can. How many draws."""
        draws = 0
        for n in range(rounds):
            try:
                reservation = reserve(ledger, f"t{n}")
            except BudgetRefused:
                break
            SystemNoise().normal(reservation.take(["silo"], KEY), 1.0, 2)
            draws += 1
            try:
                ledger.abort(reservation)
            except PrivacyError:
                ledger.commit(reservation, b"x")
        return draws

    def test_the_control_keeps_what_was_drawn(self, path):
        with closing(opened(path, epsilon=1.0)) as ledger:
            draws = self.drawn(ledger, 20)
            loss = accounting.best_epsilon([(STEP, draws)], 1e-5, adjacency=Adjacency.ADD_REMOVE).epsilon
            assert loss <= ledger.balance("silo").epsilon_used <= 1.0
        assert 0 < draws < 20

    def test_with_refunds_more_is_lost_than_the_limit(self, path, monkeypatch):
        monkeypatch.setattr(Reservation, "void", lambda _: True)
        with closing(opened(path, epsilon=1.0)) as ledger:
            draws = self.drawn(ledger, 20)
            loss = accounting.best_epsilon([(STEP, draws)], 1e-5, adjacency=Adjacency.ADD_REMOVE).epsilon
            assert ledger.balance("silo").epsilon_used == 0.0
        assert loss > 1.0


class TestRounding:
    """σ = 3 costs μ² = 1/9, which no whole number of units is."""

    KEY = events.key(events.gaussian(3.0))

    def paid(self, path):
        with closing(opened(path)) as ledger:
            for n in range(9):
                reserve(ledger, f"t{n}", self.KEY)
            return Fraction(units(ledger), 10**12)

    def test_the_control_pays_at_least_the_price(self, path):
        assert self.paid(path) >= 9 * Fraction(1, 9)
        assert verify(path, reprice=True).ok

    @pytest.mark.parametrize("rule", NAIVE)
    def test_rounded_down_pays_too_little_and_verify_tells(self, path, charge_as, monkeypatch, rule):
        charge_as(NAIVE[rule])
        assert self.paid(path) < 9 * Fraction(1, 9)
        monkeypatch.undo()
        assert any("less was charged" in p or "costs more" in p for p in verify(path, reprice=True).problems)


class TestSenselessPrices:
    """I8: a price below zero would raise the room, one that is no number would spoil it, a tiny one would vanish."""

    PRICES = (-1.0, -5e-324, float("nan"), float("inf"), -float("inf"))

    @pytest.mark.parametrize("price", PRICES)
    def test_the_control_refuses(self, path, monkeypatch, price):
        with closing(opened(path)) as ledger:
            monkeypatch.setattr(currencies, "_price", lambda *_: price)
            with pytest.raises(PrivacyError):
                reserve(ledger)
            assert units(ledger) == 0
        assert verify(path).ok

    @pytest.mark.parametrize("price", [5e-324, 1e-300, 0.0])
    def test_the_control_charges_at_least_one_unit(self, path, monkeypatch, price):
        """So a budget ends, however small its releases are."""
        with closing(opened(path)) as ledger:
            monkeypatch.setattr(currencies, "_price", lambda *_: price)
            reserve(ledger)
            assert units(ledger) == 1

    @pytest.mark.parametrize("price", [-1.0, 5e-324, 0.0])
    def test_a_naive_charge_is_stopped_by_the_table(self, path, monkeypatch, charge_as, price):
        """The last guard: no line below one unit is stored, whatever the code computes."""
        with closing(opened(path)) as ledger:
            monkeypatch.setattr(currencies, "_price", lambda *_: price)
            charge_as(NAIVE["as it is"])
            with pytest.raises(PrivacyError, match="database's own guard"):
                reserve(ledger)
            assert units(ledger) == 0

    @pytest.mark.parametrize(("price", "after"), [(-1.0, -(10**12)), (5e-324, 0)])
    def test_without_both_guards_it_is_free_and_verify_tells(self, path, monkeypatch, charge_as, price, after):
        """The tests above can fail: a negative price pays itself out, a subnormal one costs nothing, for ever."""
        with closing(opened(path)) as ledger:
            with ledger._store.engine.connect() as db:
                db.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            with monkeypatch.context() as patch:
                patch.setattr(currencies, "_price", lambda *_: price)
                charge_as(NAIVE["as it is"])
                reserve(ledger)
            assert units(ledger) == after
        monkeypatch.undo()
        assert any("less was charged" in p or "costs more" in p for p in verify(path, reprice=True).problems)
