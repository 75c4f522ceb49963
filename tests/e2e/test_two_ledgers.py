"""Runs whose silos keep ledgers of their own: a coordinator's database alone spends nothing."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
from whole_runs import model, one_line, planned, sordino

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.experiment.books import LedgerBooks
from sordino.experiment.run import run
from sordino.experiment.silos import SiloBooks
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.enrolment import enrol
from sordino.ledger.grants import Grant, problems
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import SiloLedger
from sordino.privacy.noise import SystemNoise

SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")
TERMS = """
ledger = "federation.db"
[budget]
epsilon = 100.0
delta = 1e-3
[enforcement]
silos = "silos"
key = "coordinator.pem"
"""


class Stop(Exception):
    """A crash that can be caught."""


@pytest.fixture
def federation(heart, unwatched):
    """The experiment file, beside the coordinator's key and four enrolled silos with 8 each."""
    del unwatched
    text = heart.read_text()
    heart.write_text(TERMS.partition("[budget]")[0] + text + "[budget]" + TERMS.partition("[budget]")[2])
    key = SigningKey.generate("coordinator")
    key.save(heart.parent / "coordinator.pem")
    for name in SILOS:
        account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-4)
        enrol(heart.parent / "silos" / name, account, coordinators=[key.public])
    return heart


@pytest.fixture
def draws(monkeypatch):
    """How often noise was drawn under each permit."""
    drawn = Counter()
    sound = SystemNoise.normal

    def normal(self, permit, std, size):
        drawn[permit.txid, permit.serial] += 1
        return sound(self, permit, std, size)

    monkeypatch.setattr(SystemNoise, "normal", normal)
    return drawn


def start(file, *overrides, runs="runs"):
    plan, population = planned(file, *overrides)
    return plan, lambda: run(plan, population, "", file.parent / runs, base=file.parent)


def places(file):
    return {name: file.parent / "silos" / name / "ledger.db" for name in SILOS} | {"": file.parent / "federation.db"}


def states(file, plan):
    """Fates of the run's rounds, per ledger."""
    found = {}
    for name, place in places(file).items():
        with Ledger(place, read_only=True) as ledger:
            found[name] = [charge.state for charge in ledger.charges(plan.run)]
    return found


def everywhere(*fates):
    return {name: list(fates) for name in [*SILOS, ""]}


def spent(file):
    with Ledger(places(file)["cleveland"], read_only=True) as ledger:
        return ledger.balance("cleveland").epsilon_used


def sound(file):
    return [problem for place in places(file).values() for problem in verify(place, reprice=True).problems]


def test_both_sides_tell_of_the_same_run(federation, draws):
    """
    Every round stands in five ledgers, with every silo's grant beside the coordinator's lines; claims are equal.
    """
    plan, go = start(federation)
    result = go()

    assert states(federation, plan) == everywhere(*["committed"] * 3)
    assert sound(federation) == []
    assert set(draws.values()) == {1}
    assert len(draws) == 3 * len(SILOS)
    keys = {}
    for claim in result.claims:
        folder = federation.parent / "silos" / claim.account
        keys[claim.account] = SigningKey.load(folder / "key.pem").public
        with Ledger(folder / "ledger.db", read_only=True) as ledger:
            (own,) = ledger.claims(plan.run)
        assert (own.epsilon, own.delta, own.plan) == (claim.epsilon, claim.delta, plan.digest)
        assert own.events == claim.events
    with Ledger(federation.parent / "federation.db", read_only=True) as ledger:
        for charge in ledger.charges(plan.run):
            told = ledger.consents(charge.txid)
            assert problems(told, charge.txid, charge.lines, keys) == []
            assert {Grant.parse(text).plan for text in told.values()} == {plan.digest}


def test_released_figures_are_granted_too(federation):
    """
    Held-out figures leave a silo under its own ledger's charge, like everything else.
    """
    plan, go = start(federation, "evaluation={release={epsilon=0.2}}")
    go()

    assert states(federation, plan) == everywhere(*["committed"] * 4)
    with Ledger(places(federation)["hungary"], read_only=True) as ledger:
        assert [charge.purpose for charge in ledger.charges(plan.run)] == ["train"] * 3 + ["metric"]
    assert sound(federation) == []


def test_a_restored_backup_does_not_start(federation, draws):
    """
    The coordinator's ledger is put back to before a run that the silos have seen: nothing runs, no silo is charged.
    """
    start(federation)[1]()
    ledger = federation.parent / "federation.db"
    backup = shutil.copy(ledger, federation.parent / "backup.db")
    start(federation, "seed=2")[1]()
    before, drawn = spent(federation), len(draws)
    shutil.copy(backup, ledger)

    with pytest.raises(VerificationError, match="rolled back"):
        start(federation, "seed=3")[1]()

    assert (spent(federation), len(draws)) == (before, drawn)
    assert not list((federation.parent / "runs").glob(f"*{start(federation, 'seed=3')[0].digest[:8]}*"))


