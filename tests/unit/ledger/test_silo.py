"""A silo's own ledger decides: each way to get past it is refused, and writes nothing or is counted as spent."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3

import pytest

from sordino.core import code
from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.approval import Approval, PlanTerms
from sordino.ledger.enrolment import enrol
from sordino.ledger.grants import Request
from sordino.ledger.keys import SigningKey
from sordino.ledger.policy import Policy
from sordino.ledger.silo import FILE, open_silo
from sordino.privacy import events
from sordino.privacy.permits import Line

STEP = events.gaussian(5.0)
KEY = events.key(STEP)
DIGEST = "ab" * 32
TABLE = {"label": "ill", "client": "site", "features": ["age"], "ranges": {"age": [0, 100]}}
OFFICER = SigningKey.generate("officer")
SECOND = SigningKey.generate("second")
COORDINATOR = SigningKey.generate("coordinator")
ACCOUNT = Account("north", Unit.RECORD, Adjacency.ADD_REMOVE, epsilon=4.0, delta=1e-4)


def terms(run="run", count=4, **changes):
    plain = {
        "run": run,
        "digest": f"digest of {run}",
        "epsilon": 2.0,
        "delta": 1e-5,
        "unit": Unit.RECORD,
        "noise_at": NoiseAt.SILO,
        "adjacency": Adjacency.ADD_REMOVE,
        "mechanism": "gaussian",
        "rounds": count,
        "accounts": {"north": {KEY: count}, "south": {KEY: 1000}},
        "data": {"heart": {}},
        "code": code.digest(),
        "clip": 0.5,
    }
    return PlanTerms(**{**plain, **changes})


def approved(plan=None, *keys):
    found = Approval(plan or terms())
    for key in keys or (OFFICER,):
        found = found.sign(key)
    return found


def asked(number=0, fence=1, run="run", count=1, plan=None, account="north", txid=None):
    line = Line(account, Unit.RECORD, KEY, count)
    return Request(txid or f"{run}/{number}", run, number, plan or f"digest of {run}", fence, (line,))


class World:
    """A coordinator's ledger and the folder of one silo."""

    def __init__(self, path):
        self.path, self.now = path, 1000.0
        self.coordinator = path / "coordinator.db"
        with Ledger(self.coordinator, key=COORDINATOR) as ledger:
            ledger.open_account(dataclasses.replace(ACCOUNT, epsilon=100.0))
        enrol(path / "north", ACCOUNT, coordinators=[COORDINATOR.public], officers=[OFFICER.public])

    def rules(self, *lines):
        file = self.path / "north" / "silo.toml"
        known = {line.partition(" ")[0] for line in lines}
        kept = [line for line in file.read_text().splitlines() if line.partition(" ")[0] not in known]
        file.write_text("\n".join([*kept, *lines]) + "\n")

    def silo(self):
        return open_silo(self.path / "north", clock=lambda: self.now)

    def begin(self, silo, approval=None, place=None, run="run"):
        """What a coordinator does at every start. Returns its fence."""
        with Ledger(place or self.coordinator, key=COORDINATOR) as ledger:
            fence = ledger.open_run(run)
            silo.join(approval or approved(terms(run)), fence, ledger.growth(silo.seen("coordinator")[0]))
        return fence

    def spent(self):
        with Ledger(self.path / "north" / "ledger.db", read_only=True) as ledger:
            return ledger.balance("north").epsilon_used

    def states(self, run="run"):
        with Ledger(self.path / "north" / "ledger.db", read_only=True) as ledger:
            return {charge.txid: charge.state for charge in ledger.charges(run)}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_round_from_request_to_publication(world):
    """
    Control: the silo's own history holds it, with the grant; nothing of other silos stands there.
    """
    with world.silo() as silo:
        world.begin(silo)
        grant = silo.grant(asked())
        grant.check(silo.key.public, asked(), now=world.now)
        silo.reservation("run/0").take(["north"], KEY)
        silo.hand_over("run/0", DIGEST)
        assert silo.ledger.consents("run/0") == {"north": grant.text}
        assert [account.name for account in silo.ledger.accounts()] == ["north"]

    assert world.states() == {"run/0": "committed"}
    assert verify(world.path / "north" / "ledger.db", reprice=True).problems == ()


