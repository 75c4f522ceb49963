"""Figures that silos on other machines release: the same as in one process, drawn once whatever dies in between."""

from __future__ import annotations

import numpy as np
import pytest
from machines import NAMES, Killed, Lines, Machines, answers
from test_machine_faults import dies
from whole_runs import model, planned

from sordino.core.errors import EngineError
from sordino.experiment.flower.local_grid import LocalGrid
from sordino.experiment.flower_app import client_app
from sordino.experiment.folder import RunFolder
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.run import run
from sordino.experiment.site import judging
from sordino.experiment.site.once import Once
from sordino.experiment.site.outbox import Kept, Outbox
from sordino.federation.engines.flower import GridPost
from sordino.federation.post import Letter
from sordino.ledger import Ledger
from sordino.ledger.silo import SiloLedger
from sordino.privacy.permits import mint_reservation

RELEASE = "evaluation.release={ noise_multiplier = 4.0, loss = 2.0 }"
ROUNDS = ["0 committed"]
DONE = [*ROUNDS, "metrics committed"]
LOST = [*ROUNDS, "metrics forfeited"]
SEEDED = "simulation.noise_seed=5"


@pytest.fixture
def hospitals(hospitals):
    """The same, for one round: what follows it is the matter here."""
    text = hospitals.file.read_text(encoding="utf-8")
    hospitals.file.write_text(text.replace("rounds = 3", "rounds = 1"), encoding="utf-8")
    return hospitals


def metric(txid) -> bool:
    return txid.endswith("/metrics")


def judges(letter) -> bool:
    return letter.action == "judge"


def release(_, txid, *__):
    return metric(txid)


def figures(result):
    """What the run's summary says of them."""
    return result.summary["released_metrics"]


SUMMED = ("privacy.noise_at='sum'", "privacy.mechanism='skellam'", "secure_sum={ bits = 32 }")
WAYS = {"silo": (RELEASE, SEEDED), "sum": (RELEASE, SEEDED, *SUMMED, "privacy.noise_multiplier=4.0")}


def rehearsing(hospitals, noise_at):
    """The same hospitals, whose accounts are for tests."""
    terms = {"test": True, "epsilon": 100.0, "folder": "tests", "noise_at": noise_at}
    return Machines.enrolled(hospitals.file, NAMES, data=hospitals.data, **terms)


@pytest.mark.parametrize("noise_at", WAYS)
def test_the_same_figures_as_in_one_process(hospitals, noise_at):
    """
    Same seeds, same noise, same names in the ledgers: also where the noise of training is that of the sum.
    """
    machines, way = rehearsing(hospitals, noise_at), WAYS[noise_at]
    plan, population = planned(machines.file, *way)
    alone = run(plan, population, "", machines.root / "alone", base=machines.root / "alone")
    with machines.members() as members:
        apart = machines.run(answers(members), *way)
    assert machines.told == []
    assert figures(apart) == figures(alone)
    assert figures(apart)["away"] == []
    assert np.array_equal(model(apart), model(alone))
    assert apart.summary["epsilon"] == alone.summary["epsilon"]
    assert machines.states(plan.run) == dict.fromkeys(["", *NAMES], DONE)
    machines.hold(plan.run, {})


def test_a_plan_whose_noise_is_at_the_sum_loses_its_figures_with_the_coordinator(hospitals, monkeypatch):
    """
    What was open is forfeited when it starts again, as its rounds are. Silos had handed over; both count it once.
    """
    machines, way = rehearsing(hospitals, "sum"), WAYS["sum"]
    plan, _ = planned(machines.file, *way)
    with machines.members() as members:
        with monkeypatch.context() as patch:
            KILLS["before it commits"](patch)
            with pytest.raises(Killed):
                machines.run(answers(members), *way)
        result = machines.run(answers(members), *way)
    assert figures(result) is None
    states = machines.states(plan.run)
    assert states.pop("") == LOST
    assert set(map(tuple, states.values())) == {tuple(DONE)}
    machines.hold(plan.run, {})


