"""What every ledger must do, whatever database it stands on. The factory names the databases."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sqlite3
import subprocess
import threading

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Claim, Ledger, charging, pricing, transaction, verify
from sordino.privacy import accounting, events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise, SystemNoise
from sordino.privacy.permits import Line

STEP = events.poisson(0.05, events.gaussian(1.5))
KEY = events.key(STEP)
BIT = events.gaussian(10.0)
DELTA = 1e-5


def account(name="silo", epsilon=8.0, currency="plan", **changes):
    order = 8.0 if currency == "rdp" else None
    terms = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": DELTA, "order": order}
    return Account(name=name, epsilon=epsilon, currency=currency, **{**terms, **changes})


def lines(*names, count=1, key=KEY):
    return [Line(name, Unit.RECORD, key, count) for name in names]


class Factory:
    """Opens one and the same ledger any number of times: `factory()`; `factory.place` for verification."""

    busy = ""
    full = ""

    def __init__(self, place):
        self.place, self.opened = place, []

    def __call__(self, **options):
        ledger = Ledger(self.place, **options)
        self.opened.append(ledger)
        return ledger

    def check(self):
        report = verify(self.place)
        assert report.problems == ()
        return report


class OnSQLite(Factory):
    busy, full = "database is locked", "full"

    @contextlib.contextmanager
    def locked(self):
        """Another process that writes, and does not end."""
        other = sqlite3.connect(self.place, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
        other.close()

    def unchecked(self, ledger):
        """Without the tables' CHECKs."""
        with ledger._store.engine.connect() as db:
            db.exec_driver_sql("PRAGMA ignore_check_constraints = ON")

    def fill(self, ledger):
        """No room for another page."""
        with ledger._store.engine.connect() as db:
            db.exec_driver_sql("PRAGMA max_page_count = 1")


class OnPostgreSQL(Factory):
    busy, full = "lock timeout", "could not (extend|write)"

    @contextlib.contextmanager
    def connected(self):
        import psycopg

        with contextlib.closing(psycopg.connect(self.place, autocommit=True)) as other:
            yield other

    @contextlib.contextmanager
    def locked(self):
        with self.connected() as other, other.transaction(force_rollback=True):
            other.execute("SELECT seq FROM head FOR UPDATE")
            yield

    def unchecked(self, ledger):
        with self.connected() as other, other.transaction():
            other.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")
            names = "SELECT conname FROM pg_constraint WHERE conrelid = 'account'::regclass AND contype = 'c'"
            for (name,) in other.execute(names).fetchall():
                other.execute(f"ALTER TABLE account DROP CONSTRAINT {name}")

    def fill(self, ledger):
        """The server's process may let no file grow beyond three million bytes."""
        from private_postgresql import owner

        with ledger._store.engine.connect() as db:
            pid = db.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        subprocess.run(["prlimit", "--pid", str(pid), "--fsize=3000000:"], check=True, **owner())


@pytest.fixture(params=["sqlite", "postgresql"])
def factory(request, tmp_path):
    """The ledger's database: every test below holds on both."""
    if request.param == "sqlite":
        made = OnSQLite(tmp_path / "ledger.db")
    else:
        made = OnPostgreSQL(request.getfixturevalue("postgresql"))
    yield made
    for ledger in made.opened:
        ledger.close()


@pytest.fixture
def ledger(factory):
    return factory()


def ready(ledger, run="run", names=("silo",), count=10, **terms):
    """Accounts that admitted a plan of `count` steps, and the run open."""
    ledger.open_accounts(account(name, **terms) for name in names)
    ledger.admit(run, "digest", {name: [(STEP, count)] for name in names}, DELTA, noise_at="silo")
    ledger.open_run(run)
    return ledger


def charged(ledger):
    """The history without what was refused."""
    return [entry for entry in ledger.history() if entry.kind != "refused"]


def released(ledger, txid, run="run", names=("silo",), payload=b"noised"):
    reservation = ledger.reserve(txid, run, 0, "train", lines(*names))
    ledger.commit(reservation, payload)