def test_the_same_request_gets_the_same_grant(world):
    """
    A retry is charged once.
    """
    with world.silo() as silo:
        world.begin(silo)
        first = silo.grant(asked())
        assert silo.grant(asked()) is first
        assert len(silo.ledger.charges("run")) == 1


@pytest.mark.parametrize("end", ["handed over", "nothing"])
def test_a_replayed_transaction_is_refused(world, end):
    """
    It was granted once, whatever became of it: settled, or left open by a process that died.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked())
        if end == "handed over":
            silo.hand_over("run/0", DIGEST)
            with pytest.raises(PrivacyError, match="committed"):
                silo.grant(asked())
    with world.silo() as silo:
        fence = world.begin(silo)
        with pytest.raises(PrivacyError, match="committed" if end == "handed over" else "forfeited"):
            silo.grant(asked(fence=fence))
    assert world.states() == {"run/0": "committed" if end == "handed over" else "forfeited"}


def test_the_same_transaction_for_something_else_is_refused(world):
    """
    Two releases instead of the one that was granted.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked())
        with pytest.raises(PrivacyError, match="something else"):
            silo.grant(asked(count=2))


def test_an_expired_grant_is_not_given_again_and_draws_nothing(world):
    """
    After an hour, neither the coordinator nor the silo may use it.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked())
        world.now += 3601
        with pytest.raises(PrivacyError, match="expired"):
            silo.grant(asked())
        with pytest.raises(PrivacyError, match="expired"):
            silo.reservation("run/0")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"plan": "digest of another"}, "another plan"),
        ({"fence": 2}, "has fence 2"),
        ({"run": "other"}, "not joined"),
        ({"account": "south"}, "not the silo's"),
    ],
)
def test_a_request_outside_the_joined_plan_is_refused(world, change, match):
    """
    Another plan, coordinator, run, or somebody else's people.
    """
    with world.silo() as silo:
        world.begin(silo)
        with pytest.raises(PrivacyError, match=match):
            silo.grant(asked(**change))
    assert world.states() == {}


def test_more_rounds_than_the_plan_has_are_refused(world):
    """
    The coordinator may say yes as often as it likes.
    """
    with world.silo() as silo:
        world.begin(silo)
        for number in range(4):
            silo.grant(asked(number))
        with pytest.raises(BudgetRefused, match="0 of the plan's 4 are left"):
            silo.grant(asked(4))


@pytest.mark.parametrize(
    ("approval", "error", "match"),
    [
        (Approval(terms()), PrivacyError, "needs 1 of officer and has 0"),
        (approved(terms(), SECOND), PrivacyError, "needs 1 of officer and has 0"),
        (dataclasses.replace(approved(), terms=terms(count=5)), VerificationError, "changed or forged"),
        (
            dataclasses.replace(approved(), terms=terms(data={"heart": {"columns": ["age"]}})),
            VerificationError,
            "forged",
        ),
    ],
)
def test_an_unapproved_plan_is_refused(world, approval, error, match):
    """
    Nobody signed, somebody else signed, or something else was signed. The silo is not charged.
    """
    with world.silo() as silo, pytest.raises(error, match=match):
        world.begin(silo, approval)
    assert world.spent() == 0


def test_so_many_officers_must_sign(world):
    """
    Two of two; one may not sign twice under two names.
    """
    world.rules(f'officers = ["{OFFICER.public}", "{SECOND.public}"]', "need = 2")
    with world.silo() as silo:
        with pytest.raises(PrivacyError, match="needs 2 of officer, second and has 1"):
            silo.check(approved())
        silo.check(approved(terms(), OFFICER, SECOND))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("epsilon = 1.0", {}),
        ("epsilon = 1.0", {"epsilon": 0.1}),
        ("delta = 1e-6", {}),
        ("clip = 0.4", {}),
        ("clip = 0.4", {"clip": None}),
        ("rounds = 3", {}),
        ('unit = ["user"]', {}),
        ('noise_at = ["silo"]', {"noise_at": NoiseAt.COORDINATOR}),
        ('adjacency = ["replace_one"]', {}),
        ('plans = ["another"]', {}),
        ("same_code = true", {"code": "0" * 64}),
        ('data = ["other", "more"]', {}),
        ('columns = ["age", "ill", "site"]', {}),
        ('columns = ["age", "ill", "site"]', {"data": {"table": {**TABLE, "features": ["age", "name"]}}}),
        ('columns = ["age", "ill", "site"]', {"data": {"table": {**TABLE, "categories": {"name": ["a"]}}}}),
        ('columns = ["age", "ill", "site"]', {"data": {"table": {**TABLE, "user": "name"}}}),
        ('columns = ["age", "ill", "site"]', {"data": {"text": {"text": "name"}}}),
        ('models = ["logistic"]', {}),
        ('models = ["logistic", "smollm2-135m"]', {"model": {"causal_lm": {"base": "another"}}}),
        ("min_cohort = 3", {}),
        ("colluding = 0.25", {"secure_sum": {"bits": 24, "colluding": 0.2}}),
        ("min_cohort = 3", {"accounts": {"north/a": {KEY: 4}, "north/b": {KEY: 4}, "south": {KEY: 4}}}),
    ],
)
def test_a_plan_beyond_the_silos_rules_is_refused(world, rule, change):
    """
    The price is the silo's own: what the plan says of its epsilon does not count.
    """
    world.rules(rule)
    with world.silo() as silo, pytest.raises(PrivacyError, match=rule.partition(" ")[0].replace("same_", "")[:-1]):
        world.begin(silo, approved(terms(**change)))
    assert world.spent() == 0


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ('data = ["heart"]', {}),
        ('columns = ["age", "ill", "site"]', {"data": {"table": TABLE}}),
        ('columns = ["note"]', {"data": {"text": {"text": "note"}}}),
        ('models = ["logistic"]', {"model": {"logistic": {}}}),
        ('models = ["smollm2-135m"]', {"model": {"causal_lm": {"base": "smollm2-135m"}}}),
        ("min_cohort = 2", {}),
        ("colluding = 0.25", {"secure_sum": {"bits": 24, "colluding": 0.25}}),
        ("colluding = 0.25", {}),  # no noise in shares
    ],
)
def test_what_is_within_the_silos_rules_is_not_refused(world, rule, change):
    """
    Control of the test above.
    """
    world.rules(rule)
    with world.silo() as silo:
        silo.check(approved(terms(**change)))


def test_rules_that_are_edited_while_the_silo_serves_bind_the_next_plan(world):
    """
    A privacy officer edits a file; that a process read it this morning is nothing that they need to know.
    """
    with world.silo() as silo:
        world.begin(silo)
        world.rules("epsilon = 0.001")
        for attempt in (lambda: silo.check(approved()), lambda: world.begin(silo)):
            with pytest.raises(PrivacyError, match=r"epsilon=.* is more than its 0\.001"):
                attempt()
        world.rules("epsilon = 100.0")
        silo.check(approved())
        world.rules("epsilon = 'little'")
        with pytest.raises(ConfigError, match="epsilon"):
            silo.check(approved())


def test_what_was_opened_when_the_process_began_is_not_exchanged_under_it(world):
    """
    Another ledger, key or coordinator than the file names would go on to be used: it takes part in nothing.
    """
    with world.silo() as silo:
        world.rules('ledger = "another.db"')
        with pytest.raises(PrivacyError, match="another `ledger` than when its process began"):
            silo.check(approved())
        world.rules('ledger = "ledger.db"', "coordinators = []")
        with pytest.raises(PrivacyError, match="coordinators"):
            silo.check(approved())


def test_a_simulation_is_refused_unless_the_silo_allows_it(tmp_path):
    """
    Enrolment for tests says so; a silo of real people does not.
    """
    enrol(tmp_path / "north", dataclasses.replace(ACCOUNT, test=True))
    with open_silo(tmp_path / "north") as silo:
        assert silo.rules.test
        silo.check(Approval(terms(test=True)))
        file = tmp_path / "north" / FILE
        file.write_text(file.read_text().replace("test = true", "test = false"))
        with pytest.raises(PrivacyError, match="simulation"):
            silo.check(Approval(terms(test=True)))


def test_older_approvals_are_read_and_their_signatures_hold():
    """
    They say nothing of a model; what is signed is the same text as before.
    """
    told = json.loads(approved().text)
    told["plan"].pop("model")
    told["plan"].pop("clients")
    found = Approval.parse(json.dumps(told))
    assert found.signers([OFFICER.public], 1) == ("officer",)
    assert "model" not in found.terms.canonical
    for change in (
        {"model": {"logistic": {}}},
        {"accounts": {"all": {KEY: 4}}, "shared": "all", "clients": ("north",)},
    ):
        changed = dataclasses.replace(found, terms=dataclasses.replace(found.terms, **change))
        with pytest.raises(VerificationError, match="forged"):
            changed.signers([OFFICER.public], 1)


SHARED = {
    "accounts": {"clients": {events.key(events.poisson(0.5, events.gaussian(5.0))): 4}},
    "shared": "clients",
    "clients": ("north", "south"),
    "unit": Unit.CLIENT,
    "noise_at": NoiseAt.COORDINATOR,
}


@pytest.fixture
def sampled(world):
    """The silo is one of the clients that an account of all stands for."""
    shutil.rmtree(world.path / "north")
    account = dataclasses.replace(ACCOUNT, unit=Unit.CLIENT)
    enrol(world.path / "north", account, coordinators=[COORDINATOR.public], officers=[OFFICER.public])
    world.rules('noise_at = ["coordinator"]')
    return world


def test_a_silo_pays_what_the_shared_account_is_charged(sampled):
    """
    Every round of the plan, at once and once, whatever cohort it is drawn into; a restart gets a grant, not a charge.
    """
    plan = approved(terms(**SHARED))
    (key,) = SHARED["accounts"]["clients"]
    with sampled.silo() as silo:
        fence = sampled.begin(silo, plan)
        grant = silo.grant_whole("run")
        assert grant.lines == (Line("north", Unit.CLIENT, key, 4),)
        grant.check_signature(silo.key.public)
        (claim,) = silo.ledger.claims("run")
        assert (claim.account, claim.complete, claim.unit) == ("north", True, Unit.CLIENT)
        with pytest.raises(BudgetRefused):
            silo.grant(Request("run/0", "run", 0, "digest of run", fence, (Line("north", Unit.CLIENT, key, 1),)))
    spent = sampled.spent()
    with sampled.silo() as silo:
        fence = sampled.begin(silo, plan)
        again = silo.grant_whole("run")
        again.check_signature(silo.key.public)
        assert (again.txid, again.lines, again.fence) == (grant.txid, grant.lines, fence)
    assert sampled.spent() == spent
    assert list(sampled.states().values()) == ["committed"]
    assert verify(sampled.path / "north" / "ledger.db", reprice=True).problems == ()


def test_a_silo_is_refused_a_plan_that_shares_an_account_without_it(sampled):
    """
    Its name is not among the clients; or the shared account is not the only one.
    """
    with sampled.silo() as silo, pytest.raises(PrivacyError, match="no account of it"):
        silo.check(approved(terms(**{**SHARED, "clients": ("south",)})))
    with pytest.raises(ConfigError, match="only account"):
        terms(**{**SHARED, "accounts": {**SHARED["accounts"], "north": {KEY: 1}}})
    with pytest.raises(ConfigError, match="only account"):
        terms(**{**SHARED, "clients": ()})


def test_the_shared_account_is_priced_by_the_silo_itself(sampled):
    """
    Its rules and its account bind as for its own.
    """
    sampled.rules("epsilon = 0.5")
    with sampled.silo() as silo, pytest.raises(PrivacyError, match="epsilon"):
        silo.check(approved(terms(**SHARED)))
    sampled.rules("epsilon = 100.0", 'unit = ["record", "client"]')
    with sampled.silo() as silo, pytest.raises(PrivacyError, match="protects a client"):
        silo.check(approved(terms(**{**SHARED, "unit": Unit.RECORD})))


def test_rounds_are_not_granted_at_once_where_silos_pay_round_by_round(world):
    """
    Nor in a run that was not joined.
    """
    with world.silo() as silo:
        with pytest.raises(PrivacyError, match="not joined"):
            silo.grant_whole("run")
        world.begin(silo)
        with pytest.raises(PrivacyError, match="round by round"):
            silo.grant_whole("run")


def test_rules_that_fit_refuse_nothing(world):
    """
    Control of the test above.
    """
    world.rules(
        "epsilon = 3.0", "delta = 1e-5", "clip = 0.5", "rounds = 4", 'unit = ["record"]', 'plans = ["digest of run"]'
    )
    with world.silo() as silo:
        world.begin(silo)
    assert world.spent() > 1.0


def test_the_silo_stops_when_its_budget_ends(world):
    """
    The coordinator's account has a hundred; the silo's is enough for two plans.
    """
    with world.silo() as silo:
        world.begin(silo, run="first")
        world.begin(silo, run="second")
        with pytest.raises(BudgetRefused, match="silo 'north'"):
            world.begin(silo, run="third")
    assert world.spent() <= ACCOUNT.epsilon


def test_a_plan_that_was_admitted_needs_no_second_budget(world):
    """
    A crash between the silo's admission and its first round: the restart is not refused.
    """
    with world.silo() as silo:
        world.begin(silo, run="first")
        world.begin(silo, run="second")
    with world.silo() as silo:
        world.begin(silo, run="second")


def test_a_frozen_account_pays_for_nothing_more(world):
    """
    The silo may stop a run at any time.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked(0))
        silo.ledger.freeze("north", reason="a complaint")
        with pytest.raises(BudgetRefused, match="frozen"):
            silo.grant(asked(1))


