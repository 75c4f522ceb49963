"""Drawn cohorts whose silos keep ledgers of their own: each pays the whole plan, and sees a round before its noise."""

from __future__ import annotations

import sqlite3
from collections import Counter

import pytest
from test_two_ledgers import SILOS, TERMS, Stop, places, sound, start, states

from sordino.core.errors import BudgetRefused, PrivacyError, VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.experiment.books import LedgerBooks
from sordino.experiment.silos import SiloBooks
from sordino.ledger import Account, Ledger
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import FILE, SiloLedger
from sordino.privacy.noise import SystemNoise

CLIENTS = """
name = "drawn"
seed = 1
rounds = 3
[[stages]]
clip = { norm = 1.0 }
[data.heart]
[model.logistic]
[privacy]
unit = "client"
noise_at = "coordinator"
noise_multiplier = 1.0
delta = 1e-2
[local]
lr = 0.1
[sampling.poisson]
rate = 0.5
[strategy.fedavg]
"""


def enrolled(home, name, limit):
    account = Account(name, Unit.CLIENT, Adjacency.ADD_REMOVE, limit, 0.05)
    enrol(home / "silos" / name, account, coordinators=[SigningKey.load(home / "coordinator.pem").public])
    rules = home / "silos" / name / FILE
    rules.write_text(rules.read_text().replace('noise_at = ["silo"]', 'noise_at = ["coordinator"]'))


@pytest.fixture
def federation(tmp_path, unwatched):
    """The experiment file, beside the coordinator's key and four silos with a hundred each."""
    del unwatched
    file = tmp_path / "drawn.toml"
    named, _, budget = TERMS.partition("[budget]")
    file.write_text(named + CLIENTS + "[budget]" + budget.replace("100.0", "1000.0").replace("1e-3", "0.5"))
    SigningKey.generate("coordinator").save(tmp_path / "coordinator.pem")
    for name in SILOS:
        enrolled(tmp_path, name, 100.0)
    return file


@pytest.fixture
def draws(monkeypatch):
    """How often noise was drawn for each round."""
    drawn = Counter()
    true = SystemNoise.normal

    def normal(self, permit, std, size):
        drawn[permit.txid] += 1
        return true(self, permit, std, size)

    monkeypatch.setattr(SystemNoise, "normal", normal)
    return drawn


def spent(file):
    found = {}
    for name in SILOS:
        with Ledger(places(file)[name], read_only=True) as ledger:
            found[name] = ledger.balance(name).epsilon_used
    return found


def stopped(file, monkeypatch, number, before=lambda: None):
    """A run that stops where a round would commit; `before` is called before each commit."""
    plan, go = start(file)
    true = SiloBooks.commit

    def commit(self, reservation, artefact):
        if reservation.txid.endswith(f"/{number}"):
            raise Stop
        before()
        true(self, reservation, artefact)

    with monkeypatch.context() as patch:
        patch.setattr(SiloBooks, "commit", commit)
        with pytest.raises(Stop):
            go()
    return plan


def test_each_silo_pays_the_whole_plan(federation, draws):
    """
    At once, drawn or not, and what the coordinator's account of all clients pays; its ledger has a charge a round.
    """
    plan, go = start(federation)
    result = go()

    (claim,) = result.claims
    assert states(federation, plan) == {"": ["committed"] * 3} | {name: ["committed"] for name in SILOS}
    assert list(spent(federation).values()) == [pytest.approx(claim.epsilon)] * 4
    assert (sorted(set(draws.values())), len(draws)) == ([1], 3)
    for name in SILOS:
        with Ledger(places(federation)[name], read_only=True) as ledger:
            (own,) = ledger.claims(plan.run)
        assert (own.account, own.plan, own.events) == (name, plan.digest, claim.events)
    assert sound(federation) == []


def test_a_crash_is_paid_once(federation, draws, monkeypatch):
    """
    The round in progress is forfeited and never drawn again. The silos paid for it already, and pay nothing more.
    """
    plan = stopped(federation, monkeypatch, 1)
    paid = spent(federation)

    start(federation)[1]()

    assert spent(federation) == paid
    assert states(federation, plan)[""] == ["committed", "forfeited", "committed"]
    assert set(draws.values()) == {1}


def test_a_ledger_put_back_to_the_middle_of_a_run_draws_nothing_again(federation, draws, monkeypatch):
    """
    The backup knows that the silos joined, and not what was drawn since. They have seen every round before its noise.
    """
    ledger, backup = federation.parent / "federation.db", federation.parent / "backup.db"

    def copied():
        if not backup.exists():
            with sqlite3.connect(ledger) as here, sqlite3.connect(backup) as there:
                here.backup(there)

    stopped(federation, monkeypatch, 2, copied)
    for file in federation.parent.glob("federation.db*"):
        file.unlink()
    backup.rename(ledger)
    drawn = dict(draws)

    with pytest.raises(VerificationError, match="rolled back"):
        start(federation)[1]()

    assert draws == drawn


def test_what_a_silo_cannot_pay_does_not_run(federation, draws):
    """
    Whatever the coordinator's account of all clients has left; and no other silo is charged.
    """
    for file in (federation.parent / "silos" / "hungary").iterdir():
        file.unlink()
    enrolled(federation.parent, "hungary", 0.5)

    with pytest.raises(BudgetRefused, match="silo 'hungary'"):
        start(federation)[1]()

    assert (not draws, set(spent(federation).values())) == (True, {0.0})


def test_claims_that_differ_end_the_run(federation, monkeypatch):
    """
    A silo that paid for less than all rounds is found.
    """
    monkeypatch.setattr(SiloLedger, "grant_whole", lambda *_: None)
    with pytest.raises(VerificationError, match="claimed otherwise"):
        start(federation)[1]()


def test_silos_cannot_join_a_run_that_began_without_them(federation, monkeypatch):
    """
    They would pay for what they did not consent to.
    """

    def stop(*_):
        raise Stop

    text = federation.read_text()
    federation.write_text(text.partition("[enforcement]")[0])
    with monkeypatch.context() as patch:
        patch.setattr(LedgerBooks, "published", stop)
        with pytest.raises(Stop):
            start(federation)[1]()
    federation.write_text(text)
    with pytest.raises(PrivacyError, match="without its silos' consent"):
        start(federation)[1]()
