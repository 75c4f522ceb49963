"""Any order of steps, against a model in plain Python that knows nothing of databases, histories or statements."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select, update

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, charging, currencies, schema, scopes, verify
from sordino.privacy import accounting, events
from sordino.privacy.permits import Line, Reservation

MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made below it; what is tested is no disk
DELTA = 1e-5
SIGMA, SCALE = 14.0, 12.0
GAUSS, LAPLACE = events.gaussian(SIGMA), events.laplace(SCALE)
SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": DELTA, "currency": "gdp"}
WORLD = Account("world", epsilon=1.6, scope="federation", **SHARED)
NORTH = Account("north", epsilon=1.2, parent="world", overlap=1, **SHARED)
ACCOUNTS = [
    WORLD,
    NORTH,
    Account("south", epsilon=1.0, parent="world", **SHARED),
    Account("north-1", epsilon=1.0, scope="block", parent="north", **SHARED),
    Account("north-2", epsilon=1.0, scope="block", parent="north", **SHARED),
    Account("rho", epsilon=1.0, **{**SHARED, "currency": "zcdp"}),
    Account("order", epsilon=1.5, order=16.0, **{**SHARED, "currency": "rdp"}),
    Account("pure", epsilon=0.9, **{**SHARED, "currency": "pure", "delta": 0.0}),
    Account("plan", epsilon=1.5, **{**SHARED, "currency": "plan", "delta": 2 * DELTA}),
]
TERMS = {account.name: account for account in ACCOUNTS}
LEAVES = ["south", "north-1", "north-2", "rho", "order", "pure", "plan"]
RUNS = ["one", "two"]


def event_of(name):
    return LAPLACE if name == "pure" else GAUSS


@dataclass
class Charge:
    run: str
    units: dict
    planned: int
    state: str = "reserved"
    drawn: bool = False
    payload: bytes | None = None
    published: bool = False


@dataclass
class Model:
    """Balances as one would keep them on paper."""

    limit: dict = field(default_factory=dict)
    spent: dict = field(default_factory=dict)
    held: dict = field(default_factory=dict)
    allowed: dict = field(default_factory=dict)
    charges: dict = field(default_factory=dict)
    fences: set = field(default_factory=set)

    def worst(self, account, leaves, count):
        """How many releases the worst person of an account pays."""
        if account in leaves:
            return count
        parts = [a.name for a in ACCOUNTS if a.parent == account]
        counts = sorted((self.worst(part, leaves, count) for part in parts), reverse=True)
        return sum(counts[: TERMS[account].overlap])

    def price(self, leaves, count):
        """Units by live account, for a charge of each leaf."""
        payers = [*(leaf for leaf in leaves if leaf != "plan"), "north", "world"]
        counts = {name: self.worst(name, set(leaves), count) for name in payers}
        return {name: currencies.units(events.key(event_of(name)), TERMS[name], n) for name, n in counts.items() if n}

    def fits(self, run, units, planned):
        """Whether all can pay."""
        if any(self.spent[name] + self.held[name] + cost > self.limit[name] for name, cost in units.items()):
            return False
        allowed, used = self.allowed.get(run, 0), sum(c.planned for c in self.charges.values() if self.uses(c, run))
        return used + planned <= allowed

    @staticmethod
    def uses(charge, run):
        return charge.run == run and charge.state != "aborted"

    def reserve(self, txid, charge):
        self.charges[txid] = charge
        for name, cost in charge.units.items():
            self.held[name] += cost

    def settle(self, charge, state):
        charge.state = state
        for name, cost in charge.units.items():
            self.held[name] -= cost
            self.spent[name] += cost if state != "aborted" else 0


PAYABLE = precondition(lambda self: self.model.fences and self.model.limit.keys() & set(LEAVES) - {"plan"})


class Books(RuleBasedStateMachine):
    @initialize(count=st.sampled_from([len(ACCOUNTS), len(ACCOUNTS), 4]))
    def opened(self, count):
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.ledger, self.model = Ledger(self.folder / "ledger.db"), Model()
        self.tickets, self.numbers = {}, itertools.count()
        self.open_many(count)
        self.open_run("one")

    def refuses(self, kind, action):
        """It raises, and leaves the model as it is."""
        with pytest.raises(kind):
            action()

    @rule(name=st.sampled_from(list(TERMS)))
    def open(self, name):
        """Twice is once. A part cannot be opened before what contains it."""
        account, model = TERMS[name], self.model
        if account.parent is not None and account.parent not in model.limit:
            self.refuses(ConfigError, lambda: self.ledger.open_account(account))
            return
        self.ledger.open_account(account)
        if name not in model.limit:
            model.limit[name] = self.ledger.history()[-1].body["limit_units"]
            model.spent[name] = model.held[name] = 0

    def open_many(self, count):
        """Whatever their order, parents first."""
        self.ledger.open_accounts(ACCOUNTS[:count])
        for entry in self.ledger.history():
            self.model.limit[entry.body["name"]] = entry.body["limit_units"]
        self.model.spent = dict.fromkeys(self.model.limit, 0)
        self.model.held = dict.fromkeys(self.model.limit, 0)

    @rule(run=st.sampled_from(RUNS))
    def open_run(self, run):
        self.ledger.open_run(run)
        self.model.fences.add(run)

    @precondition(lambda self: "plan" in self.model.limit)
    @rule(run=st.sampled_from(RUNS), count=st.integers(1, 4))
    def admit(self, run, count):
        """A plan is paid whole; a run has one; two δ are there for two plans."""
        model, before = self.model, self.model.allowed.get(run)

        def admit():
            self.ledger.admit(run, "digest", {"plan": [(GAUSS, count)]}, DELTA, noise_at="silo")

        if before is not None:
            return admit() if before == count else self.refuses(PrivacyError, admit)
        epsilon = accounting.best_epsilon([(GAUSS, count)], DELTA, adjacency=Adjacency.ADD_REMOVE).epsilon
        cost = math.ceil(Fraction(repr(epsilon)) * 10**12)
        if model.spent["plan"] + cost > model.limit["plan"]:
            return self.refuses(BudgetRefused, admit)
        admit()
        model.allowed[run] = count
        model.spent["plan"] += cost
        return None

    @PAYABLE
    @rule(data=st.data(), count=st.sampled_from([1, 1, 2, 5]), blind=st.booleans())
    def reserve(self, data, count, blind):
        self.reserved(data, count, blind=blind)

    @PAYABLE
    @rule(data=st.data(), count=st.sampled_from([1, 1, 2]))
    def reserve_and_draw(self, data, count):
        txid = self.reserved(data, count, blind=False)
        if txid is not None:
            line = self.tickets[txid].lines[0]
            self.tickets[txid].take([line.account], line.key)
            self.model.charges[txid].drawn = True

    def reserved(self, data, count, *, blind):
        """All that contain a leaf pay with it, each for its worst person; or nobody pays."""
        model = self.model
        run = data.draw(st.sampled_from(sorted(model.fences)))
        open_ = sorted(model.limit.keys() & set(LEAVES) - (set() if run in model.allowed or blind else {"plan"}))
        leaves = data.draw(st.lists(st.sampled_from(open_), min_size=1, max_size=4, unique=True))
        txid, planned = f"t{next(self.numbers)}", count * ("plan" in leaves)
        units = model.price(leaves, count)
        lines = [Line(leaf, Unit.RECORD, events.key(event_of(leaf)), count) for leaf in leaves]

        def reserve():
            return self.ledger.reserve(txid, run, None, "train", lines)

        if not model.fits(run, units, planned):
            return self.refuses(BudgetRefused, reserve)
        self.tickets[txid] = reserve()
        model.reserve(txid, Charge(run, units, planned))
        self.refuses(PrivacyError, reserve)  # never twice
        return txid

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), payload=st.sampled_from([b"x", b"x", b"y"]))
    def commit(self, data, payload):
        txid = data.draw(st.sampled_from(sorted(self.tickets)))
        charge = self.model.charges[txid]

        def commit():
            self.ledger.commit(self.tickets[txid], payload)

        if charge.state == "reserved":
            commit()
            self.model.settle(charge, "committed")
            charge.payload = payload
        elif charge.state == "committed" and not charge.published and charge.payload == payload:
            commit()  # once more is nothing
        else:
            self.refuses(PrivacyError, commit)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def abort(self, data):
        """Only what nobody drew is given back."""
        txid = data.draw(st.sampled_from(sorted(self.tickets)))
        charge = self.model.charges[txid]
        if charge.state == "reserved" and not charge.drawn:
            self.ledger.abort(self.tickets[txid])
            self.model.settle(charge, "aborted")
        else:
            self.refuses(PrivacyError, lambda: self.ledger.abort(self.tickets[txid]))

    @precondition(lambda self: self.model.charges)
    @rule(data=st.data())
    def publish(self, data):
        txid = data.draw(st.sampled_from(sorted(self.model.charges)))
        charge = self.model.charges[txid]
        if charge.state == "committed" and charge.run in self.model.fences:
            assert self.ledger.artefact(txid) == (None if charge.published else charge.payload)
            self.ledger.published(txid)
            charge.published = True
        else:
            self.refuses(PrivacyError, lambda: self.ledger.published(txid))

    @rule(run=st.sampled_from(RUNS))
    def forfeit(self, run):
        """What is open counts as spent."""
        if run not in self.model.fences:
            return self.refuses(PrivacyError, lambda: self.ledger.forfeit_open(run))
        mine = {txid for txid, c in self.model.charges.items() if (c.run, c.state) == (run, "reserved")}
        assert set(self.ledger.forfeit_open(run)) == mine
        for txid in mine:
            self.model.settle(self.model.charges[txid], "forfeited")
        return None

    @rule(run=st.sampled_from(RUNS))
    def reopen(self, run):
        """As after a crash: reservations and fences are gone, everything else is as it was."""
        self.ledger.close()
        self.ledger = Ledger(self.folder / "ledger.db")
        self.tickets.clear()
        self.model.fences.clear()
        self.open_run(run)

    @invariant()
    def balances_are_those_of_the_model(self):
        model, table, charge = self.model, schema.account, schema.charge
        with self.ledger._store.read() as db:
            rows = db.execute(select(table.c.name, table.c.limit_units, table.c.spent_units, table.c.held_units)).all()
            states = {row.txid: row.state for row in db.execute(select(charge.c.txid, charge.c.state))}
        assert {name: row for name, *row in rows} == {
            name: [limit, model.spent[name], model.held[name]] for name, limit in model.limit.items()
        }
        assert all(spent + held <= limit for _, limit, spent, held in rows)
        assert states == {txid: charge.state for txid, charge in model.charges.items()}

    def teardown(self):
        if not hasattr(self, "ledger"):
            return
        used = {name: self.ledger.balance(name).epsilon_used for name in self.model.limit}
        self.ledger.close()
        problems = verify(self.folder / "ledger.db", reprice=True).problems
        shutil.rmtree(self.folder)
        assert problems == ()
        self.never_below_the_oracle(used)

    def never_below_the_oracle(self, used):
        """I9: an optimistic privacy loss distribution of what the worst person paid, and the sum of pure ε."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        for name in self.model.limit.keys() - {"plan"}:
            key = events.key(event_of(name))
            one = currencies.units(key, TERMS[name], 1)
            paid = [c.units.get(name, 0) for c in self.model.charges.values() if c.state != "aborted"]
            count = sum(-(-units // one) for units in paid)
            if name == "pure":
                assert used[name] >= count / SCALE - 1e-12
            elif count:
                loss = pld.from_gaussian_mechanism(
                    SIGMA / count**0.5,
                    pessimistic_estimate=False,
                    value_discretization_interval=1e-3,
                    use_connect_dots=False,
                )
                assert used[name] >= loss.get_epsilon_for_delta(DELTA) - 1e-9


TIMES = settings(
    max_examples=20, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
ONCE = settings(TIMES, max_examples=40, phases=[Phase.generate])


def test_every_order_of_steps_keeps_the_books_true():
    run_state_machine_as_test(Books, settings=TIMES)


def refunding(db, txid, run, state, body):
    return SETTLE(db, txid, run, "aborted" if state == "forfeited" else state, body)


def unguarded(db, txid):
    held = update(charging.account).where(charging._filters())
    held = held.values(held_units=charging.account.c.held_units + charging._units())
    return db.execute(held, {"charged": txid}).rowcount


SETTLE = charging.settle
BROKEN = {
    "a forfeit that is a refund": (charging, "settle", refunding),
    "containers that do not pay": (scopes, "payers", lambda *_: []),
    "a charge that looks at no limit": (charging, "hold_units", unguarded),
    "a refund after the draw": (Reservation, "void", lambda _: True),
    "an open run that keeps no fence": (Ledger, "_guard", lambda *_: None),
}


@pytest.mark.parametrize("bug", BROKEN)
def test_the_model_finds_a_broken_ledger(monkeypatch, bug):
    """The test can fail."""
    monkeypatch.setattr(*BROKEN[bug])
    with pytest.raises((AssertionError, pytest.fail.Exception, PrivacyError)):
        run_state_machine_as_test(Books, settings=ONCE)
