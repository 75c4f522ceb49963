"""Rounds of whoever is done: nobody waits for the slowest, every account is charged for its own updates, and no crash
draws twice or counts twice."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from machines import NAMES, Killed, Lines, trains
from test_machine_faults import dies
from whole_runs import model, planned

from sordino.core.errors import BudgetRefused, ConfigError, EngineError, PrivacyError
from sordino.experiment.folder import RunFolder
from sordino.experiment.remote import federation
from sordino.experiment.remote.attendance import Attendance
from sordino.experiment.remote.first_come import FirstComeBooks
from sordino.experiment.run import run
from sordino.experiment.site.member import Member
from sordino.experiment.site.outbox import Outbox
from sordino.federation.post import refusal, unanswered
from sordino.ledger import Ledger
from sordino.ledger.silo import SiloLedger

SIZE, ROUNDS, CAP = 2, 6, 6
TERMS = (
    f"rounds={ROUNDS}",
    f"sampling={{ buffered={{ size={SIZE}, per_client={CAP}, concurrency=3, arrivals='first_come' }} }}",
)


@dataclass
class Paced(Lines):
    """A post whose sites take their time, by a clock that moves when somebody waits."""

    pace: dict[str, float] = field(default_factory=dict)
    now: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)

    def mail(self):
        return PacedMail(self)


class Bunched(Paced):
    """All that is there comes at once."""

    def mail(self):
        return BunchedMail(self)


@dataclass
class PacedMail:
    post: Paced
    due: list = field(default_factory=list)
    sent: int = 0

    def send(self, letters, timeout):
        for address, letter in letters.items():
            start = max(self.post.now, self.post.busy.get(address, 0.0))
            self.post.busy[address] = start + self.post.pace.get(address, 1.0)
            self.sent += 1
            heapq.heappush(self.due, (self.post.busy[address], self.sent, address, letter, timeout))

    def answers(self, wait):
        del wait
        if self.due:
            self.post.now, _, address, letter, timeout = heapq.heappop(self.due)
            answers = dict(self.post.ask({address: letter}, timeout))
            yield address, letter, answers.get(address) or unanswered(timeout)


class BunchedMail(PacedMail):
    def answers(self, wait):
        while self.due:
            yield from super().answers(wait)


def states(machines, plan):
    """How often each fate is met in each ledger, and the coordinator's by silo."""
    found = {name: Counter(text.split()[1] for text in texts) for name, texts in machines.states(plan.run).items()}
    with Ledger(machines.places()[""], read_only=True) as ledger:
        for charge in ledger.charges(plan.run):
            found.setdefault("of " + charge.lines[0].account, Counter())[charge.state] += 1
    return found


def used(machines, plan):
    """Updates in rounds, by silo and version, as the coordinator's ledger tells it."""
    with Ledger(machines.places()[""], read_only=True) as ledger:
        names = {charge.txid: (charge.lines[0].account, charge.round) for charge in ledger.charges(plan.run)}
        return [names[entry.txid] for entry in ledger.history() if entry.kind == "committed"]