def test_a_restored_coordinator_does_not_start(world):
    """
    I13: its ledger is put back to before what the silo has seen.
    """
    backup = shutil.copy(world.coordinator, world.path / "backup.db")
    with world.silo() as silo:
        world.begin(silo)
        size, note = silo.seen("coordinator")
        with Ledger(backup, key=COORDINATOR) as ledger:
            with pytest.raises(VerificationError, match="rolled back"):
                ledger.compare_with([note])
            with pytest.raises(VerificationError, match="put back"):
                ledger.growth(size)
            with pytest.raises(VerificationError, match="rolled back"):
                silo.join(approved(), 9, ledger.growth(0))
        assert silo.grant(asked())  # the true one goes on


def test_of_two_coordinators_on_copies_only_the_first_is_served(world):
    """
    The copy grows as long as the original, and longer: its history is another one.
    """
    copy = shutil.copy(world.coordinator, world.path / "copy.db")
    with world.silo() as silo:
        world.begin(silo)
        with Ledger(copy, key=COORDINATOR) as ledger:
            for _ in range(9):
                ledger.open_run("run")
        with pytest.raises(VerificationError, match="forked"):
            world.begin(silo, place=copy)
        silo.grant(asked())
    assert len(world.states()) == 1


def test_what_a_silo_that_looks_at_no_checkpoint_still_refuses(world, monkeypatch):
    """
    Broken twin without a witness: a copy takes over with a higher fence, but what was granted stays granted once.
    """
    copy = shutil.copy(world.coordinator, world.path / "copy.db")
    with world.silo() as first, world.silo() as second:
        world.begin(first)
        first.grant(asked(0))
        monkeypatch.setattr("sordino.ledger.witnesses.Witness.see", lambda *_: "")
        with pytest.raises(PrivacyError, match="not above 1"):  # the same fence as the original's
            world.begin(second, place=copy)
        assert world.begin(second, place=copy) == 2
        with pytest.raises(PrivacyError, match="forfeited"):
            second.grant(asked(0, fence=2))
        with pytest.raises(PrivacyError, match="taken over"):
            first.hand_over("run/0", DIGEST)
        with pytest.raises(PrivacyError, match="taken over"):
            first.grant(asked(1))


