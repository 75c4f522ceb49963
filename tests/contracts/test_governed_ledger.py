"""Officers, refusals, blocks and forecasts mean the same on every database."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from sordino.core.errors import BudgetRefused, PrivacyError, SordinoError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.keys import SigningKey
from sordino.ledger.officers import Order, Signed
from sordino.ledger.policy import Policy, Quorum
from sordino.privacy import events
from sordino.privacy.permits import Line

ANN = SigningKey.generate("ann")
STEP = events.gaussian(8.0)
ACTIONS = ("open", "raise", "freeze", "thaw", "retire")
POLICY = Policy("p", 1, {"ann": str(ANN.public)}, {action: Quorum(("ann",)) for action in ACTIONS}, 1)


def account(name, **terms):
    return Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, epsilon=4.0, delta=1e-5, **terms)


def order(ledger, action, name, terms):
    present = ledger.policy()
    return Signed(Order(action, name, terms, present.policy.version, present.event)).sign(ANN)


def install(ledger, policy):
    ledger.install(policy, {"ann": ANN.sign(policy.message)})


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """Where the ledger is; it verifies at the end."""
    found = tmp_path / "ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgresql")
    yield found
    assert verify(found, reprice=True).problems == ()


def test_the_whole_life_of_governed_accounts(place):
    """Opened, charged, forecast, refused, raised, frozen with all it contains, retired; every step by order."""
    with Ledger(place) as ledger:
        install(ledger, POLICY)
        accounts = [account("all", scope="federation", overlap=1), account("north", parent="all", currency="plan")]
        blocks = [account(f"east/day[{days})", scope="block") for days in ("..,10", "10,20")]
        opened = [*accounts, *blocks, account("live", currency="gdp")]
        ledger.open_accounts(opened, [order(ledger, "open", a.name, a.terms()) for a in opened])
        plan = {"delta": 1e-6, "noise_at": NoiseAt.SILO}
        ledger.admit("first", "d", {"north": [(STEP, 5)]}, **plan)
        ledger.open_run("first")
        ledger.reserve("t", "first", 0, "train", [Line("live", Unit.RECORD, events.key(STEP), 3)])
        ledger.reserve("u", "first", 0, "train", [Line("north", Unit.RECORD, events.key(STEP), 1)])
        told = {one.account: one for one in ledger.outlooks()}
        assert told["north"].runs == told["all"].runs > 0 < told["live"].runs
        for number in range(told["north"].runs):
            ledger.admit(f"more-{number}", "d", {"north": [(STEP, 5)]}, **plan)
        with pytest.raises(BudgetRefused):
            ledger.admit("over", "d", {"north": [(STEP, 5)]}, **plan)
        assert ledger.history()[-1].kind == "refused"
        install(ledger, dataclasses.replace(POLICY, version=2))
        for name in ("all", "north"):
            limits = {"epsilon": 6.0, "delta": 1e-4}
            ledger.raise_limit(name, **limits, order=order(ledger, "raise", name, limits))
        ledger.admit("over", "d", {"north": [(STEP, 5)]}, **plan)
        ledger.freeze("all", order=order(ledger, "freeze", "all", {"reason": ""}))
        with pytest.raises(BudgetRefused, match="account 'all': is frozen"):
            ledger.reserve("v", "first", 1, "train", [Line("north", Unit.RECORD, events.key(STEP), 1)])
        old, new = ledger.blocks("east").covering("9.9999", "10.0001")
        ledger.retire(old, reason="age", order=order(ledger, "retire", old, {"reason": "age"}))
        with pytest.raises(BudgetRefused, match="is retired"):
            ledger.admit("again", "d", {old: [(STEP, 1)], new: [(STEP, 1)]}, **plan)
        ledger.admit("again", "d", {new: [(STEP, 1)]}, **plan)


def test_of_three_writers_with_one_order_one_carries_it_out(place):
    """And afterwards nobody, whatever has happened in between."""
    limits = {"epsilon": 6.0, "delta": 1e-4}
    with Ledger(place) as ledger:
        install(ledger, POLICY)
        ledger.open_account(account("north"), order(ledger, "open", "north", account("north").terms()))
        install(ledger, dataclasses.replace(POLICY, version=2))
        raised = order(ledger, "raise", "north", limits)
        frozen = order(ledger, "freeze", "north", {"reason": ""})
    refused = []

    def carry_out():
        with Ledger(place) as ledger:
            try:
                ledger.raise_limit("north", **limits, order=raised)
            except SordinoError as error:
                refused.append(error)

    racing = [threading.Thread(target=carry_out) for _ in range(3)]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    assert len(refused) == 2
    with Ledger(place) as ledger:
        assert [entry.kind for entry in ledger.history()].count("limit-changed") == 1
        ledger.freeze("north", order=frozen)
        ledger.thaw("north", order=order(ledger, "thaw", "north", {"reason": ""}))
        with pytest.raises(PrivacyError, match="carried out before"):
            ledger.freeze("north", order=frozen)