def test_a_ledger_that_was_lost_does_not_start_anew(federation):
    """
    A fresh database would be a fresh budget.
    """
    start(federation)[1]()
    (federation.parent / "federation.db").unlink()

    with pytest.raises(VerificationError, match="rolled back"):
        start(federation, "seed=2")[1]()


def interrupted(federation, monkeypatch, number=1, at="commit"):
    """A run that stops in a round: before it commits, or when the silos have granted and it has not reserved."""
    plan, go = start(federation)
    with monkeypatch.context() as patch:
        if at == "commit":
            broken = SiloBooks.commit

            def commit(self, reservation, artefact):
                if reservation.txid.endswith(f"/{number}"):
                    raise Stop
                broken(self, reservation, artefact)

            patch.setattr(SiloBooks, "commit", commit)
        else:
            true = Grant.check

            def check(self, key, request, *, now):
                if request.round == number and request.lines[0].account == at:
                    raise Stop
                true(self, key, request, now=now)

            patch.setattr(Grant, "check", check)
        with pytest.raises(Stop):
            go()
    return plan


def test_of_two_coordinators_on_copies_only_one_spends(federation, draws, monkeypatch):
    """
    Both stopped in the second round with the same database. One goes on; the other gets nothing, try as it may.
    """
    plan = interrupted(federation, monkeypatch)
    home, other = federation.parent, federation.parent / "other"
    other.mkdir()
    shutil.copy(home / "federation.db", other / "federation.db")
    shutil.copytree(home / "runs", home / "copied")
    start(federation)[1]()
    paid, drawn = spent(federation), sum(draws.values())

    copy = ("ledger='other/federation.db'",)
    again, go = start(federation, *copy, runs="copied")
    assert again.run != plan.run  # another place is another plan
    for _ in range(2):
        with pytest.raises(VerificationError, match="rolled back"):
            go()
    shutil.move(other / "federation.db", home / "federation.db")
    for _ in range(2):
        with pytest.raises(VerificationError, match="rolled back"):
            start(federation, runs="copied")[1]()

    assert (spent(federation), sum(draws.values())) == (paid, drawn)
    assert set(draws.values()) == {1}


def test_a_copy_without_witness_finds_what_was_handed_over(federation, draws, monkeypatch):
    """
    Broken twin: the coordinator shows silos no checkpoint. A copy from the middle of a run is still refused.
    """
    interrupted(federation, monkeypatch)
    home = federation.parent
    shutil.copy(home / "federation.db", home / "backup.db")
    shutil.copytree(home / "runs", home / "copied")
    start(federation)[1]()
    paid = sum(draws.values())
    shutil.copy(home / "backup.db", home / "federation.db")
    monkeypatch.setattr(Ledger, "compare_with", lambda *_: 0)

    with pytest.raises(VerificationError, match="handed over"):
        start(federation, runs="copied")[1]()

    assert sum(draws.values()) == paid


@pytest.mark.parametrize("at", ["cleveland", "va-long-beach"])
def test_a_crash_between_the_two_reservations_is_lost_on_both_sides(federation, draws, monkeypatch, at):
    """
    The first silo had granted, or all had; the coordinator had not reserved. Nobody draws the round; the rest runs.
    """
    plan = interrupted(federation, monkeypatch, at=at)
    assert states(federation, plan)[""] == ["committed"]
    assert states(federation, plan)["cleveland"] == ["committed", "reserved"]

    result = start(federation)[1]()

    assert states(federation, plan) == everywhere("committed", "forfeited", "committed")
    assert result.summary["rounds_lost"] == 1
    assert not any(txid.endswith("/1") for txid, _ in draws)
    assert sound(federation) == []


def test_a_round_that_was_drawn_before_a_crash_is_lost_on_both_sides(federation, draws, monkeypatch):
    """
    After the draw and before the commit: charged everywhere, drawn once, released never.
    """
    plan = interrupted(federation, monkeypatch)

    start(federation)[1]()

    assert states(federation, plan) == everywhere("committed", "forfeited", "committed")
    assert set(draws.values()) == {1}
    assert sound(federation) == []


def test_a_crash_when_some_silos_have_committed(federation, draws, monkeypatch):
    """
    The process dies in the second silo's commit: what the first handed over is spent there, and nothing is drawn again.
    """
    plan, go = start(federation)
    true = SiloLedger.hand_over

    def hand_over(self, txid, digest):
        if (self.name, txid[-2:]) == ("hungary", "/1"):
            raise Stop
        true(self, txid, digest)

    with monkeypatch.context() as patch:
        patch.setattr(SiloLedger, "hand_over", hand_over)
        with pytest.raises(Stop):
            go()

    go()

    found = states(federation, plan)
    assert found.pop("cleveland") == ["committed"] * 3
    assert set(map(tuple, found.values())) == {("committed", "forfeited", "committed")}
    assert set(draws.values()) == {1}