def test_an_unknown_coordinator_gets_nothing(world):
    """
    No key, no checkpoint, no grant.
    """
    world.rules("coordinators = []")
    with world.silo() as silo, pytest.raises(VerificationError, match="not known"):
        world.begin(silo)
    assert world.spent() == 0


def test_a_lost_charge_is_spent_and_never_drawn(world):
    """
    Whether the silo had granted it or never heard of it.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked(0))
        silo.forfeit(asked(0))
        silo.forfeit(asked(1))
        silo.forfeit(asked(1))
        with pytest.raises(PrivacyError, match="not been granted"):
            silo.reservation("run/0")
    assert world.states() == {"run/0": "forfeited", "run/1": "forfeited"}


def test_only_what_permitted_no_noise_is_given_back(world):
    """
    A refund is the silo's, and only if nothing can have left it.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked(0))
        silo.abort("run/0")
        silo.grant(asked(1))
        silo.reservation("run/1").take(["north"], KEY)
        with pytest.raises(PrivacyError, match="stays spent"):
            silo.abort("run/1")
    assert world.states() == {"run/0": "aborted", "run/1": "reserved"}


@pytest.mark.parametrize(
    "change",
    [{"unit": Unit.USER}, {"adjacency": Adjacency.ZERO_OUT}, {"test": True}, {"accounts": {"south": {KEY: 1}}}],
)
def test_a_plan_for_other_people_is_refused(world, change):
    """
    The account protects records under add/remove, really.
    """
    with world.silo() as silo, pytest.raises(PrivacyError, match="silo 'north'"):
        silo.check(approved(terms(**change)))