def test_figures_travel_as_flowers_messages(hospitals, draws):
    """
    Through the very apps that Flower runs, in this process.
    """
    with hospitals.members() as members:
        apps = {number: client_app(member.answer) for number, member in enumerate(members.values())}
        result = hospitals.run(GridPost(LocalGrid(apps)), RELEASE)
    assert [silo["name"] for silo in figures(result)["silos"]] == list(NAMES)
    assert len(draws) == 6


KILLS = {
    "before it reserves": lambda m: dies(m, RemoteBooks, "reserve", release, after=False),
    "before it asks": lambda m: dies(m, RemoteBooks, "reserve", release, after=True),
    "before it commits": lambda m: dies(m, RemoteBooks, "commit", lambda b, *_: metric(b._round.txid), after=False),
    "after it committed": lambda m: dies(m, RemoteBooks, "commit", lambda b, *_: metric(b._round.txid), after=True),
    "before it finishes": lambda m: dies(m, RunFolder, "finish", lambda *_: True, after=False),
}


@pytest.mark.parametrize("moment", KILLS)
def test_a_coordinator_that_is_killed_gets_the_same_figures(hospitals, draws, monkeypatch, moment):
    """
    Silos keep what they drew, the ledger what it committed: nobody draws again.
    """
    plan, _ = planned(hospitals.file, RELEASE)
    with hospitals.sites() as sites:
        with monkeypatch.context() as patch:
            KILLS[moment](patch)
            with pytest.raises(Killed):
                hospitals.run(Lines(sites), RELEASE)
        before = dict(draws)
        result = hospitals.run(Lines(sites), RELEASE)
    assert hospitals.states(plan.run) == dict.fromkeys(["", *NAMES], DONE)
    assert (len(draws), before.items() <= draws.items()) == (6, True)
    assert [silo["name"] for silo in figures(result)["silos"]] == list(NAMES)
    hospitals.hold(plan.run, draws)


MOMENTS = {
    "granted": (
        lambda m: dies(m, SiloLedger, "grant", lambda s, r: s.name == "east" and metric(r.txid), after=True),
        0,
    ),
    "drawn": (
        lambda m: dies(m, Outbox, "keep", lambda s, t, _: s.folder.parent.name == "east" and metric(t), after=False),
        1,
    ),
    "handed over": (
        lambda m: dies(m, SiloLedger, "hand_over", lambda s, t, _: s.name == "east" and metric(t), after=True),
        1,
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_silo_that_is_killed_is_in_no_figure_and_draws_no_other(hospitals, draws, monkeypatch, moment):
    """
    Charged at the coordinator and by its own ledger, when it is back at the end; said to whoever reads the figures.
    """
    plan, _ = planned(hospitals.file, RELEASE)
    kill, drawn = MOMENTS[moment]
    kill(monkeypatch)
    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites), RELEASE)
    assert "figures: without east: did not answer within 3600 s" in hospitals.told
    assert [silo["name"] for silo in figures(result)["silos"]] == list(NAMES[1:])
    assert figures(result)["away"] == ["east"]
    assert figures(result)["units_error"] == pytest.approx(
        2**0.5 * figures(result)["silos"][0]["units_error"], abs=0.01
    )
    states = hospitals.states(plan.run)
    fate = "metrics committed" if moment == "handed over" else "metrics forfeited"
    assert states.pop("east") == [*ROUNDS, fate]
    assert set(map(tuple, states.values())) == {tuple(DONE)}
    assert (len(draws), result.summary["silos_away"]) == (5 + drawn, [])
    hospitals.hold(plan.run, draws)


def test_figures_that_all_were_killed_over_are_lost(hospitals, draws, monkeypatch):
    """
    Charged everywhere, drawn nowhere: the second time each says that it was charged before.
    """
    plan, _ = planned(hospitals.file, RELEASE)
    with hospitals.sites() as sites:
        with monkeypatch.context() as patch:
            dies(patch, SiloLedger, "grant", lambda _, r: metric(r.txid), after=True, once=False)
            with pytest.raises(EngineError, match=r"arrived=0 of 3.*goes on from here"):
                hospitals.run(Lines(sites), RELEASE)
        result = hospitals.run(Lines(sites), RELEASE)
    assert figures(result) is None
    assert hospitals.states(plan.run) == dict.fromkeys(["", *NAMES], LOST)
    assert len(draws) == 3
    hospitals.hold(plan.run, draws)