class TestAccounts:
    def test_terms_never_change(self, ledger):
        """Opening again with the same terms is nothing; with a higher limit it is refused."""
        ledger.open_account(account())
        ledger.open_account(account())
        with pytest.raises(PrivacyError, match="other terms"):
            ledger.open_account(account(epsilon=9.0))
        assert ledger.accounts() == [account()]

    def test_many_accounts_open_together_or_not_at_all(self, ledger):
        """A contradiction at the end of the list opens none of them."""
        with pytest.raises(PrivacyError):
            ledger.open_accounts([account("a"), account("b"), account("b", epsilon=1.0)])
        assert ledger.accounts() == []

    def test_an_unknown_account_names_the_nearest(self, ledger):
        """A misspelt account is an error that helps."""
        ledger.open_account(account())
        with pytest.raises(ConfigError, match="did you mean 'silo'"):
            ledger.balance("sillo")

    def test_a_filter_without_room_is_not_opened(self, ledger):
        """An order whose conversion alone exceeds epsilon would refuse every release; it says so at opening."""
        with pytest.raises(ConfigError, match="higher order"):
            ledger.open_account(account(currency="rdp", order=1.5))

    def test_a_filters_limit_is_the_largest_that_converts_within_epsilon(self, ledger):
        """One more unit would exceed the limit; so the filter is neither loose nor wasteful."""
        ledger.open_account(account(currency="rdp", epsilon=3.0))
        units = ledger.history()[-1].body["limit_units"]
        assert accounting.rdp_to_epsilon(units / 1e12, 8.0, DELTA) <= 3.0
        assert accounting.rdp_to_epsilon((units + 10) / 1e12, 8.0, DELTA) > 3.0


class TestAdmit:
    def test_a_plan_is_charged_whole_before_its_first_release(self, ledger):
        """The account pays the price of all events together; nothing was released yet."""
        ready(ledger)
        price = accounting.best_epsilon([(STEP, 10)], DELTA, adjacency=Adjacency.ADD_REMOVE)
        balance = ledger.balance("silo")
        assert balance.epsilon_used == pytest.approx(price.epsilon, abs=2e-12)
        assert balance.epsilon_used >= price.epsilon - 1e-15
        assert (balance.delta_used, balance.delta_left) == (DELTA, 0.0)
        assert (balance.held, balance.committed, balance.forfeited) == (0, 0, 0)

    def test_the_same_plan_again_is_one_charge(self, ledger):
        """A retry after a crash gets the earlier outcome."""
        ready(ledger)
        before = ledger.history(), ledger.balance("silo")
        ledger.admit("run", "digest", {"silo": [(STEP, 4), (STEP, 6)]}, DELTA, noise_at="silo")
        assert (ledger.history()[:-1], ledger.balance("silo")) == (before[0][:-1], before[1])

    @pytest.mark.parametrize(
        ("digest", "count", "delta"), [("other", 10, DELTA), ("digest", 11, DELTA), ("digest", 10, 1e-6)]
    )
    def test_another_plan_for_the_same_run_is_refused(self, ledger, digest, count, delta):
        """Neither the digest nor what stands behind it may change."""
        ready(ledger)
        with pytest.raises(PrivacyError, match="another plan"):
            ledger.admit("run", digest, {"silo": [(STEP, count)]}, delta, noise_at="silo")

    def test_one_poor_account_stops_all_and_the_refusal_says_what_fits(self, ledger, factory):
        """I4: no account pays if the last cannot; need, left and fit are named, and the fit is true."""
        ledger.open_accounts([account("a"), account("b"), account("z", epsilon=0.5)])
        before = charged(ledger)
        with pytest.raises(BudgetRefused, match=r"account 'z': .*epsilon=.* 0.5 of 0.5 is left; (\d+) of 400") as error:
            ledger.admit("run", "digest", {name: [(STEP, 400)] for name in "abz"}, DELTA, noise_at="silo")
        assert error.value.exit_code == 3
        assert charged(ledger) == before
        assert {ledger.balance(name).epsilon_used for name in "abz"} == {0.0}
        fits = int(str(error.value).split("; ")[1].split()[0])
        cost = [
            accounting.best_epsilon([(STEP, n)], DELTA, adjacency=Adjacency.ADD_REMOVE).epsilon
            for n in (fits, fits + 1)
        ]
        assert cost[0] <= 0.5 < cost[1]
        factory.check()

    def test_plans_add_up(self, ledger):
        """Basic composition: a second plan pays on top of the first, in epsilon and in delta."""
        ledger.open_account(account(delta=2e-5))
        for run in ("one", "two"):
            ledger.admit(run, "digest", {"silo": [(STEP, 10)]}, DELTA, noise_at="silo")
        one, two = (ledger.claim(run, "silo").epsilon for run in ("one", "two"))
        assert ledger.balance("silo").epsilon_used == pytest.approx(one + two)
        with pytest.raises(BudgetRefused, match="needs delta=1e-05 and 0 is left"):
            ledger.admit("three", "digest", {"silo": [(STEP, 1)]}, DELTA, noise_at="silo")

    def test_a_live_filter_admits_no_plan(self, ledger):
        """Its releases are charged one by one, so charging a plan as well would be double."""
        ledger.open_account(account(currency="rdp"))
        with pytest.raises(ConfigError, match="release by release"):
            ledger.admit("run", "digest", {"silo": [(STEP, 1)]}, DELTA, noise_at="silo")

    @pytest.mark.parametrize("delta", [0.0, -1e-5, float("nan"), float("inf"), 1.0])
    def test_a_senseless_delta_is_refused(self, ledger, delta):
        """I8: zero, negative, NaN and infinity are no probabilities."""
        ledger.open_account(account())
        with pytest.raises(ConfigError):
            ledger.admit("run", "digest", {"silo": [(STEP, 1)]}, delta, noise_at="silo")

    @pytest.mark.parametrize("count", [0, -1, float("nan"), 0.5])
    def test_a_senseless_count_is_refused(self, ledger, count):
        """I8: a charge of none, or less, is no charge."""
        ready(ledger)
        with pytest.raises((ConfigError, ValueError)):
            ledger.admit("other", "digest", {"silo": [(STEP, count)]}, DELTA, noise_at="silo")
        with pytest.raises((ConfigError, ValueError)):
            ledger.reserve("t", "run", 0, "train", lines("silo", count=count))
        assert ledger.charges("run") == []


