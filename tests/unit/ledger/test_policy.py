"""Who may open, raise, freeze, thaw and retire accounts: signed orders, once each, and a replay that checks all."""

from __future__ import annotations

import dataclasses
import sqlite3

import pytest

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, blocks, charging, currencies, history, office, officers, scopes, verify
from sordino.ledger.keys import SigningKey
from sordino.ledger.officers import Order, Signed
from sordino.ledger.policy import Policy, Quorum
from sordino.privacy import events
from sordino.privacy.permits import Line

KEYS = {name: SigningKey.generate(name) for name in ("ann", "bob", "eve")}
STEP = events.gaussian(8.0)
KEY = events.key(STEP)
PAIR = ("ann", "bob")

TEXT = f"""
name = "hearts"
version = 1
silos_per_person = 2
[officers]
ann = "{KEYS["ann"].public}"
bob = "{KEYS["bob"].public}"
[may]
open = {{ officers = ["ann", "bob"] }}
raise = {{ officers = ["ann", "bob"], need = 2 }}
freeze = {{ officers = ["bob"] }}
thaw = {{ officers = ["ann", "bob"], need = 2 }}
retire = {{ officers = ["ann"] }}
[tiers.bronze]
epsilon = 1.0
delta = 1e-6
rounds = 100
"""
POLICY = Policy.parse(TEXT)


def account(name, **terms):
    shared = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-5}
    return Account(name, **{**shared, **terms})


def signatures(policy, *names):
    return {name: KEYS[name].sign(policy.message) for name in names}


def order(ledger, action, name, terms, *signers):
    present = ledger.policy()
    signed = Signed(Order(action, name, terms, present.policy.version, present.event))
    for signer in signers:
        signed = signed.sign(KEYS[signer])
    return signed


def opened(ledger, *accounts, by="ann"):
    ledger.open_accounts(accounts, [order(ledger, "open", a.name, a.terms(), by) for a in accounts])


def next_policy(ledger, **changes):
    present = ledger.policy().policy
    policy = dataclasses.replace(present, version=present.version + 1, **changes)
    ledger.install(policy, signatures(policy, *PAIR))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    """A ledger with the policy in force; verified at the end."""
    with Ledger(path) as made:
        made.install(POLICY, signatures(POLICY, *PAIR))
        yield made
    assert verify(path).problems == ()


@pytest.fixture
def broken(path):
    """The same, for twins whose ledger does not verify."""
    with Ledger(path) as made:
        made.install(POLICY, signatures(POLICY, *PAIR))
        yield made


class TestPolicy:
    def test_its_digest_is_of_what_it_says(self):
        """Comments, order and spacing do not count; every value does."""
        shuffled = "# a comment\n" + TEXT.replace('name = "hearts"\nversion = 1', 'version=1\nname = "hearts"')
        assert Policy.parse(shuffled).sha256 == POLICY.sha256
        assert Policy.parse(POLICY.canonical) == POLICY
        assert Policy.parse(TEXT.replace("need = 2", "need = 1", 1)).sha256 != POLICY.sha256

    @pytest.mark.parametrize(
        ("old", "new", "rule"),
        [
            ('["bob"]', '["bib"]', "did you mean 'bob'"),
            ("need = 2", "need = 3", "fewer than it needs"),
            ('["ann", "bob"]', '["ann", "ann"]', "twice"),
            ("freeze =", "melt =", "is not known"),
            ("version = 1", "version = 0", "at least 1"),
            ("ann =", "amy =", "another's key"),
            ("KEY_OF_BOB", "KEY_OF_ANN", "another's key"),
            ("epsilon = 1.0", "epsilon = -1.0", "above 0"),
            ("rounds =", "turns =", "no key 'turns'"),
            ("name =", "name", "not TOML"),
        ],
    )
    def test_a_policy_that_contradicts_itself_is_refused(self, old, new, rule):
        texts = {f"KEY_OF_{name.upper()}": str(key.public) for name, key in KEYS.items()}
        with pytest.raises(ConfigError, match=rule):
            Policy.parse(TEXT.replace(texts.get(old, old), texts.get(new, new), 1))

    def test_one_key_under_two_names_is_one_person(self):
        """Else one officer could sign twice for a quorum of two."""
        twin = SigningKey("amy", KEYS["ann"].private)
        with pytest.raises(ConfigError, match="share one key"):
            Policy("p", 1, {"ann": str(KEYS["ann"].public), "amy": str(twin.public)})

    def test_a_tier_bounds_a_plan(self):
        tier = POLICY.tier("bronze")
        tier.check("plan", epsilon=1.0, delta=1e-6, rounds=100)
        for over in ({"epsilon": 1.01}, {"delta": 2e-6}, {"rounds": 101}, {"search": True}, {"epsilon": float("nan")}):
            with pytest.raises(PrivacyError):
                tier.check("plan", **{"epsilon": 1.0, "delta": 1e-6, "rounds": 100, **over})