def test_nobody_waits_for_the_slowest(hospitals, draws):
    """
    A silo nine times as slow as the others takes part when it is done; each pays for the cap, and is charged for what
    it sent; the run lasts as long as the fast ones take.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    with hospitals.sites() as sites:
        post = Paced(sites, pace={"east": 1.0, "north": 1.1, "south": 4.5})
        result = hospitals.run(post, *TERMS)
    come = used(hospitals, plan)
    assert len(come) == SIZE * ROUNDS
    for number in range(ROUNDS):
        both = come[number * SIZE : (number + 1) * SIZE]
        assert len({silo for silo, _ in both}) == SIZE
        assert all(version <= number for _, version in both)
    counts = Counter(silo for silo, _ in come)
    assert counts["south"] < counts["east"]
    assert any(version < number // SIZE for number, (_, version) in enumerate(come))
    assert post.now < 4.5 * ROUNDS / 2
    assert all(silo["releases"] == CAP for silo in result.summary["silos"])
    for claim in result.claims:
        assert sum(count for _, count in claim.planned) == CAP
        assert sum(count for _, count in claim.events) <= CAP
    assert max(draws.values()) == 1
    hospitals.hold(plan.run, draws)


KILLS = {
    "before it asks": lambda m: dies(m, FirstComeBooks, "due", third("due"), after=False),
    "after it charged": lambda m: dies(m, FirstComeBooks, "due", third("due"), after=True),
    "after an update came": lambda m: dies(m, FirstComeBooks, "brought", third("brought"), after=True),
    "after it kept one": lambda m: dies(m, FirstComeBooks, "keep", third("keep"), after=True),
    "before it saves": lambda m: dies(m, RunFolder, "save", lambda _, state: state.round == 3, after=False),
    "after it saved": lambda m: dies(m, RunFolder, "save", lambda _, state: state.round == 3, after=True),
    "before it publishes": lambda m: dies(m, FirstComeBooks, "published", third("published"), after=False),
    "after it published": lambda m: dies(m, FirstComeBooks, "published", third("published"), after=True),
    "before all agree": lambda m: dies(m, FirstComeBooks, "agree", lambda *_: True, after=False),
    "after all agreed": lambda m: dies(m, FirstComeBooks, "agree", lambda *_: True, after=True),
}


def third(_name):
    calls = []

    def when(*_):
        calls.append(1)
        return len(calls) == 4

    return when


@pytest.mark.parametrize("moment", KILLS)
def test_a_coordinator_that_is_killed_loses_and_doubles_nothing(hospitals, draws, monkeypatch, moment):
    """
    Its ledger is the buffer: what had come is in the rounds it would have been in, once, and the rest is asked again.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    pace = {"east": 1.0, "north": 1.1, "south": 3.7}
    with hospitals.sites() as sites:
        with monkeypatch.context() as patch:
            KILLS[moment](patch)
            with pytest.raises(Killed):
                hospitals.run(Paced(sites, pace=pace), *TERMS)
        before = used(hospitals, plan)
        result = hospitals.run(Paced(sites, pace=pace), *TERMS)
    come = used(hospitals, plan)
    assert come[: len(before)] == before
    assert len(set(come)) == len(come) >= SIZE * ROUNDS
    assert result.summary["silos_away"] == []
    assert max(draws.values()) == 1
    assert len(draws) == len(come) or states(hospitals, plan)[""]["forfeited"]
    hospitals.hold(plan.run, draws)


@pytest.mark.parametrize("twin", [False, True])
def test_a_round_that_is_made_again_is_the_same(hospitals, monkeypatch, twin):
    """
    The order in which updates came is in the ledger: killed between its bytes and its checkpoint, a round is the same
    again. A twin that forgets which version an update started from makes another one.
    """
    made, saved = [], RunFolder.save

    def save(self, state):
        if state.round == 3:
            made.append(state.server.model.copy())
            if len(made) == 1:
                raise Killed
        saved(self, state)

    monkeypatch.setattr(RunFolder, "save", save)
    pace = {"east": 1.0, "north": 1.1, "south": 1.7}
    with hospitals.sites() as sites:
        with pytest.raises(Killed):
            hospitals.run(Paced(sites, pace=pace), *TERMS)
        if twin:
            sound = federation.remembered
            monkeypatch.setattr(federation, "remembered", lambda *a: aged(sound(*a)))
        hospitals.run(Paced(sites, pace=pace), *TERMS)
    assert np.array_equal(*made) is not twin


def aged(memory):
    memory.came[:] = [replace(come, version=0) for come in memory.came]
    return memory