class TestReserve:
    def test_a_reservation_covers_exactly_what_was_charged(self, ledger):
        """As many permits as releases, whatever the order of the lines; one more is refused."""
        ready(ledger)
        reservation = ledger.reserve("t", "run", 3, "train", [*lines("silo"), *lines("silo")])
        for _ in range(2):
            reservation.take(["silo"], KEY)
        with pytest.raises(PrivacyError, match="another release"):
            reservation.take(["silo"], KEY)
        (charge,) = ledger.charges("run")
        assert (charge.round, charge.state, charge.lines) == (3, "reserved", tuple(lines("silo", count=2)))

    def test_the_charge_is_durable_before_the_reservation_exists(self, ledger, factory):
        """Another process sees the charge as soon as the caller holds the reservation."""
        ready(ledger)
        ledger.reserve("t", "run", 0, "train", lines("silo"))
        assert factory(read_only=True).state("t") == "reserved"
        assert factory(read_only=True).balance("silo").held == 1

    @pytest.mark.parametrize("currency", ["plan", "rdp"])
    def test_a_refused_charge_leaves_no_line(self, ledger, factory, currency):
        """I4: the poor account is the last one; charges and balances stay; the history only tells of a refusal."""
        names = ("a", "z")
        if currency == "plan":
            ledger.open_accounts(map(account, names))
            ledger.admit("run", "digest", {"a": [(STEP, 9)], "z": [(STEP, 2)]}, DELTA, noise_at="silo")
        else:
            cost = accounting.rdp_units(STEP, 8.0, Adjacency.ADD_REMOVE)
            poor = accounting.rdp_to_epsilon(2.5 * cost, 8.0, DELTA)
            ledger.open_accounts([account("a", currency="rdp"), account("z", currency="rdp", epsilon=poor)])
        ledger.open_run("run")
        before = charged(ledger), ledger.balance("a"), ledger.balance("z")
        with pytest.raises(BudgetRefused, match=r"account 'z': .* left.*; 2 .*would fit"):
            ledger.reserve("t", "run", 0, "train", lines(*names, count=3))
        assert (charged(ledger), ledger.balance("a"), ledger.balance("z")) == before
        assert ledger.state("t") is None
        ledger.reserve("t", "run", 0, "train", lines(*names, count=2))
        factory.check()

    def test_only_what_the_plan_lists_can_be_reserved(self, ledger):
        """Another event, another account or a run without a plan is not covered by the charge of the plan."""
        ready(ledger)
        ledger.open_account(account("other"))
        with pytest.raises(BudgetRefused, match="no such release"):
            ledger.reserve("t", "run", 0, "train", lines("silo", key=events.key(BIT)))
        with pytest.raises(BudgetRefused, match="admit the plan first"):
            ledger.reserve("t", "run", 0, "train", lines("silo", "other"))

    def test_a_line_protects_the_accounts_unit(self, ledger):
        """A record-level release is never charged to an account about clients."""
        ready(ledger)
        with pytest.raises(PrivacyError, match="protects a record"):
            ledger.reserve("t", "run", 0, "train", [Line("silo", Unit.CLIENT, KEY, 1)])

    @pytest.mark.parametrize(
        ("finish", "message"), [("none", "reserved"), ("commit", "artefact"), ("forfeit", "forfeited")]
    )
    def test_no_charge_is_drawn_twice(self, ledger, finish, message):
        """I5, I7: the same txid never gives a second reservation; a committed one points to its bytes."""
        ready(ledger)
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        if finish == "commit":
            ledger.commit(reservation, b"x")
        if finish == "forfeit":
            ledger.forfeit_open("run")
        before = ledger.history()
        for _ in range(5):
            with pytest.raises(PrivacyError, match=message):
                ledger.reserve("t", "run", 0, "train", lines("silo"))
        assert ledger.history() == before

    def test_senseless_arguments_are_refused(self, ledger):
        """No lines, no txid or an unknown purpose is a mistake of the caller."""
        ready(ledger)
        with pytest.raises(ConfigError):
            ledger.reserve("t", "run", 0, "train", [])
        with pytest.raises(ConfigError):
            ledger.reserve("", "run", 0, "train", lines("silo"))
        with pytest.raises(ConfigError, match="did you mean 'train'"):
            ledger.reserve("t", "run", 0, "trian", lines("silo"))

    def test_the_noise_generator_waits_for_a_reservation(self, ledger):
        """I6: a refused charge gives nothing to draw with, and a poisoned generator is never touched."""

        class Poisoned(SystemNoise):
            def normal(self, permit, std, size):
                raise AssertionError("drawn")

        ready(ledger, count=1)
        ledger.reserve("t", "run", 0, "train", lines("silo"))
        with pytest.raises(BudgetRefused):
            Door(None, STEP, ("silo",), ledger.reserve("u", "run", 1, "train", lines("silo")), Poisoned())

    def test_test_accounts_mark_everything(self, ledger):
        """Seeded noise draws under a test account only; reservation, charge and claim say TEST."""
        ready(ledger, test=True)
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        assert SeededNoise(1).normal(reservation.take(["silo"], KEY), 1.0, 3).shape == (3,)
        assert reservation.test
        assert ledger.charges("run")[0].test
        assert ledger.claim("run", "silo").test
        ready(ledger, run="real", names=("real",))
        with pytest.raises(PrivacyError, match="seeded"):
            SeededNoise(1).normal(ledger.reserve("u", "real", 0, "train", lines("real")).take(["real"], KEY), 1.0, 3)

    def test_test_and_real_accounts_never_share_a_charge(self, ledger):
        """One reservation has one flag, so a mixed one would let seeded noise out or hide a TEST."""
        ready(ledger, test=True)
        ledger.open_account(account("real"))
        with pytest.raises(PrivacyError, match="mixes"):
            ledger.reserve("t", "run", 0, "train", lines("silo", "real"))

    def test_a_thousand_accounts_are_one_transaction(self, ledger, factory):
        """One event of the history for all of them."""
        names = [f"silo-{n}" for n in range(1000)]
        ready(ledger, names=names)
        before = len(ledger.history())
        released(ledger, "t", names=names)
        assert len(ledger.history()) == before + 2
        assert len(ledger.claims("run")) == 1000
        factory.check()