def test_a_policy_of_the_silo_asks_for_an_order(world):
    """
    Under a policy that names who approves, the signed plan carries an order for this ledger.
    """
    from sordino.ledger.officers import Order, Signed
    from sordino.ledger.policy import Quorum

    policy = Policy("north", 1, {"officer": str(OFFICER.public)}, may={"approve": Quorum(("officer",))})
    with world.silo() as silo:
        silo.ledger.install(policy, {"officer": OFFICER.sign(policy.message)})
        with pytest.raises(PrivacyError, match="approve"):
            silo.check(approved())
        present = silo.ledger.policy()
        order = Order("approve", "run", {"plan": "digest of run"}, 1, present.event)
        world.begin(silo, Approval(terms(), orders=(Signed(order),)).sign(OFFICER))
    assert verify(world.path / "north" / "ledger.db").problems == ()


def test_an_order_for_a_digest_does_not_approve_other_terms(world):
    """
    An order names a digest. Terms that bear it and charge more are refused, though the silo's rules ask for nobody.
    """
    from sordino.ledger.officers import Order, Signed
    from sordino.ledger.policy import Quorum

    file = world.path / "north" / "silo.toml"
    file.write_text(file.read_text().replace(f'officers = ["{OFFICER.public}"]', "officers = []"))
    policy = Policy("north", 1, {"officer": str(OFFICER.public)}, may={"approve": Quorum(("officer",))})
    with world.silo() as silo:
        silo.ledger.install(policy, {"officer": OFFICER.sign(policy.message)})
        order = Signed(Order("approve", "run", {"plan": "digest of run"}, 1, silo.ledger.policy().event))
        signed = Approval(terms(), orders=(order,)).sign(OFFICER)
        silo.check(signed)
        with pytest.raises(VerificationError, match="not signed as given"):
            silo.check(dataclasses.replace(signed, terms=terms(count=40)))
        with pytest.raises(PrivacyError, match="needs 1 of officer and has 0"):
            silo.check(Approval(terms(count=40), orders=signed.orders))