def test_a_silo_that_stays_away_is_charged_at_the_coordinator(hospitals, draws):
    plan, _ = planned(hospitals.file, RELEASE)
    alive = [True]

    def gone(letter, answering):
        alive[0] = alive[0] and not judges(letter)
        return answering(letter) if alive[0] else None

    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites, {"east": gone}), RELEASE)
    assert (figures(result)["away"], result.summary["silos_away"]) == (["east"], ["east"])
    assert hospitals.states(plan.run)["east"] == ROUNDS
    with Ledger(hospitals.places()[""], read_only=True) as ledger:
        assert ledger.absent(f"{plan.run}/metrics") == ["east"]
    hospitals.hold(plan.run, draws, away=("east",))


LIES = {
    "too long": lambda v: np.append(v, v),
    "not finite": lambda v: v * np.float32("nan"),
    "other numbers": lambda v: v.astype(np.float64),
}


@pytest.mark.parametrize("lie", LIES)
def test_figures_that_do_not_hold_are_not_counted(hospitals, draws, lie):
    def lying(letter, answering):
        answer = answering(letter)
        return Letter("judge", answer.fields, LIES[lie](answer.vector)) if judges(letter) else answer

    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites, {"east": lying}), RELEASE)
    assert any("tells something else than 3 finite numbers" in line for line in hospitals.told)
    assert figures(result)["away"] == ["east"]
    assert len(draws) == 6


def asked_again(hospitals, draws):
    """What a silo answers to the question, and to the same question about another model."""
    said = []

    def twice(letter, answering):
        said.append(answering(letter))
        if judges(letter):
            said.append(answering(Letter("judge", letter.fields, letter.vector + np.float32(1))))
            return said[-2]
        return said[-1]

    with hospitals.sites() as sites:
        hospitals.run(Lines(sites, {"east": twice}), RELEASE)
    first, second = [answer.vector for answer in said if judges(answer)]
    return bool(np.array_equal(first, second)) and set(draws.values()) == {1}


def test_a_silo_judges_one_model_for_one_charge(hospitals, draws):
    """
    A coordinator that asks about another model gets the first answer once more.
    """
    assert asked_again(hospitals, draws)


def test_a_silo_that_draws_whenever_it_is_asked_is_found(hospitals, draws, monkeypatch):
    """
    Broken twin: the second time it looks neither into its outbox nor into its ledger.
    """
    sound = Once.released

    def released(self, request, draw, *, keep):
        if self.silo.ledger.state(request.txid) is None:
            return sound(self, request, draw, keep=keep)
        with monkeypatch.context() as forged:
            forged.setattr(
                SiloLedger, "reservation", lambda *_: mint_reservation(request.txid, request.lines, test=False)
            )
            return Kept("", draw())

    monkeypatch.setattr(Once, "released", released)
    assert not asked_again(hospitals, draws)


def test_no_plan_no_figures(hospitals, draws):
    """
    A coordinator that asks for figures of a plan without any is refused, and so is one that gives them up.
    """
    asked = []

    def curious(letter, answering):
        if letter.action == "train" and letter.number("round") == 0:
            asked.append(answering(Letter("judge", letter.fields, letter.vector)))
            asked.append(answering(Letter("forfeit", {**letter.fields, "rounds": "[1]"})))
        return answering(letter)

    plan, _ = planned(hospitals.file)
    with hospitals.sites() as sites:
        hospitals.run(Lines(sites, {"east": curious}))
    assert [answer.action for answer in asked] == ["refused", "refused"]
    assert hospitals.states(plan.run)["east"] == ROUNDS
    assert len(draws) == 3


def test_without_noise_of_its_own_no_figure_leaves_a_silo(hospitals, draws, monkeypatch):
    """
    Every silo draws once for its figures; a broken twin that only adds up draws nothing, and is seen.
    """
    with hospitals.sites() as sites:
        hospitals.run(Lines(sites), RELEASE)
        assert sum(metric(txid) for txid, _ in draws) == 3
        draws.clear()
        monkeypatch.setattr(judging.released_metrics, "_noised", lambda *_: np.zeros(3))
        hospitals.run(Lines(sites), RELEASE, "seed=2")
    assert sum(metric(txid) for txid, _ in draws) == 0