class TestCommit:
    def test_the_bytes_survive_a_restart_and_leave_once(self, ledger, factory):
        """After a restart the same bytes are published; then they are dropped, and their digest stays."""
        ready(ledger)
        released(ledger, "t", payload=b"the same bytes")
        ledger.close()
        again = factory()
        assert again.artefact("t") == b"the same bytes"
        again.open_run("run")
        for _ in range(2):
            again.published("t")
        assert again.artefact("t") is None
        assert again.state("t") == "committed"
        assert factory.check().counts["published"] == 1

    def test_a_retried_commit_is_one_commit(self, ledger):
        """I5: the same bytes again change nothing; other bytes would be a second release."""
        ready(ledger)
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        for _ in range(3):
            ledger.commit(reservation, b"x")
        assert [entry.kind for entry in ledger.history()].count("committed") == 1
        with pytest.raises(PrivacyError, match="committed already"):
            ledger.commit(reservation, b"y")
        assert ledger.artefact("t") == b"x"

    def test_nothing_is_published_without_a_commit(self, ledger):
        """I2: neither an unknown nor a reserved charge can be marked published."""
        ready(ledger)
        ledger.reserve("t", "run", 0, "train", lines("silo"))
        for txid in ("t", "unknown"):
            with pytest.raises(PrivacyError, match="not committed"):
                ledger.published(txid)
            assert ledger.artefact(txid) is None

    @pytest.mark.parametrize("currency", ["plan", "rdp"])
    def test_a_crash_wastes_budget_and_never_overspends_it(self, ledger, factory, currency):
        """I7: what was reserved and not committed counts as spent, and cannot be committed any more."""
        if currency == "plan":
            ready(ledger)
        else:
            ledger.open_account(account(currency="rdp"))
            ledger.open_run("run")
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        used = ledger.balance("silo").epsilon_used
        restarted = factory()
        restarted.open_run("run")
        assert restarted.forfeit_open("run") == ["t"]
        assert restarted.forfeit_open("run") == []
        balance = restarted.balance("silo")
        assert (balance.epsilon_used, balance.held, balance.forfeited) == (used, 0, 1)
        assert restarted.claim("run", "silo").events == ((KEY, 1),)
        with pytest.raises(PrivacyError):
            ledger.commit(reservation, b"x")
        factory.check()