class TestInstall:
    @pytest.mark.parametrize("signers", [(), ("ann",), ("ann", "eve")])
    def test_the_first_is_signed_by_all_its_officers(self, path, signers):
        with Ledger(path) as ledger:
            with pytest.raises(PrivacyError, match="needs 2 of"):
                ledger.install(POLICY, signatures(POLICY, *signers))
            assert ledger.policy() is None

    def test_the_next_is_signed_by_the_officers_before(self, ledger):
        """New officers cannot put themselves in; nor does a version skip."""
        own = dataclasses.replace(POLICY, version=2, officers={"eve": str(KEYS["eve"].public)}, may={})
        with pytest.raises(PrivacyError, match="needs 2 of ann, bob"):
            ledger.install(own, signatures(own, "eve"))
        third = dataclasses.replace(POLICY, version=3)
        with pytest.raises(PrivacyError, match="not the next"):
            ledger.install(third, signatures(third, *PAIR))
        ledger.install(own, signatures(own, *PAIR))
        assert ledger.policy().policy == own

    def test_a_signature_of_another_text_is_none(self, ledger):
        second = dataclasses.replace(POLICY, version=2)
        with pytest.raises(VerificationError, match="not signed as given"):
            ledger.install(second, signatures(POLICY, *PAIR))

    def test_again_changes_nothing(self, ledger):
        before = ledger.history()
        ledger.install(POLICY, {})
        assert ledger.history() == before


class TestOrders:
    def test_without_a_policy_anybody_opens_and_freezes_and_nobody_raises(self, path):
        with Ledger(path) as ledger:
            ledger.open_account(account("north"))
            ledger.freeze("north", reason="audit")
            ledger.thaw("north")
            empty = Signed(Order("raise", "north", {"epsilon": 9.0, "delta": 1e-5}, 1, "0" * 64))
            with pytest.raises(PrivacyError, match="without a policy"):
                ledger.raise_limit("north", epsilon=9.0, delta=1e-5, order=empty)
            ledger.install(POLICY, signatures(POLICY, *PAIR))
            signed = order(ledger, "raise", "north", {"epsilon": 9.0, "delta": 1e-5}, *PAIR)
            with pytest.raises(PrivacyError, match="without a policy"):
                ledger.raise_limit("north", epsilon=9.0, delta=1e-5, order=signed)
        assert verify(path).ok

    @pytest.mark.parametrize("signers", [(), ("eve",)])
    def test_an_order_needs_its_officers(self, ledger, signers):
        signed = order(ledger, "open", "north", account("north").terms(), *signers)
        with pytest.raises(PrivacyError, match="needs 1 of ann, bob"):
            ledger.open_account(account("north"), signed)
        with pytest.raises(PrivacyError, match="needs an order to open"):
            ledger.open_account(account("north"))
        assert ledger.accounts() == []

    def test_an_order_opens_what_it_says(self, ledger):
        signed = order(ledger, "open", "north", account("north").terms(), "ann")
        with pytest.raises(PrivacyError, match="does not order to open 'north' so"):
            ledger.open_account(account("north", epsilon=80.0), signed)
        forged = dataclasses.replace(
            signed, order=dataclasses.replace(signed.order, terms=account("north", epsilon=80.0).terms())
        )
        with pytest.raises(VerificationError):
            ledger.open_account(account("north", epsilon=80.0), forged)
        ledger.open_account(account("north"), Signed.parse(history.canonical(signed.plain())))
        assert ledger.accounts() == [account("north")]

    def test_an_order_is_carried_out_once(self, ledger):
        opened(ledger, account("north"))
        signed = order(ledger, "freeze", "north", {"reason": "x"}, "bob")
        ledger.freeze("north", reason="x", order=signed)
        ledger.thaw("north", order=order(ledger, "thaw", "north", {"reason": ""}, *PAIR))
        with pytest.raises(PrivacyError, match="carried out before"):
            ledger.freeze("north", reason="x", order=signed)
        with pytest.raises(PrivacyError, match="carried out before"):
            ledger.freeze("north", reason="x", order=signed.sign(KEYS["ann"]))
        ledger.freeze("north", reason="x", order=order(ledger, "freeze", "north", {"reason": "x"}, "bob"))

    def test_an_order_is_for_one_ledger_and_one_version(self, ledger, tmp_path):
        signed = order(ledger, "open", "north", account("north").terms(), "ann")
        with Ledger(tmp_path / "other.db") as other:
            other.install(POLICY, signatures(POLICY, *PAIR))
            with pytest.raises(PrivacyError, match="another ledger"):
                other.open_account(account("north"), signed)
        next_policy(ledger)
        with pytest.raises(PrivacyError, match="another ledger or policy"):
            ledger.open_account(account("north"), signed)

    def test_what_the_policy_leaves_out_nobody_may(self, ledger):
        next_policy(ledger, may={})
        with pytest.raises(PrivacyError, match="by nobody"):
            opened(ledger, account("north"))

    def test_a_person_is_in_as_many_silos_as_declared(self, ledger):
        """A federation that counts on fewer would charge its people too little; unknown is more cautious."""
        with pytest.raises(PrivacyError, match="silos_per_person=2"):
            opened(ledger, account("all", scope="federation", overlap=1))
        opened(ledger, account("all", scope="federation"), account("PHI", scope="domain", overlap=2))
        assert POLICY.completed(account("all", scope="federation")).overlap == 2


