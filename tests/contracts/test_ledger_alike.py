"""I14: SQLite and PostgreSQL give the same answers for the same history, to the last hash."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from datetime import datetime

import pytest

from sordino.core.errors import BudgetRefused, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, history, notes, verify
from sordino.ledger.export import export, verify_export
from sordino.ledger.keys import SigningKey
from sordino.ledger.officers import Order, Signed
from sordino.ledger.policy import Policy
from sordino.ledger.witnesses import Witness
from sordino.privacy import events
from sordino.privacy.permits import Line

ANN, OWNER, SILO = (SigningKey.generate(name) for name in ("ann", "coordinator", "clinic"))
STEP = events.gaussian(8.0)
KEY = events.key(STEP)
POLICY = Policy.parse(f"""
name = "hearts"
version = 1
silos_per_person = 1
[officers]
ann = "{ANN.public}"
[may]
{"".join(f'{verb} = {{ officers = ["ann"] }}' + chr(10) for verb in ("open", "raise", "freeze", "thaw", "retire"))}
""")
SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 2.0, "delta": 1e-5}
ACCOUNTS = [
    Account("welt", scope="federation", currency="gdp", overlap=1, **SHARED),
    Account("Ärzte", parent="welt", currency="gdp", **SHARED),
    Account("Zürich", parent="welt", currency="gdp", **SHARED),
    Account("b", currency="zcdp", **SHARED),
    Account("plan", **SHARED),
]


ORDERS = {}


class Still(datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz=None):
        return datetime(2026, 1, 1, tzinfo=tz)


def order(ledger, action, name, terms):
    """Each is signed once: an order is unique, and both ledgers obey the same one."""
    present = ledger.policy()
    if (action, name) not in ORDERS:
        ORDERS[action, name] = Signed(Order(action, name, terms, present.policy.version, present.event)).sign(ANN)
    return ORDERS[action, name]


def life(ledger, witness):
    """Everything that a ledger can be asked to do, once."""
    ledger.install(POLICY, {"ann": ANN.sign(POLICY.message)})
    ledger.open_accounts(ACCOUNTS, [order(ledger, "open", a.name, a.terms()) for a in ACCOUNTS])
    ledger.admit("run", "digest", {"plan": [(STEP, 3)]}, 1e-5, noise_at="silo")
    ledger.open_run("run")
    lines = [Line(name, Unit.RECORD, KEY, 1) for name in ("Ärzte", "Zürich", "b", "plan")]
    first, second, third = (ledger.reserve(f"t{n}", "run", n, "train", lines) for n in range(3))
    ledger.commit(first, b"bytes")
    ledger.published("t0")
    ledger.abort(second)
    ledger.forfeit_open("run")
    with contextlib.suppress(PrivacyError):
        ledger.commit(third, b"late")
    with pytest.raises(BudgetRefused):
        ledger.reserve("t3", "run", 3, "query", [Line("b", Unit.RECORD, KEY, 900)])
    newer = dataclasses.replace(POLICY, version=2)
    ledger.install(newer, {"ann": ANN.sign(newer.message)})
    terms = {"epsilon": 3.0, "delta": 1e-5}
    ledger.raise_limit("b", **terms, order=order(ledger, "raise", "b", terms))
    ledger.freeze("b", reason="audit", order=order(ledger, "freeze", "b", {"reason": "audit"}))
    with pytest.raises(BudgetRefused):
        ledger.reserve("t4", "run", 4, "query", [Line("b", Unit.RECORD, KEY, 1)])
    ledger.thaw("b", reason="", order=order(ledger, "thaw", "b", {"reason": ""}))
    ledger.retire("b", reason="", order=order(ledger, "retire", "b", {"reason": ""}))
    growth = ledger.growth(0)
    ledger.witnessed(growth.note, witness.see(growth.note, growth.proof), SILO.public)


def told(ledger):
    """All its answers."""
    names = [account.name for account in ledger.accounts()]
    return {
        "accounts": ledger.accounts(),
        "balances": [ledger.balance(name) for name in names],
        "charges": ledger.charges("run"),
        "claims": ledger.claims("run"),
        "history": ledger.history(),
        "artefact": ledger.artefact("t0"),
    }


def test_the_same_history_has_the_same_hash(tmp_path, postgresql, monkeypatch):
    """With one clock, both databases hold the same events, and answer the same to every question."""
    answers = []
    monkeypatch.setattr(notes, "datetime", Still)  # the second of a countersignature
    for place in (tmp_path / "ledger.db", postgresql):
        seconds = itertools.count()
        monkeypatch.setattr(history, "now", lambda seconds=seconds: f"2026-01-01T00:00:00.{next(seconds):06}+00:00")
        memory = tmp_path / f"{len(answers)}.jsonl"
        with Ledger(place, key=OWNER) as ledger:
            life(ledger, Witness(memory, SILO, [OWNER.public]))
            answers.append(told(ledger))
        report = verify(place, keys=[OWNER.public], silos=[SILO.public], reprice=True)
        assert report.problems == ()
        out = tmp_path / f"{len(answers)}.json"
        export(place, out)
        assert verify_export(out, keys=[OWNER.public]).ok
    for one, other in zip(*(answer["history"] for answer in answers), strict=True):
        assert one == other
    assert answers[0] == answers[1]
    assert len(answers[0]["history"]) > 20