class TestFence:
    def test_a_replaced_owner_can_do_nothing(self, ledger, factory):
        """A resumed old coordinator neither reserves, commits, publishes nor forfeits."""
        ready(ledger)
        old = ledger.reserve("old", "run", 0, "train", lines("silo"))
        newer = factory()
        assert newer.open_run("run") == 2
        new = newer.reserve("new", "run", 1, "train", lines("silo"))
        for attempt in (
            lambda: ledger.commit(old, b"x"),
            lambda: ledger.reserve("more", "run", 2, "train", lines("silo")),
            lambda: ledger.forfeit_open("run"),
        ):
            with pytest.raises(PrivacyError, match="taken over"):
                attempt()
        newer.commit(new, b"y")
        with pytest.raises(PrivacyError, match="taken over"):
            ledger.published("new")
        assert (newer.state("old"), newer.state("new")) == ("reserved", "committed")

    def test_a_run_is_opened_before_it_is_charged(self, ledger):
        """Without a fence nobody could be replaced."""
        ledger.open_account(account())
        ledger.admit("run", "digest", {"silo": [(STEP, 1)]}, DELTA, noise_at="silo")
        with pytest.raises(PrivacyError, match="open_run"):
            ledger.reserve("t", "run", 0, "train", lines("silo"))

    def test_every_opened_run_is_listed(self, ledger):
        """By name, each once, however often it was restarted."""
        for run in ("b", "a", "b"):
            ledger.open_run(run)
        assert ledger.runs() == ["a", "b"]

    def test_a_reservation_belongs_to_the_object_that_made_it(self, ledger, factory):
        """Another ledger, even on the same file, does not commit it."""
        ready(ledger)
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        with pytest.raises(PrivacyError, match="not reserved by this ledger"):
            factory().commit(reservation, b"x")