class TestLimits:
    def raise_(self, ledger, epsilon, delta=1e-5, signers=PAIR):
        terms = {"epsilon": epsilon, "delta": delta}
        ledger.raise_limit("north", **terms, order=order(ledger, "raise", "north", terms, *signers))

    def test_a_newer_policy_raises_once(self, ledger, path):
        opened(ledger, account("north"))
        with pytest.raises(PrivacyError, match="newer policy"):
            self.raise_(ledger, 10.0)
        next_policy(ledger)
        with pytest.raises(PrivacyError, match="needs 2 of"):
            self.raise_(ledger, 10.0, signers=("ann",))
        with pytest.raises(ConfigError, match="raises nothing"):
            self.raise_(ledger, 7.0)
        with Ledger(path, read_only=True) as reader:
            assert reader.balance("north").epsilon_limit == 8.0
            self.raise_(ledger, 10.0)
            assert reader.balance("north").epsilon_left == 10.0
        with pytest.raises(PrivacyError, match="newer policy"):
            self.raise_(ledger, 12.0)

    @pytest.mark.parametrize("column", ["epsilon", "delta", "limit_units", "delta_limit_units", "policy"])
    def test_the_database_itself_keeps_limits(self, ledger, path, column):
        """Whatever wrong code asks: no limit moves without a newer policy, and no policy goes back."""
        opened(ledger, account("north"))
        db = sqlite3.connect(path)
        step = -1 if column == "policy" else 1
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(f"UPDATE account SET {column} = {column} + {step}")  # noqa: S608 - a column of this test
        db.close()

    def test_a_live_account_is_raised_in_its_currency(self, ledger):
        opened(ledger, account("north", currency="gdp", epsilon=1.0))
        ledger.open_run("run")
        lines = [Line("north", Unit.RECORD, KEY, 6)]
        with pytest.raises(BudgetRefused):
            ledger.reserve("t", "run", 0, "train", lines)
        next_policy(ledger)
        self.raise_(ledger, 3.0)
        ledger.reserve("t", "run", 0, "train", lines)


