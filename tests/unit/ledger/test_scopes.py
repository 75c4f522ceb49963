"""What a block is charged, its silo, domain and federation pay too: for their worst person, all of them or none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, charging, scopes, verify
from sordino.privacy import accounting, events
from sordino.privacy.permits import Line

SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
STEP, BIG = events.gaussian(8.0), events.gaussian(4.0)
KEY = events.key(STEP)


def account(name, **terms):
    return Account(name, **{"epsilon": 8.0, **SHARED, **terms})


def federation(overlap=1, **terms):
    """Two silos under one domain under one federation."""
    return [
        account("all", scope="federation", overlap=overlap, **terms),
        account("PHI", scope="domain", parent="all", overlap=overlap, **terms),
        account("north", parent="PHI", **terms),
        account("south", parent="PHI", **terms),
    ]


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def price(*sequence):
    return accounting.best_epsilon(list(sequence), 1e-5, adjacency=Adjacency.ADD_REMOVE).epsilon


def test_disjoint_silos_compose_in_parallel(ledger):
    ledger.open_accounts(federation(overlap=1))
    ledger.admit("run", "d", {"north": [(STEP, 10)], "south": [(BIG, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    for name, expected in (("north", price((STEP, 10))), ("south", price((BIG, 10))), ("all", price((BIG, 10)))):
        assert ledger.balance(name).epsilon_used == pytest.approx(expected, rel=1e-9)
    assert ledger.balance("PHI").epsilon_used == ledger.balance("all").epsilon_used


def test_silos_of_unknown_overlap_add_up(ledger):
    ledger.open_accounts(federation(overlap=None))
    ledger.admit("run", "d", {"north": [(STEP, 10)], "south": [(BIG, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    assert ledger.balance("all").epsilon_used == pytest.approx(price((STEP, 10), (BIG, 10)), rel=1e-9)


def test_all_pay_or_none(ledger):
    """The federation is the one that cannot pay: nothing is charged to anybody."""
    small = [account("all", scope="federation", epsilon=0.5), *(account(n, parent="all") for n in ("north", "south"))]
    ledger.open_accounts(small)
    with pytest.raises(BudgetRefused, match="account 'all'"):
        ledger.admit("run", "d", {"north": [(BIG, 10)], "south": [(BIG, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    assert [ledger.balance(name).epsilon_used for name in ("all", "north", "south")] == [0, 0, 0]


@pytest.mark.parametrize(("currency", "overlap", "expected"), [("gdp", 1, 3), ("gdp", None, 4), ("zcdp", 1, 1.5)])
def test_live_containers_pay_for_each_release(ledger, currency, overlap, expected):
    """One release in the north, three in the south, each of μ² = 1/64: the federation pays 3 or 4 of them."""
    ledger.open_accounts(federation(overlap=overlap, currency=currency))
    ledger.open_run("run")
    lines = [Line("north", Unit.RECORD, KEY, 1), Line("south", Unit.RECORD, KEY, 3)]
    reservation = ledger.reserve("t", "run", 0, "train", lines)
    assert {line.account for line in reservation.lines} == {"north", "south"}, "permits are for those who were named"
    with ledger._store.read() as db:
        held = dict(db.exec_driver_sql("SELECT name, held_units FROM account").fetchall())
    assert held["all"] == held["PHI"] == expected * 10**12 / 64
    ledger.commit(reservation, b"x")
    assert ledger.balance("all").epsilon_used > 0
    assert {claim.account for claim in ledger.claims("run")} == {"north", "south"}


def test_a_live_container_stops_what_its_parts_could_pay(ledger):
    ledger.open_accounts(
        [account("all", scope="federation", currency="gdp", epsilon=0.6), account("north", parent="all")]
    )
    ledger.admit("run", "d", {"north": [(BIG, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    ledger.open_run("run")
    key = events.key(BIG)
    with pytest.raises(BudgetRefused, match=r"account .all.* would fit"):
        ledger.reserve("t", "run", 0, "train", [Line("north", Unit.RECORD, key, 10)])
    assert ledger.state("t") is None


def test_quotas_pay_beside_people(ledger):
    ledger.open_accounts(
        [
            account("north", delta=1e-4),
            account("south", delta=1e-4),
            account("ann", delta=1e-4, scope="analyst", epsilon=3.0),
        ]
    )
    plan = {"north": [(STEP, 10)], "south": [(STEP, 10)]}
    ledger.admit("run", "d", plan, 1e-5, noise_at=NoiseAt.SILO, quotas=["ann"])
    assert ledger.balance("ann").epsilon_used == pytest.approx(price((STEP, 20)), rel=1e-9)
    with pytest.raises(BudgetRefused, match="account 'ann'"):
        ledger.admit("again", "d", plan, 1e-5, noise_at=NoiseAt.SILO, quotas=["ann"])


def test_a_live_quota_of_a_plan_pays_for_each_of_its_releases(ledger, tmp_path, monkeypatch):
    """Named where the plan was admitted, and not again; a later process remembers it, and so does the history."""
    ledger.open_accounts([account("north"), account("ann", scope="analyst", currency="gdp", epsilon=1.0)])
    for run in ("run", "other"):
        quotas = ["ann"] if run == "run" else []
        ledger.admit(run, "d", {"north": [(STEP, 10)]}, 1e-6, noise_at=NoiseAt.SILO, quotas=quotas)
        ledger.open_run(run)
        ledger.reserve(f"{run}0", run, 0, "train", [Line("north", Unit.RECORD, KEY, 1)])
    once = ledger.balance("ann")
    assert once.held == 1
    with Ledger(tmp_path / "ledger.db") as later:
        later.open_run("run")
        later.reserve("run1", "run", 1, "train", [Line("north", Unit.RECORD, KEY, 1)], quotas=["ann"])
        assert later.balance("ann").held == 2
        assert verify(tmp_path / "ledger.db", reprice=True).problems == ()
        with pytest.raises(BudgetRefused, match="'ann'"):
            later.reserve("run2", "run", 2, "train", [Line("north", Unit.RECORD, KEY, 8)])
        monkeypatch.setattr(later, "_remembered", lambda _: ())  # the broken twin
        later.reserve("run3", "run", 3, "train", [Line("north", Unit.RECORD, KEY, 1)])
    assert any("'ann', a quota" in problem for problem in verify(tmp_path / "ledger.db").problems)


def test_a_container_is_not_charged_by_itself(ledger):
    ledger.open_accounts(federation())
    with pytest.raises(ConfigError, match="through the accounts"):
        ledger.admit("run", "d", {"all": [(STEP, 1)]}, 1e-5, noise_at=NoiseAt.SILO)


@pytest.mark.parametrize(
    ("terms", "rule"),
    [
        ({"parent": "nobody"}, "not open"),
        ({"parent": "block", "scope": "silo"}, "does not contain"),
        ({"parent": "all", "unit": Unit.USER}, "another unit"),
        ({"parent": "all", "currency": "gdp"}, "release by release"),
    ],
)
def test_a_parent_must_be_able_to_contain(ledger, terms, rule):
    ledger.open_accounts([account("all", scope="federation"), account("block", scope="block", parent="all")])
    with pytest.raises((ConfigError, PrivacyError), match=rule):
        ledger.open_account(account("north", **terms))


def test_an_abort_gives_back_everywhere_unless_a_permit_was_taken(ledger):
    ledger.open_accounts(federation(currency="gdp"))
    ledger.open_run("run")
    lines = [Line("north", Unit.RECORD, KEY, 1)]
    ledger.abort(ledger.reserve("first", "run", 0, "train", lines))
    assert ledger.balance("all").epsilon_used == ledger.balance("north").epsilon_used == 0
    drawn = ledger.reserve("second", "run", 0, "train", lines)
    drawn.take(["north"], KEY)
    with pytest.raises(PrivacyError, match="noise may be drawn"):
        ledger.abort(drawn)
    given_up = ledger.reserve("third", "run", 0, "train", lines)
    ledger.abort(given_up)
    with pytest.raises(PrivacyError, match="was not charged"):
        given_up.take(["north"], KEY)


def test_the_history_replays_with_containers(ledger, tmp_path):
    test_live_containers_pay_for_each_release(ledger, "gdp", None, 4)
    report = verify(tmp_path / "ledger.db", reprice=True)
    assert report.ok, report.problems


counts = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 5), min_size=1)


@settings(max_examples=60, deadline=None)
@given(counts, st.sampled_from([1, 2, 3, None]))
def test_a_container_never_pays_less_than_any_person(charged, overlap):
    """For live money: at least the sum over every set of parts that one person can be in."""
    known = {"all": account("all", scope="federation", currency="gdp", overlap=overlap)}
    known |= {name: account(name, parent="all", currency="gdp") for name in "abcd"}
    paid = scopes.live_lines("all", {name: {KEY: n} for name, n in charged.items()}, known)
    worst = sorted(charged.values(), reverse=True)[:overlap]
    assert paid == {KEY: sum(worst)}


def test_an_account_that_was_charged_by_itself_is_not_divided(ledger):
    """Its people paid already: a block with a fresh limit would not know."""
    ledger.open_accounts([account("north", currency="gdp"), account("south")])
    ledger.open_run("run")
    ledger.reserve("t", "run", None, "query", [Line("north", Unit.RECORD, KEY, 1)])
    ledger.admit("plan", "d", {"south": [(STEP, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    for parent, currency in (("north", "gdp"), ("south", "plan")):
        with pytest.raises(PrivacyError, match="charged by itself"):
            ledger.open_account(account(f"{parent}/b", scope="block", parent=parent, currency=currency))


def test_a_part_that_another_process_opened_counts_at_once(ledger, tmp_path):
    """Who read the accounts before it was opened cannot charge the whole by itself any more."""
    ledger.open_accounts([account("north", currency="gdp"), account("south")])
    ledger.open_run("run")
    assert ledger.balance("north").committed == 0  # accounts are read, once
    with Ledger(tmp_path / "ledger.db") as other:
        other.open_account(account("north/b", scope="block", parent="north", currency="gdp"))
        other.open_account(account("south/b", scope="block", parent="south"))
    with pytest.raises(ConfigError, match="charged through"):
        ledger.reserve("t", "run", None, "query", [Line("north", Unit.RECORD, KEY, 1)])
    with pytest.raises(ConfigError, match="charged through"):
        ledger.admit("plan", "d", {"south": [(STEP, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    assert ledger.balance("north").held == 0
    assert ledger.balance("south").epsilon_used == 0


def test_a_quota_of_whole_plans_is_not_named_in_vain(ledger):
    """It could not be charged for one release, so the release is refused."""
    ledger.open_accounts([account("north", currency="gdp"), account("ann", scope="analyst")])
    ledger.open_run("run")
    with pytest.raises(ConfigError, match="pays whole plans"):
        ledger.reserve("t", "run", None, "query", [Line("north", Unit.RECORD, KEY, 1)], quotas=["ann"])
    assert ledger.state("t") is None


def test_a_quota_does_not_pay_in_the_place_of_people(ledger):
    """What an analyst may spend comes on top of what the people of the data pay."""
    ledger.open_accounts([account("ann", scope="analyst", currency="gdp"), account("bob", scope="run")])
    ledger.open_run("run")
    with pytest.raises(ConfigError, match="stands for nobody"):
        ledger.reserve("t", "run", None, "query", [Line("ann", Unit.RECORD, KEY, 1)])
    with pytest.raises(ConfigError, match="stands for nobody"):
        ledger.admit("plan", "d", {"bob": [(STEP, 10)]}, 1e-5, noise_at=NoiseAt.SILO)


def test_a_frozen_live_federation_admits_no_plan(ledger, tmp_path):
    """It would pay release by release; yet its silos' plans are charged now. The history agrees."""
    ledger.open_accounts([account("all", scope="federation", currency="gdp"), account("north", parent="all")])
    ledger.freeze("all")
    with pytest.raises(BudgetRefused, match=r"'all'.*is frozen"):
        ledger.admit("run", "d", {"north": [(STEP, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    assert ledger.balance("north").epsilon_used == 0
    assert verify(tmp_path / "ledger.db").problems == ()


@pytest.mark.parametrize("paid", ["nothing", "less"])
def test_verify_says_which_container_did_not_pay(ledger, tmp_path, monkeypatch, paid):
    """A ledger that forgets whoever contains its payers, or their worst person, is found out by its history."""
    shared = {"overlap": 2, "currency": "gdp"}
    ledger.open_accounts(
        [account("all", scope="federation", **shared), *(account(n, parent="all", currency="gdp") for n in "ab")]
    )
    ledger.open_run("run")
    right = charging.above
    wrong = (lambda *_: []) if paid == "nothing" else (lambda items, *rest: right(items[:1], *rest))
    monkeypatch.setattr(charging, "above", wrong)
    ledger.reserve("t", "run", None, "query", [Line(n, Unit.RECORD, KEY, 1) for n in "ab"])
    (problem,) = verify(tmp_path / "ledger.db", reprice=True).problems
    assert "'all'" in problem
    assert ("charges nothing" if paid == "nothing" else "worst person") in problem


def test_verify_says_which_container_did_not_pay_for_a_plan(ledger, tmp_path, monkeypatch):
    """The same for whole plans."""
    ledger.open_accounts(federation(overlap=1))
    monkeypatch.setattr(scopes, "payers", lambda *_: [])
    ledger.admit("run", "d", {"north": [(STEP, 10)]}, 1e-5, noise_at=NoiseAt.SILO)
    problems = verify(tmp_path / "ledger.db").problems
    assert [f"'{name}'" in problem for name, problem in zip(("PHI", "all"), problems, strict=True)] == [True, True]


def test_verify_says_which_account_was_divided_too_late(ledger, tmp_path, monkeypatch):
    """A ledger that opened a block inside of an account that had paid by itself is found out by its history."""
    ledger.open_account(account("north", currency="gdp"))
    ledger.open_run("run")
    ledger.reserve("t", "run", None, "query", [Line("north", Unit.RECORD, KEY, 1)])
    monkeypatch.setattr("sordino.ledger.reading.paid_itself", lambda db, name: False)
    ledger.open_account(account("north/b", scope="block", parent="north", currency="gdp"))
    assert verify(tmp_path / "ledger.db").problems == (
        "account 'north': it was charged by itself, and contains others",
    )