class TestClaims:
    def test_a_stopped_plan_claims_the_whole_plan(self, ledger):
        """When to stop may depend on what was seen, so the guarantee is the plan's; the progress is smaller."""
        ready(ledger, count=3)
        claim = ledger.claim("run", "silo")
        assert (claim.events, claim.spent_so_far, claim.complete) == ((), 0.0, False)
        for n in range(3):
            released(ledger, f"t{n}")
            now = ledger.claim("run", "silo")
            assert now.epsilon == claim.epsilon
            assert (now.events, now.complete) == (((KEY, n + 1),), n == 2)
            assert now.spent_so_far == ledger.spent("run", "silo")
        assert now.spent_so_far == now.epsilon
        assert (now.planned, now.plan, now.delta) == (((KEY, 3),), "digest", DELTA)

    def test_reserved_committed_and_forfeited_all_count(self, ledger):
        """Whatever may have been drawn is in the claim."""
        ready(ledger)
        released(ledger, "committed")
        ledger.reserve("forfeited", "run", 1, "train", lines("silo"))
        ledger.forfeit_open("run")
        ledger.reserve("reserved", "run", 2, "train", lines("silo"))
        assert ledger.claim("run", "silo").events == ((KEY, 3),)

    def test_a_live_filter_claims_its_limit(self, ledger):
        """Only the limit is proved for releases chosen as one goes; what was spent is shown beside it."""
        ledger.open_account(account(currency="rdp", epsilon=4.0))
        ledger.open_run("run")
        released(ledger, "t")
        claim = ledger.claim("run", "silo")
        cost = accounting.rdp_units(STEP, 8.0, Adjacency.ADD_REMOVE)
        assert (claim.epsilon, claim.plan, claim.complete) == (4.0, None, False)
        assert claim.spent_so_far == pytest.approx(accounting.rdp_to_epsilon(cost, 8.0, DELTA), abs=1e-9)

    def test_a_claim_carries_the_ledgers_hash(self, ledger, factory):
        """The hash lies in the history for ever, so a rolled-back ledger is found out."""
        ready(ledger)
        seen = ledger.claim("run", "silo").ledger_sha256
        assert seen == ledger.history()[-1].hash
        released(ledger, "t")
        assert verify(factory.place, expect=[seen]).ok
        assert not verify(factory.place, expect=["f" * 64]).ok

    def test_claims_come_by_account_and_only_for_those_who_paid(self, ledger):
        """A run is silent about accounts it did not touch."""
        ready(ledger, names=("b", "a"))
        ledger.open_account(account("c"))
        assert [claim.account for claim in ledger.claims("run")] == ["a", "b"]
        with pytest.raises(PrivacyError, match="paid nothing"):
            ledger.claim("run", "c")
        assert isinstance(ledger.claims("run")[0], Claim)

    def test_progress_prices_each_list_of_events_once(self, ledger, monkeypatch):
        """A thousand accounts with the same events, asked over and over, cost one call of the accountant."""
        calls = []
        pricing.price.cache_clear()  # the other database's turn asked the same
        real = accounting.best_epsilon
        monkeypatch.setattr(accounting, "best_epsilon", lambda *a, **k: calls.append(a) or real(*a, **k))
        names = [f"n{n}" for n in range(50)]
        ready(ledger, names=names, count=77, adjacency=Adjacency.ZERO_OUT)
        released(ledger, "t", names=names)
        for _ in range(3):
            ledger.claims("run")
            ledger.spent("run", "n7")
        assert len(calls) == 2  # the plan, and one step of it


class TestTransaction:
    def test_the_same_release_has_the_same_name(self):
        """Deterministic, and different for every part of what it is for."""
        parts = [("r", 0, "train", "d"), ("s", 0, "train", "d"), ("r", 1, "train", "d"), ("r", 0, "metric", "d")]
        assert len({transaction(*part) for part in parts}) == 4
        assert transaction(*parts[0], "silo", 3) == transaction(*parts[0], "silo", 3) != transaction(*parts[0])


# Every example writes durably, so there are few and a failing one is not shrunk.
FEW = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
GAUSSIANS = st.tuples(st.sampled_from([0.05, 1.0]), st.sampled_from([1.0, 2.5]), st.integers(1, 30))
NUMBER = itertools.count()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request, tmp_path_factory):
    """A ledger that all examples of a property share: its place, and the ledger open."""
    if request.param == "sqlite":
        place = tmp_path_factory.mktemp("shared") / "ledger.db"
    else:
        place = request.getfixturevalue("postgresql_server").fresh()
    with Ledger(place) as ledger:
        yield place, ledger