class TestStates:
    def test_a_frozen_container_stops_what_it_contains(self, ledger):
        """Also the releases of a plan that was admitted before; what is reserved may still be committed."""
        self.plan(ledger)
        held = ledger.reserve("a", "run", 0, "train", [Line("north", Unit.RECORD, KEY, 1)])
        ledger.freeze("all", order=order(ledger, "freeze", "all", {"reason": ""}, "bob"))
        with pytest.raises(BudgetRefused, match="account 'all': is frozen"):
            ledger.reserve("b", "run", 1, "train", [Line("north", Unit.RECORD, KEY, 1)])
        with pytest.raises(BudgetRefused, match="account 'all': is frozen"):
            ledger.admit("other", "d", {"north": [(STEP, 1)]}, 1e-6, noise_at=NoiseAt.SILO)
        ledger.commit(held, b"x")
        ledger.thaw("all", order=order(ledger, "thaw", "all", {"reason": ""}, *PAIR))
        ledger.reserve("b", "run", 1, "train", [Line("north", Unit.RECORD, KEY, 1)])

    def test_retired_is_for_ever(self, ledger):
        opened(ledger, account("north"))
        ledger.retire("north", order=order(ledger, "retire", "north", {"reason": ""}, "ann"))
        with pytest.raises(PrivacyError, match="is retired"):
            ledger.thaw("north", order=order(ledger, "thaw", "north", {"reason": ""}, *PAIR))
        next_policy(ledger)
        with pytest.raises(PrivacyError, match="is retired"):
            TestLimits().raise_(ledger, 10.0)

    def test_a_plan_needs_its_approval_where_the_policy_says_so(self, ledger):
        may = {**POLICY.may, "approve": Quorum(PAIR, 2)}
        rules = dataclasses.replace(POLICY, version=2, may=may)
        ledger.install(rules, signatures(rules, *PAIR))
        opened(ledger, account("north"))
        plan = {"requests": {"north": [(STEP, 3)]}, "delta": 1e-6, "noise_at": NoiseAt.SILO}
        with pytest.raises(PrivacyError, match="run 'r': needs an order to approve"):
            ledger.admit("r", "digest", **plan)
        approval = order(ledger, "approve", "r", {"plan": "digest"}, *PAIR)
        with pytest.raises(PrivacyError, match="does not order"):
            ledger.admit("r", "other", **plan, approval=approval)
        ledger.admit("r", "digest", **plan, approval=approval)
        ledger.admit("r", "digest", **plan)  # again changes nothing

    @staticmethod
    def plan(ledger):
        opened(ledger, account("all", scope="federation"), account("north", parent="all"))
        ledger.admit("run", "d", {"north": [(STEP, 5)]}, 1e-6, noise_at=NoiseAt.SILO)
        ledger.open_run("run")