MOMENTS = {
    "granted": lambda m: dies(m, SiloLedger, "grant", lambda s, r: (s.name, r.round) == ("east", 1), after=True),
    "drawn": lambda m: dies(
        m, Member, "_update", lambda s, _, number, __: (s.silo.name, number) == ("east", 1), after=True
    ),
    "kept": lambda m: dies(
        m, Outbox, "keep", lambda s, txid, _: s.folder.parent.name == "east" and txid.endswith("/1"), after=True
    ),
    "handed over": lambda m: dies(
        m, SiloLedger, "hand_over", lambda s, txid, _: s.name == "east" and txid.endswith("/1"), after=True
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_silo_that_is_killed_loses_one_update(hospitals, draws, monkeypatch, moment):
    """
    It is spent, takes its place in a round with nothing in it, and is never drawn again; or it was safe and comes.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    MOMENTS[moment](monkeypatch)
    with hospitals.sites() as sites:
        result = hospitals.run(Paced(sites), *TERMS)
    assert "east is back" in hospitals.told
    found = states(hospitals, plan)
    assert result.summary["rounds_lost"] == (0 if moment == "handed over" else 1)
    assert found["of east"]["forfeited"] >= result.summary["rounds_lost"]
    assert max(draws.values()) == 1
    hospitals.hold(plan.run, draws)


def test_when_all_lose_theirs_the_run_goes_on(hospitals, draws, monkeypatch):
    """
    A version that every silo lost is a round without updates, and no dead end.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    dies(monkeypatch, SiloLedger, "grant", lambda _, request: request.round == 1, after=True, once=False)
    with hospitals.sites() as sites:
        result = hospitals.run(Paced(sites), *TERMS)
    assert result.summary["rounds_lost"] >= SIZE
    hospitals.hold(plan.run, draws)


def test_a_run_that_nobody_adds_to_stops_and_goes_on_later(hospitals, draws):
    """
    Two of three are needed: with two of them gone it says so, and the same command goes on with what had come.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    quiet = {"north", "south"}

    def gone(name):
        return lambda letter, answering: None if name in quiet and letter.action != "leave" else answering(letter)

    with hospitals.sites() as sites:
        faults = {name: gone(name) for name in NAMES}
        quiet.clear()
        post = Paced(sites, faults)

        def vanish(letter, answering):
            if letter.action == "train" and letter.number("round") >= 2:
                quiet.update({"north", "south"})
            return None if quiet else answering(letter)

        post.faults = {**faults, "north": vanish}
        with pytest.raises(EngineError, match=r"updates, and none came for 0\.3 s; the same command goes on"):
            hospitals.run(post, *TERMS, timeout=0.3)
        quiet.clear()
        hospitals.run(Paced(sites), *TERMS)
    assert len(used(hospitals, plan)) >= SIZE * ROUNDS
    hospitals.hold(plan.run, draws)


def test_an_answer_that_comes_twice_counts_once(hospitals, draws):
    """
    All join anew while letters are on their way, so that some are asked twice: one update each all the same.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    quiet = [0]

    def away(letter, answering):
        if letter.action == "train" and letter.number("round") == 1 and not quiet[0]:
            quiet[0] = 4
        quiet[0] = max(1, quiet[0] - 1) if quiet[0] else 0
        return None if quiet[0] > 1 else answering(letter)

    with hospitals.sites() as sites:
        hospitals.run(Paced(sites, {"east": away}, pace={"south": 5.0}), *TERMS)
    come = used(hospitals, plan)
    assert "east is back" in hospitals.told
    assert len(set(come)) == len(come)
    assert max(draws.values()) == 1
    hospitals.hold(plan.run, draws)


def test_a_coordinator_that_was_taken_over_stops(hospitals, draws):
    """
    The same command, given twice by mistake: the first process does not take the run back from the second.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    begun = []
    with hospitals.sites() as sites:

        def nested(letter, answering):
            if trains(letter, 1) and not begun:
                begun.append(True)
                with pytest.MonkeyPatch.context() as patch:
                    dies(patch, RunFolder, "save", lambda _, state: state.round == 2, after=True)
                    with pytest.raises(Killed):
                        hospitals.run(Paced(sites, pace={"south": 3.7}), *TERMS)
            return answering(letter)

        with pytest.raises(PrivacyError, match="was taken over by a newer process"):
            hospitals.run(Paced(sites, {"east": nested}, pace={"south": 3.7}), *TERMS)
        hospitals.run(Paced(sites), *TERMS)
    come = used(hospitals, plan)
    assert len(set(come)) == len(come)
    hospitals.hold(plan.run, draws)


def test_who_refuses_is_asked_less_and_less(hospitals, draws):
    """
    Two of three refuse to train: the run waits its time, and does not fill everybody's ledgers meanwhile.
    """
    plan, _ = planned(hospitals.file, *TERMS)

    def no(letter, answering):
        return refusal(BudgetRefused("no")) if letter.action == "train" else answering(letter)

    with hospitals.sites() as sites:
        with pytest.raises(EngineError, match="none came for 1 s"):
            hospitals.run(Paced(sites, {"south": no, "north": no}), *TERMS, timeout=1.0)
        with Ledger(hospitals.places()[""], read_only=True) as ledger:
            assert sum(entry.kind == "run-opened" for entry in ledger.history()) <= 4
        hospitals.run(Paced(sites), *TERMS)
    hospitals.hold(plan.run, draws)


def test_who_is_at_work_is_left_alone_when_another_is_back(hospitals, draws):
    """
    One silo blinks while another trains for long: nobody waits for that one, and all ledgers agree in the end.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    blinked, busy = [], []

    def blink(letter, answering):
        if trains(letter, 1) and not blinked:
            blinked.append(True)
            return None
        return answering(letter)

    def south(letter, answering):
        busy.append(letter.action)
        return answering(letter)

    with hospitals.sites() as sites:
        hospitals.run(Paced(sites, {"east": blink, "south": south}, pace={"south": 100.0}), *TERMS)
    assert "east is back" in hospitals.told
    assert "train" not in busy  # it was never done
    assert busy.count("join") == 2  # at the start and in the end
    hospitals.hold(plan.run, draws)


class Never(Counter):
    """Counts nothing."""

    def __getitem__(self, _):
        return 0


@pytest.mark.parametrize("twin", [False, True])
def test_no_silo_sends_more_than_it_paid_for(hospitals, draws, monkeypatch, twin):
    """
    Two updates each, however fast one is. A twin that does not count is stopped by the ledger at the third.
    """
    terms = ("rounds=6", "sampling={ buffered={ size=1, per_client=2, concurrency=3, arrivals='first_come' } }")
    plan, _ = planned(hospitals.file, *terms)
    if twin:
        sound = federation.remembered
        monkeypatch.setattr(federation, "remembered", lambda *a: replace(sound(*a), begun=Never()))
    with hospitals.sites() as sites:
        post = Paced(sites, pace={"east": 0.01})
        if twin:
            with pytest.raises(BudgetRefused, match="east"):
                hospitals.run(post, *terms)
        else:
            hospitals.run(post, *terms)
    come = Counter(silo for silo, _ in used(hospitals, plan))
    assert come == ({"east": 2} if twin else dict.fromkeys(NAMES, 2))
    assert max(draws.values()) == 1


ENDS = {
    "never": lambda _: None,
    "before it drops it": lambda m: dies(m, FirstComeBooks, "_drop", late, after=False),
    "after it dropped it": lambda m: dies(m, FirstComeBooks, "_drop", late, after=True),
    "before silos agree": lambda m: dies(m, Attendance, "agree", lambda *_: True, after=False),
}


def late(books, come):
    return books.memory.came.index(come) >= SIZE * ROUNDS


@pytest.mark.parametrize("moment", ENDS)
def test_what_came_after_the_last_round_is_not_kept(hospitals, draws, monkeypatch, moment):
    """
    It is charged, and in no model: once all have agreed its bytes are gone, as are those of all others.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    ENDS[moment](monkeypatch)
    with hospitals.sites() as sites:
        if moment != "never":
            with pytest.raises(Killed):
                hospitals.run(Bunched(sites), *TERMS)
        hospitals.run(Bunched(sites), *TERMS)
    come = used(hospitals, plan)
    assert len(set(come)) == len(come) == SIZE * ROUNDS + 1
    with Ledger(hospitals.places()[""], read_only=True) as ledger:
        kept = [charge.txid for charge in ledger.charges(plan.run) if ledger.artefact(charge.txid) is not None]
    assert kept == []
    hospitals.hold(plan.run, draws)


FIGURES = (*TERMS, "evaluation.release={ noise_multiplier = 4.0, loss = 2.0 }")


@pytest.mark.parametrize("post", [Paced, Bunched])
def test_figures_are_released_though_a_silo_comes_back_just_before(hospitals, draws, post):
    """
    Away in the last round, and there again when figures are due: then all join anew, before anybody is charged.
    """
    plan, _ = planned(hospitals.file, *FIGURES)
    away = []

    def last(letter, answering):
        if trains(letter, ROUNDS - 1):
            away.append(True)
        there = not away or len(used(hospitals, plan)) >= SIZE * ROUNDS
        return answering(letter) if there else None

    with hospitals.sites() as sites:
        result = hospitals.run(post(sites, {"east": last}, pace={"east": 0.9}), *FIGURES)
    assert away
    assert hospitals.told.count("east is back") == 1
    assert result.summary["released_metrics"]["away"] == []
    hospitals.hold(plan.run, draws)


def test_figures_are_released_though_a_silo_was_away(hospitals, draws):
    """
    They are one charge of all: who still worked under an older fence than the silo that was back joins under its own.
    """
    plan, _ = planned(hospitals.file, *FIGURES)
    blinked = []

    def blink(letter, answering):
        if trains(letter, 1) and not blinked:
            blinked.append(True)
            return None
        return answering(letter)

    with hospitals.sites() as sites:
        result = hospitals.run(Paced(sites, {"east": blink}, pace={"south": 100.0}), *FIGURES)
    assert "east is back" in hospitals.told
    assert sorted(silo["name"] for silo in result.summary["released_metrics"]["silos"]) == list(NAMES)
    assert sum(text == "metrics committed" for text in hospitals.states(plan.run)["south"]) == 1
    hospitals.hold(plan.run, draws)


def test_in_one_process_the_schedule_stands_in_at_the_same_price(hospitals):
    """
    A simulation charges what its schedule says, and claims the cap.
    """
    plan, population = planned(hospitals.file, *TERMS)
    folder = hospitals.root / "elsewhere"
    folder.mkdir()
    result = run(plan, population, "", hospitals.root / "alone", base=folder)
    assert np.isfinite(model(result)).all()
    assert {sum(count for _, count in claim.planned) for claim in result.claims} == {CAP}
    assert result.summary["epsilon"] == max(claim.epsilon for claim in result.claims)


REFUSED = {
    "noise at the coordinator": (
        PrivacyError,
        "the time that a client takes decide",
        (
            *TERMS,
            "privacy={ unit='client', noise_at='coordinator', noise_multiplier=0.5, delta=1e-3 }",
            "stages=[{ clip={ norm=0.5 } }]",
            "local={ lr=0.5, epochs=1 }",
        ),
    ),
    "a cap that may leave the last alone": (
        ConfigError,
        "may fill only 5 buffers of 2",
        (*TERMS, "sampling.buffered.per_client=5"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_first_come_refuses(hospitals, case):
    kind, words, terms = REFUSED[case]
    with pytest.raises(kind, match=words):
        planned(hospitals.file, *terms)