def test_an_approval_survives_its_file():
    """
    With signatures and terms, word for word; anything else is said.
    """
    found = approved(terms(), OFFICER, SECOND)
    assert Approval.parse(found.text) == found
    for text in ("", "[]", "{}", found.text.replace('"run"', '"ran"')):
        with pytest.raises(ConfigError, match="approval"):
            Approval.parse(text)


def test_an_edited_grant_beside_a_line_is_found(world):
    """
    The history tells what stands there.
    """
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked())
    place = world.path / "north" / "ledger.db"
    with sqlite3.connect(place) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE charge_line SET consent = NULL")

    assert any(problem.startswith("charge_line: the row") for problem in verify(place).problems)


def test_a_silos_folder_is_made_once(world):
    """
    A second enrolment would be a second budget for the same people.
    """
    with pytest.raises(ConfigError, match="holds something"):
        enrol(world.path / "north", ACCOUNT)


def test_a_silos_ledger_may_be_on_postgresql(world, postgresql):
    """
    The file of rules names it; join, grant, hand over and forfeit are the same there.
    """
    with Ledger(postgresql) as ledger:
        ledger.open_account(ACCOUNT)
    world.rules(f'ledger = "{postgresql}"')
    with world.silo() as silo:
        world.begin(silo)
        silo.grant(asked(0))
        silo.hand_over("run/0", DIGEST)
        silo.grant(asked(1))
    with world.silo() as silo:
        fence = world.begin(silo)
        with pytest.raises(PrivacyError, match="forfeited"):
            silo.grant(asked(1, fence=fence))
        assert {charge.txid: charge.state for charge in silo.ledger.charges("run")} == {
            "run/0": "committed",
            "run/1": "forfeited",
        }
    assert verify(postgresql, reprice=True).problems == ()
    assert world.states() == {}