class TestReplay:
    """I11: each broken twin of a guard leaves a history that `verify` does not accept."""

    def test_an_unsigned_order_is_found(self, broken, path, monkeypatch):
        monkeypatch.setattr(officers, "check", lambda *_: ())
        opened(broken, account("north"), by="eve")
        broken.freeze("north")
        monkeypatch.undo()
        problems = verify(path).problems
        assert sum("not ordered as its policy demands" in problem for problem in problems) == 2

    def test_a_replayed_order_is_found(self, broken, path, monkeypatch):
        opened(broken, account("north"))
        signed = order(broken, "freeze", "north", {"reason": ""}, "bob")
        broken.freeze("north", order=signed)
        broken.thaw("north", order=order(broken, "thaw", "north", {"reason": ""}, *PAIR))
        with pytest.raises(PrivacyError, match="carried out before"):
            broken.freeze("north", order=signed)
        from sordino.ledger import governed

        monkeypatch.setattr(governed, "_obey", lambda _, __, order, *___: {"signed": order.plain()})
        with pytest.raises(PrivacyError, match="guard"):  # the database lets an order's name stand once
            broken.freeze("north", order=signed)
        monkeypatch.setattr(governed, "_name", lambda _: None)
        broken.freeze("north", order=signed)
        assert any("a second time" in problem for problem in verify(path).problems)

    def test_a_raise_that_no_newer_policy_allows_is_found(self, broken, path, monkeypatch):
        opened(broken, account("north"))
        from sordino.ledger import governed

        monkeypatch.setattr(governed, "_check_newer", lambda *_: None)
        with pytest.raises(PrivacyError, match="guard"):  # the database's trigger
            TestLimits().raise_(broken, 10.0)
        drop(path, "account_forward")
        TestLimits().raise_(broken, 10.0)
        assert any("no newer policy allows" in problem for problem in verify(path).problems)

    def test_a_policy_of_strangers_is_found(self, broken, path, monkeypatch):
        own = dataclasses.replace(POLICY, version=2, officers={"eve": str(KEYS["eve"].public)}, may={})
        monkeypatch.setattr(office, "may_install", lambda *_: ("eve",))
        broken.install(own, signatures(own, "eve"))
        monkeypatch.undo()
        assert any("not decided by its officers" in problem for problem in verify(path).problems)

    @pytest.mark.parametrize(
        ("room", "terms"),
        [
            ("blocks", {"name": "north/x[10.0001,20)", "scope": "block"}),
            ("scopes", {"name": "PHI", "scope": "domain", "parent": "all", "unit": Unit.USER}),
            ("policy", {"name": "PHI", "scope": "domain", "overlap": 1}),
        ],
    )
    def test_an_account_that_should_not_stand_there_is_found(self, broken, path, monkeypatch, room, terms):
        """A gap between blocks, a part of another unit, fewer silos per person than declared."""
        opened(broken, account("all", scope="federation"), account("north/x[..,10)", scope="block"))
        if room == "policy":
            monkeypatch.setattr(Policy, "check_account", lambda *_: None)
        else:
            monkeypatch.setattr({"blocks": blocks, "scopes": scopes}[room], "check", lambda *_: None)
        opened(broken, account(**terms))
        monkeypatch.undo()
        assert any("should not have opened" in problem for problem in verify(path).problems)

    @pytest.mark.parametrize("currency", ["plan", "gdp"])
    def test_a_limit_that_was_rounded_up_is_found(self, broken, path, monkeypatch, currency):
        """By one unit; found with --reprice, which converts again."""
        real = currencies.limits
        units = ("limit_units", "delta_limit_units")
        monkeypatch.setattr(currencies, "limits", lambda a: {key: real(a)[key] + 1 for key in units})
        opened(broken, account("north", currency=currency))
        monkeypatch.undo()
        assert verify(path).ok
        assert any("limit in units" in problem for problem in verify(path, reprice=True).problems)

    def test_a_charge_to_a_frozen_account_is_found(self, broken, path, monkeypatch):
        TestStates.plan(broken)
        broken.freeze("all", order=order(broken, "freeze", "all", {"reason": ""}, "bob"))
        monkeypatch.setattr(charging, "closed_among", lambda *_: None)
        broken.reserve("b", "run", 1, "train", [Line("north", Unit.RECORD, KEY, 1)])
        assert any("charges 'all', which is frozen" in problem for problem in verify(path).problems)

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("UPDATE policy SET body = replace(body, 'need\":2', 'need\":1')", "policy: the row"),
            ("DELETE FROM policy", "policy: the history tells of"),
            ("UPDATE account SET state = 'open'", "account: the row"),
            ("UPDATE account SET epsilon = 80", "account: the row"),
            ("UPDATE account SET policy = 2", "account: the row"),
        ],
    )
    def test_tampering_is_found(self, broken, path, statement, problem):
        opened(broken, account("north"))
        broken.freeze("north", order=order(broken, "freeze", "north", {"reason": ""}, "bob"))
        broken.close()
        drop(path)
        db = sqlite3.connect(path)
        assert db.execute(statement).rowcount > 0
        db.commit()
        db.close()
        assert any(problem in found for found in verify(path).problems)


class TestRefusals:
    def refused(self, ledger, run="run"):
        with pytest.raises(BudgetRefused) as error:
            ledger.admit(run, "d", {"north": [(events.gaussian(0.5), 9)]}, 1e-6, noise_at=NoiseAt.SILO)
        return str(error.value)

    def test_a_refusal_is_written_once(self, ledger):
        """Public numbers: who asked, which account, what it needs and what is left."""
        opened(ledger, account("north"))
        self.refused(ledger)
        self.refused(ledger)
        self.refused(ledger, "other")
        found = [entry.body for entry in ledger.history() if entry.kind == "refused"]
        assert [(body["run"], body["account"], body["lack"]) for body in found] == [
            ("run", "north", "epsilon"),
            ("other", "north", "epsilon"),
        ]
        assert found[0]["needs"] > found[0]["left"] == 8.0

    def test_a_failure_to_write_does_not_hide_it(self, ledger, monkeypatch):
        opened(ledger, account("north"))
        before = ledger.history()

        def full(*_):
            raise PrivacyError.about("ledger", "disk full")

        monkeypatch.setattr(history, "append", full)
        assert "8 of 8 is left" in self.refused(ledger)
        assert ledger.history() == before


def drop(path, name=None):
    """Take away triggers, as someone with the file in hand would."""
    db = sqlite3.connect(path)
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for trigger in names if name is None else [name]:
        db.execute(f"DROP TRIGGER {trigger}")
    db.commit()
    db.close()
