"""Tiers and retention: what a policy allows is checked at admission, at each charge, and by whoever verifies."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, tiers, verify
from sordino.ledger.keys import SigningKey
from sordino.ledger.officers import Order, Signed
from sordino.ledger.policy import Policy
from sordino.privacy import events
from sordino.privacy.permits import Line

ANN = SigningKey.generate("ann")
STEP = events.gaussian(8.0)
SEARCH = events.repeat_and_select(STEP, 4, 1)
BRONZE = {"epsilon": 1.0, "delta": 1e-6, "rounds": 3}
OLD, NEW = "north/day[..,2026-01-01)", "north/day[2026-01-01,2026-04-01)"


def policy(version=1, retention=30, **levels):
    known = {"bronze": BRONZE, "gold": {**BRONZE, "may_search": True, "epsilon": 9.0, "rounds": 100}, **levels}
    table = {"name": "north", "version": version, "officers": {"ann": str(ANN.public)}}
    table |= {"may": {"open": {"officers": ["ann"]}}, "retention_days": retention}
    table |= {"tiers": {name: level for name, level in known.items() if level is not None}}
    return Policy.parse(json.dumps({name: value for name, value in table.items() if value is not None}))


def account(name, **terms):
    shared = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-4}
    return Account(name, **{**shared, **terms})


@pytest.fixture
def place(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(place):
    with Ledger(place) as ledger:
        put(ledger, policy())
        yield ledger


def put(ledger, found):
    ledger.install(found, {"ann": ANN.sign(found.message)})


def opened(ledger, name, **terms):
    found, present = account(name, **terms), ledger.policy()
    order = Order("open", name, found.terms(), present.policy.version, present.event)
    ledger.open_account(found, Signed(order).sign(ANN))
    return ledger


def admit(ledger, name, event=STEP, count=3, delta=1e-6, rounds=3, run="r"):
    ledger.admit(run, "d", {name: [(event, count)]}, delta, noise_at=NoiseAt.SILO, rounds=rounds)
    ledger.open_run(run)


def release(ledger, name, event=STEP, number=0, run="r"):
    line = Line(name, Unit.RECORD, events.key(event), 1)
    ledger.commit(ledger.reserve(f"{run}/{number}", run, number, "train", [line]), b"x")


def unchecked(monkeypatch):
    """The broken twin: a program that asks no tier and no age."""
    monkeypatch.setattr(tiers, "bound", lambda _: False)


PLANS = [
    ({"delta": 2e-6}, "delta"),
    ({"count": 30}, "epsilon"),
    ({"rounds": 4}, "rounds"),
    ({"event": SEARCH, "count": 1}, "search"),
]


@pytest.mark.parametrize(("change", "match"), PLANS)
def test_a_plan_beyond_the_tier_is_refused(ledger, place, monkeypatch, change, match):
    """
    Nothing is charged; a program that does not look is found by its history.
    """
    opened(ledger, "north", tier="bronze")
    with pytest.raises(PrivacyError, match=match):
        admit(ledger, "north", **change)
    assert ledger.balance("north").epsilon_used == 0
    assert ledger.admitted("r") is None
    unchecked(monkeypatch)
    admit(ledger, "north", **change)
    assert any(match in problem and "against its policy" in problem for problem in verify(place).problems)


@pytest.mark.parametrize("tier", ["bronze", "gold", None])
def test_a_plan_within_the_tier_is_admitted(ledger, place, tier):
    """
    Control; without a tier no such bound stands.
    """
    opened(ledger, "north", tier=tier)
    admit(ledger, "north", **({} if tier == "bronze" else {"event": SEARCH, "count": 1, "rounds": 50}))
    assert ledger.history()[-2].body["rounds"] in (3, 50)
    assert verify(place, reprice=True).problems == ()


def test_a_container_is_of_a_tier_too(ledger):
    """
    The silo pays for its blocks: what it may not pay, none of them may.
    """
    opened(ledger, "north", tier="bronze", overlap=1)
    opened(ledger, "north/a=1", scope="block", parent="north")
    with pytest.raises(PrivacyError, match=r"'north'.*search"):
        admit(ledger, "north/a=1", event=SEARCH, count=1)


def test_how_many_rounds_a_plan_has_must_be_said(ledger):
    """
    To an account of a tier.
    """
    opened(ledger, "north", tier="bronze")
    with pytest.raises(ConfigError, match="how many rounds"):
        admit(ledger, "north", rounds=None)


@pytest.mark.parametrize(
    ("change", "match"),
    [({"event": SEARCH}, "search"), ({"number": 3}, "rounds")],
)
def test_an_account_that_pays_release_by_release_is_bound_too(ledger, place, monkeypatch, change, match):
    """
    It has no plan, and takes the same rounds.
    """
    opened(ledger, "north", tier="bronze", currency="rdp", order=8.0)
    ledger.open_run("r")
    release(ledger, "north", number=2)
    assert verify(place).problems == ()
    with pytest.raises(PrivacyError, match=match):
        release(ledger, "north", **change)
    assert len(ledger.charges("r")) == 1
    unchecked(monkeypatch)
    release(ledger, "north", **change)
    assert any(match in problem for problem in verify(place).problems)


def test_the_tier_is_that_of_the_policy_in_force(ledger):
    """
    A later version may change it, or drop it: then nothing more is admitted.
    """
    opened(ledger, "north", tier="bronze")
    put(ledger, policy(2, bronze={**BRONZE, "rounds": 10}))
    admit(ledger, "north", rounds=10)
    put(ledger, policy(3, bronze=None))
    with pytest.raises(PrivacyError, match="no tier of the policy"):
        admit(ledger, "north", run="s")


def test_a_tier_needs_a_policy_that_has_it(ledger, tmp_path):
    """
    Without one it would bind nobody.
    """
    with pytest.raises(ConfigError, match="silver"):
        opened(ledger, "north", tier="silver")
    with Ledger(tmp_path / "other.db") as other, pytest.raises(ConfigError, match="needs a policy"):
        other.open_account(account("north", tier="bronze"))


@pytest.fixture
def blocks(ledger, monkeypatch):
    """Two blocks of a silo; the retention of the older one ends on 31 January."""
    opened(ledger, "north", overlap=1)
    opened(ledger, OLD, scope="block", parent="north")
    opened(ledger, NEW, scope="block", parent="north")
    opened(ledger, "north2/n[..,7)", scope="block")

    def move(*day):
        monkeypatch.setattr(tiers, "now", lambda: datetime(*day, tzinfo=UTC))
        monkeypatch.setattr("sordino.ledger.history.now", lambda: datetime(*day, tzinfo=UTC).isoformat())

    return move


def test_a_block_is_not_read_after_its_retention(ledger, place, blocks, monkeypatch):
    """
    Neither for a new plan nor for the rest of one that was admitted; up to that moment it is.
    """
    blocks(2026, 1, 30, 23)
    admit(ledger, OLD)
    release(ledger, OLD)
    assert verify(place).problems == ()
    blocks(2026, 1, 31)
    with pytest.raises(PrivacyError, match="retention_days"):
        release(ledger, OLD, number=1)
    with pytest.raises(PrivacyError, match="retention_days"):
        admit(ledger, OLD, run="s")
    admit(ledger, NEW, run="t")
    admit(ledger, "north2/n[..,7)", run="u")
    assert verify(place).problems == ()
    unchecked(monkeypatch)
    release(ledger, OLD, number=1)
    admit(ledger, OLD, run="s")
    assert len([problem for problem in verify(place).problems if "retention_days" in problem]) == 2


def test_it_is_told_until_when_a_block_is_read(ledger, blocks):
    """
    By the forecast, with and without runs; afterwards no run fits.
    """
    blocks(2026, 1, 30)
    admit(ledger, OLD)
    told = {one.account: one for one in ledger.outlooks(datetime(2026, 1, 30, tzinfo=UTC))}
    assert told[OLD].kept_until == datetime(2026, 1, 31, tzinfo=UTC)
    assert told[NEW].kept_until == datetime(2026, 5, 1, tzinfo=UTC)
    assert (told["north"].kept_until, told["north2/n[..,7)"].kept_until) == (None, None)
    assert told[OLD].runs > 0
    told = {one.account: one for one in ledger.outlooks(datetime(2026, 1, 31, tzinfo=UTC))}
    assert (told[OLD].runs, told[OLD].binding) == (0, "retention")


def test_without_a_retention_age_ends_nothing(tmp_path, monkeypatch):
    """
    Control.
    """
    monkeypatch.setattr(tiers, "now", lambda: datetime(2099, 1, 1, tzinfo=UTC))
    with Ledger(tmp_path / "other.db") as ledger:
        put(ledger, policy(retention=None))
        opened(ledger, OLD, scope="block")
        admit(ledger, OLD)
        assert ledger.outlooks()[0].kept_until is None