class Life:
    """Steps that a coordinator may take in any order, against a plan of four releases and a filter of a few."""

    def __init__(self, place, n):
        self.place, self.names, self.run = place, (f"x{n}", f"y{n}"), f"r{n}"
        self.waiting = []
        self.ledger = Ledger(place)
        self.ledger.open_accounts([account(self.names[0]), account(self.names[1], 1.5, "rdp")])
        self.ledger.admit(self.run, "digest", {self.names[0]: [(STEP, 4)]}, DELTA, noise_at="silo")
        self.ledger.open_run(self.run)

    def reserve(self, count=1):
        with contextlib.suppress(BudgetRefused):
            txid = f"{self.run}/{len(self.ledger.history())}"
            self.waiting.append(self.ledger.reserve(txid, self.run, 0, "train", lines(*self.names, count=count)))

    def reserve_many(self):
        self.reserve(count=5)

    def commit(self):
        if self.waiting:
            self.ledger.commit(self.waiting.pop(), b"x")

    def publish(self):
        for charge in self.ledger.charges(self.run):
            if charge.state == "committed":
                self.ledger.published(charge.txid)

    def forfeit(self):
        self.waiting.clear()
        self.ledger.forfeit_open(self.run)

    def restart(self):
        self.ledger.close()
        self.waiting.clear()
        self.ledger = Ledger(self.place)
        self.ledger.open_run(self.run)


class TestProperties:
    @FEW
    @given(plan=st.lists(GAUSSIANS, min_size=1, max_size=2))
    def test_the_ledger_never_says_less_than_dp_accounting(self, shared, plan):
        """I9: a claim lies above an optimistic privacy loss distribution of the same events; a filter's units
        above RDP at its order.
        """
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import privacy_loss_distribution as pld
        from dp_accounting.rdp import RdpAccountant

        _, ledger = shared
        n = next(NUMBER)
        ledger.open_accounts([account(f"p{n}", 1000.0), account(f"f{n}", 1000.0, "rdp")])
        listed = [(events.poisson(rate, events.gaussian(sigma)), count) for rate, sigma, count in plan]
        ledger.admit(f"p{n}", "digest", {f"p{n}": listed}, DELTA, noise_at="silo")
        ledger.open_run(f"f{n}")
        ledger.reserve(f"f{n}", f"f{n}", 0, "train", [Line(f"f{n}", Unit.RECORD, events.key(e), c) for e, c in listed])

        oracle = RdpAccountant([8.0], NeighboringRelation.ADD_OR_REMOVE_ONE)
        losses = []
        for (rate, sigma, count), (event, _) in zip(plan, listed, strict=True):
            one = pld.from_gaussian_mechanism(
                sigma,
                sampling_prob=rate,
                pessimistic_estimate=False,
                value_discretization_interval=1e-3,
                use_connect_dots=False,
            )
            losses.append(one.self_compose(count))
            oracle.compose(event, count)
        loss = functools.reduce(lambda one, other: one.compose(other), losses)
        assert ledger.claim(f"p{n}", f"p{n}").epsilon >= loss.get_epsilon_for_delta(DELTA) - 1e-9
        units = sum(line[2] for line in ledger.history()[-1].body["lines"])
        assert units / 1e12 >= oracle.rdp[0] * (1 - 1e-12)

    @FEW
    @given(
        steps=st.lists(
            st.sampled_from(["reserve", "reserve_many", "commit", "publish", "forfeit", "restart"]), max_size=12
        )
    )
    def test_any_prefix_of_any_history_agrees_with_itself(self, shared, steps):
        """I1, I3: whatever the order of steps, balances equal the replay and no limit is broken."""
        place, _ = shared
        life = Life(place, next(NUMBER))
        for step in steps:
            getattr(life, step)()
        for name in life.names:
            balance = life.ledger.balance(name)
            assert balance.epsilon_used <= balance.epsilon_limit
        life.ledger.close()
        assert verify(place).problems == ()