def test_a_silo_whose_budget_ends_stops_the_run(federation, draws):
    """
    The coordinator's accounts have a hundred each; the silos' eight do not pay a plan of two and one of seven.
    """
    start(federation)[1]()
    drawn = len(draws)

    with pytest.raises(BudgetRefused, match="silo 'cleveland'"):
        start(federation, "seed=2", "privacy.epsilon=7.0")[1]()

    assert len(draws) == drawn
    with Ledger(federation.parent / "federation.db", read_only=True) as ledger:
        assert ledger.balance("cleveland").epsilon_used < 2.1  # it was not charged for what did not run


def test_the_same_noise_with_and_without_silos(federation, tmp_path):
    """
    A simulation with seeded noise releases the same model, bit for bit: only who keeps books differs.
    """
    for name in SILOS:
        shutil.rmtree(federation.parent / "silos" / name)
        account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-4, test=True)
        key = SigningKey.load(federation.parent / "coordinator.pem")
        enrol(federation.parent / "silos" / name, account, coordinators=[key.public])
    alone = tmp_path / "alone" / "heart.toml"
    alone.parent.mkdir()
    alone.write_text(federation.read_text().partition("[enforcement]")[0])
    seeded = "simulation.noise_seed=1"

    with_silos = start(federation, seeded)[1]()

    assert with_silos.summary["test"]
    assert model(with_silos).tolist() == model(start(alone, seeded)[1]()).tolist()


def test_enforcement_cannot_be_left_out_half_way(federation, monkeypatch):
    """
    The silos consented to the rounds so far, and would not be asked for the rest.
    """
    interrupted(federation, monkeypatch)
    text = federation.read_text()
    federation.write_text(text.partition("[enforcement]")[0])
    with pytest.raises(PrivacyError, match="keep"):
        start(federation)[1]()


def test_silos_cannot_join_a_run_that_began_without_them(federation, monkeypatch):
    """
    They would know nothing of what it has spent.
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


def test_enforcement_needs_a_ledger_that_lasts(federation):
    """
    One key signs one ledger, so each run's own would not do.
    """
    federation.write_text(federation.read_text().replace('ledger = "federation.db"', ""))
    with pytest.raises(ConfigError, match="outlives the run"):
        planned(federation)


def test_from_enrolment_to_an_approved_run(heart, unwatched, capsys):
    """
    The verbs as people call them: keys, silos, a plan that officers sign, and a run that is refused without them.
    """
    del unwatched
    home = heart.parent
    public = {}
    for name in ("coordinator", "first", "second"):
        code, out, _ = sordino(capsys, "ledger", "key", name, "--out", home / f"{name}.pem", "--json")
        assert code == 0
        public[name] = json.loads(out)["public"]
    for name in SILOS:
        limits = ("--epsilon", "8", "--delta", "1e-4", "--coordinator", public["coordinator"])
        officers = ("--officer", public["first"], "--officer", public["second"])
        code, out, _ = sordino(capsys, "silo", "enroll", name, "--folder", home / "silos" / name, *limits, *officers)
        assert (code, out.splitlines()[-1].partition("+")[0]) == (0, name)
    rules = home / "silos" / "hungary" / "silo.toml"
    rules.write_text(rules.read_text().replace("need = 1", "need = 2"))
    text = heart.read_text().replace("[data.heart]", 'ledger = "federation.db"\napproval = "tiny.json"\n[data.heart]')
    heart.write_text(text + '[enforcement]\nsilos = "silos"\nkey = "coordinator.pem"\n')
    signed = home / "tiny.json"

    code, _, error = sordino(capsys, "run", heart, "--runs", home / "runs")
    assert (code, "plan approve" in one_line(error.partition("\n")[2] or error)) == (2, True)
    assert sordino(capsys, "plan", "approve", heart, "--key", home / "first.pem", "--out", signed)[0] == 0
    assert sordino(capsys, "silo", "check", home / "silos" / "cleveland", signed)[0] == 0
    code, _, error = sordino(capsys, "silo", "check", home / "silos" / "hungary", signed)
    assert (code, "needs 2 of first, second and has 1" in one_line(error)) == (2, True)
    code, out, _ = sordino(capsys, "plan", "approve", signed, "--key", home / "second.pem", "--json")
    assert (code, json.loads(out)["signed_by"]) == (0, ["first", "second"])
    code, out, _ = sordino(capsys, "run", heart, "--runs", home / "runs", "--json")
    assert (code, round(json.loads(out)["epsilon"], 2)) == (0, 2.0)
    code, _, error = sordino(capsys, "run", heart, "--runs", home / "runs", "--set", "seed=2")
    assert (code, "another plan" in error) == (2, True)