class TestFaults:
    def test_a_locked_database_refuses_in_one_line(self, factory):
        """I15: another process holds the write lock for too long; nothing is written."""
        ledger = ready(factory(busy_s=0.05))
        refused = pytest.raises(PrivacyError, match=rf"{factory.busy}.*nothing was released")
        with factory.locked(), refused as error:
            ledger.reserve("t", "run", 0, "train", lines("silo"))
        assert "\n" not in str(error.value)
        assert ledger.state("t") is None
        ledger.reserve("t", "run", 0, "train", lines("silo"))

    def test_a_commit_that_fails_can_be_tried_again(self, factory):
        """The charge stays reserved, so the same bytes are committed when the lock is gone."""
        ledger = ready(factory(busy_s=0.05))
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        with factory.locked(), pytest.raises(PrivacyError, match=factory.busy):
            ledger.commit(reservation, b"x")
        ledger.commit(reservation, b"x")
        assert ledger.artefact("t") == b"x"

    def test_a_full_disk_refuses(self, ledger, factory):
        """I15: the database cannot grow; the charge is undone and nothing is handed out."""
        ready(ledger)
        reservation = ledger.reserve("t", "run", 0, "train", lines("silo"))
        factory.fill(ledger)
        with pytest.raises(PrivacyError, match=rf"{factory.full}.*nothing was released"):
            ledger.commit(reservation, os.urandom(4 * 10**6))
        assert (ledger.state("t"), ledger.artefact("t")) == ("reserved", None)
        factory.check()

    def test_a_read_only_ledger_answers_and_refuses(self, ledger, factory):
        """Reports read it; nothing charges it."""
        ready(ledger)
        reader = factory(read_only=True)
        assert reader.claim("run", "silo").run == "run"
        with pytest.raises(PrivacyError, match=r"read-only.*nothing was released"):
            reader.open_run("run")


class TestPlantedBugs:
    """I11: the check outside the write lock is the classic hole of budgets. Two runs race for one release."""

    @staticmethod
    def race(factory, monkeypatch, *, guard, check):
        cost = accounting.rdp_units(STEP, 8.0, Adjacency.ADD_REMOVE)
        room = accounting.rdp_to_epsilon(1.5 * cost, 8.0, DELTA)
        factory().open_account(account(currency="rdp", epsilon=room))
        meeting = threading.Barrier(2)
        outcomes = []
        if not guard:
            monkeypatch.setattr(charging, "hold_units", unguarded)

        class CheckThenAct(Ledger):
            def reserve(self, *arguments):
                assert self.balance("silo").epsilon_used == 0.0  # the buggy check: there seems to be room
                meeting.wait(10)
                return super().reserve(*arguments)

        def work(run):
            ledger = CheckThenAct(factory.place)
            if not check:
                factory.unchecked(ledger)
            ledger.open_run(run)
            try:
                ledger.reserve(run, run, 0, "train", lines("silo"))
                outcomes.append("paid")
            except PrivacyError as error:
                outcomes.append(type(error).__name__)
            ledger.close()

        threads = [threading.Thread(target=work, args=(run,)) for run in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(outcomes)

    def test_the_control_pays_once(self, factory, monkeypatch):
        """With the guarded update one is refused by budget, and the ledger agrees with itself."""
        assert self.race(factory, monkeypatch, guard=True, check=True) == ["BudgetRefused", "paid"]
        factory.check()

    def test_a_check_outside_the_lock_is_stopped_by_the_database(self, factory, monkeypatch):
        """Without the guard in the statement, the table's CHECK still refuses the second charge."""
        assert self.race(factory, monkeypatch, guard=False, check=True) == ["PrivacyError", "paid"]
        factory.check()

    def test_without_both_guards_verify_says_overspent(self, factory, monkeypatch):
        """The test can fail: with guard and CHECK gone both are paid, and replaying the history tells."""
        assert self.race(factory, monkeypatch, guard=False, check=False) == ["paid", "paid"]
        assert any("more epsilon was spent than its limit" in problem for problem in verify(factory.place).problems)


def unguarded(db, txid):
    from sqlalchemy import update

    held = update(charging.account).where(charging._filters())
    held = held.values(held_units=charging.account.c.held_units + charging._units())
    return db.execute(held, {"charged": txid}).rowcount
