"""Silos and coordinators that die, hang and come back: nothing is drawn twice, and all ledgers stay true."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace

import pytest
from machines import NAMES, Killed, Lines, trains
from whole_runs import planned

from sordino.core.errors import EngineError, VerificationError
from sordino.experiment.flower.local_grid import LocalGrid
from sordino.experiment.flower_app import client_app
from sordino.experiment.folder import RunFolder
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.site.member import Member
from sordino.experiment.site.outbox import Outbox
from sordino.federation.engines import flower
from sordino.federation.engines.flower import GridPost
from sordino.ledger import Ledger
from sordino.ledger.silo import SiloLedger

ROUNDS = ["0 committed", "1 committed", "2 committed"]


def dies(monkeypatch, kind, name, when, *, after, once=True):
    """A process is killed before or after it does something."""
    true, done = getattr(kind, name), []

    def broken(self, *arguments, **terms):
        hit = not (once and done) and when(self, *arguments)
        if hit:
            done.append(True)
        if hit and not after:
            raise Killed
        found = true(self, *arguments, **terms)
        if hit:
            raise Killed
        return found

    monkeypatch.setattr(kind, name, broken)


def answered(letters, count):
    """Die when so many answers of the second round have arrived, and the last of them was not read yet."""

    def asking(self, asked, timeout):
        for number, answer in enumerate(letters(self, asked, timeout), 1):
            if trains(next(iter(asked.values()))) and number == count:
                raise Killed
            yield answer

    return asking


def second(_, txid, *__):
    return txid.endswith("/1")


KILLS = {
    "before it reserves": lambda m: dies(m, RemoteBooks, "reserve", second, after=False),
    "before it asks": lambda m: dies(m, RemoteBooks, "reserve", second, after=True),
    "after one silo answered": lambda m: m.setattr(Lines, "ask", answered(Lines.ask, 1)),
    "after two silos answered": lambda m: m.setattr(Lines, "ask", answered(Lines.ask, 2)),
    "before it commits": lambda m: dies(
        m, RemoteBooks, "commit", lambda books, *_: second(0, books._round.txid), after=False
    ),
    "before it saves": lambda m: dies(m, RunFolder, "save", lambda _, state: state.round == 2, after=False),
    "before it publishes": lambda m: dies(m, RemoteBooks, "published", second, after=False),
    "after it published": lambda m: dies(m, RemoteBooks, "published", second, after=True),
    "before all agree": lambda m: dies(m, RemoteBooks, "agree", lambda *_: True, after=False),
    "after all agreed": lambda m: dies(m, RemoteBooks, "agree", lambda *_: True, after=True),
}


@pytest.mark.parametrize("moment", KILLS)
def test_a_coordinator_that_is_killed_loses_no_round(hospitals, draws, monkeypatch, moment):
    """
    Silos keep what they drew: the same command gets the same bytes, and those who were not asked are asked now.
    """
    plan, _ = planned(hospitals.file)
    with hospitals.sites() as sites:
        with monkeypatch.context() as patch:
            KILLS[moment](patch)
            with pytest.raises(Killed):
                hospitals.run(Lines(sites))
        before = dict(draws)
        result = hospitals.run(Lines(sites))
    assert hospitals.states(plan.run) == dict.fromkeys(["", *NAMES], ROUNDS)
    assert (len(draws), before.items() <= draws.items()) == (9, True)
    assert (result.summary["silos_away"], result.summary["rounds_lost"]) == ([], 0)
    hospitals.hold(plan.run, draws)


MOMENTS = {
    "granted": (lambda m: dies(m, SiloLedger, "grant", lambda s, r: (s.name, r.round) == ("east", 1), after=True), 0),
    "drawn": (
        lambda m: dies(m, Member, "_update", lambda s, _, number, __: (s.silo.name, number) == ("east", 1), after=True),
        1,
    ),
    "kept": (
        lambda m: dies(
            m, Outbox, "keep", lambda s, txid, _: s.folder.parent.name == "east" and second(0, txid), after=True
        ),
        1,
    ),
    "handed over": (
        lambda m: dies(m, SiloLedger, "hand_over", lambda s, txid, _: s.name == "east" and second(0, txid), after=True),
        1,
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_silo_that_is_killed_comes_back_and_catches_up(hospitals, draws, monkeypatch, moment):
    """
    It counts the round as spent without a second draw, and takes part in the next one under a new fence.
    """
    plan, _ = planned(hospitals.file)
    kill, drawn = MOMENTS[moment]
    kill(monkeypatch)
    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites))
    assert "round 2: without east: did not answer within 3600 s" in hospitals.told
    assert "east is back" in hospitals.told
    states = hospitals.states(plan.run)
    assert states.pop("east")[1] == ("1 committed" if moment == "handed over" else "1 forfeited")
    assert set(map(tuple, states.values())) == {tuple(ROUNDS)}
    assert (len(draws), result.summary["silos_away"]) == (8 + drawn, [])
    hospitals.hold(plan.run, draws)


def test_a_silo_that_stays_away_is_said(hospitals, draws):
    """
    The others finish; the coordinator charged the one that is gone, whose own ledger has what it released.
    """
    plan, _ = planned(hospitals.file)
    alive = [True]

    def gone(letter, answering):
        alive[0] = alive[0] and not trains(letter)
        return answering(letter) if alive[0] else None

    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites, {"east": gone}))
        assert hospitals.run(Lines(sites), wait=0.0).fresh is False
    assert result.summary["silos_away"] == ["east"]
    states = hospitals.states(plan.run)
    assert states.pop("east") == ["0 committed"]
    assert set(map(tuple, states.values())) == {tuple(ROUNDS)}
    with Ledger(hospitals.places()[""], read_only=True) as ledger:
        assert [ledger.absent(f"{plan.run}/{i}") for i in range(3)] == [[], ["east"], ["east"]]
    hospitals.hold(plan.run, draws, away=("east",))


def test_a_silo_that_is_away_at_the_end_is_waited_for(hospitals, draws):
    """
    It comes back, counts as spent what was charged without it, and all ledgers agree.
    """
    plan, _ = planned(hospitals.file)
    knocks = []

    def gone(letter, answering):
        if knocks or trains(letter):
            knocks.append(letter.action)
        return answering(letter) if not knocks or knocks.count("hello") > 3 else None

    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites, {"east": gone}), wait=30.0)
    assert "waits up to 30 s for east, to compare ledgers" in hospitals.told
    assert result.summary["silos_away"] == []
    states = hospitals.states(plan.run)
    assert states.pop("east") == ["0 committed", "1 forfeited", "2 forfeited"]
    assert set(map(tuple, states.values())) == {tuple(ROUNDS)}
    hospitals.hold(plan.run, draws)


def test_too_few_stop_the_run_and_the_same_command_goes_on(hospitals, draws):
    """
    Nothing of the round is lost: who had answered sends the same again; then a smaller minimum goes on without one.
    """
    plan, _ = planned(hospitals.file)
    with hospitals.sites() as sites:

        def dead(letter, answering):
            return None if trains(letter) else answering(letter)

        with pytest.raises(EngineError, match=r"arrived=2 of 3 silos is less than the minimum of 3.*goes on from here"):
            hospitals.run(Lines(sites, {"east": dead}), minimum=3)
        assert hospitals.states(plan.run)["north"] == ROUNDS[:2]
        with pytest.raises(EngineError, match=r"sites=\['east'\] have not answered"):
            hospitals.run(Lines({name: sites[name] for name in NAMES[1:]}), minimum=3)
        without = {name: sites[name] for name in NAMES[1:]}
        result = hospitals.run(Lines(without), minimum=2)
    assert result.summary["silos_away"] == ["east"]
    assert "goes on without east, which has not answered within 0 s" in hospitals.told
    assert hospitals.states(plan.run)["south"] == ROUNDS
    hospitals.hold(plan.run, draws, away=("east",))


class SlowGrid(LocalGrid):
    """Virtual time: a node's reply to some messages is there only later; sleeping moves the clock."""

    def __init__(self, apps, slow):
        super().__init__(apps)
        self.now, self._slow, self._due = 0.0, slow, {}

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def push_messages(self, messages):
        messages = list(messages)
        numbers = list(super().push_messages(messages))
        for number, message in zip(numbers, messages, strict=True):
            self._due[number] = self.now + self._slow(message.metadata.dst_node_id, flower.letter_of(message))
        return numbers

    def pull_messages(self, message_ids):
        return super().pull_messages([number for number in message_ids if self._due[number] <= self.now])


def test_a_late_answer_is_dropped_and_the_round_waits_no_longer(hospitals, draws, monkeypatch):
    """
    A site that hangs answers after the time-out. Its update is never counted; its own ledger has charged the round.
    """
    plan, _ = planned(hospitals.file)
    counted, read = [], RemoteBooks.read

    def reading(self, plan, client, answer, size):
        update = read(self, plan, client, answer, size)
        counted.append((plan.round, self.terms.clients[client]))
        return update

    monkeypatch.setattr(RemoteBooks, "read", reading)
    with hospitals.members() as members:
        apps = {number: client_app(member.answer) for number, member in enumerate(members.values())}
        grid = SlowGrid(apps, lambda node, letter: 90.0 if node == 0 and trains(letter) else 0.5)
        monkeypatch.setattr(flower, "time", grid)
        result = hospitals.run(GridPost(grid), timeout=60.0)
    assert counted == [(number, name) for number in range(3) for name in NAMES if (number, name) != (1, "east")]
    assert 60.0 < grid.now < 90.0
    assert "round 2: without east: did not answer within 60 s" in hospitals.told
    assert hospitals.states(plan.run) == dict.fromkeys(["", *NAMES], ROUNDS)
    assert (len(draws), result.summary["silos_away"]) == (9, [])
    hospitals.hold(plan.run, draws)


def test_of_two_coordinators_at_once_only_one_spends(hospitals, draws):
    """
    While the first waits for its second round, another one starts on a copy of its ledger: silos follow the newer one.
    """
    plan, _ = planned(hospitals.file)
    other = hospitals.root / "other"

    def meanwhile(letter, answering):
        if trains(letter) and not other.exists():
            other.mkdir()
            copied(hospitals, other)
            elsewhere = replace(hospitals, told=[])
            elsewhere.run(Lines(sites), base=other, runs="other/runs")
        return answering(letter)

    with hospitals.sites() as sites:
        with pytest.raises(EngineError, match=r"arrived=0 of 3.*is not joined by this coordinator"):
            hospitals.run(Lines(sites, {"east": meanwhile}))
        for _ in range(2):
            with pytest.raises(VerificationError, match="rolled back"):
                hospitals.run(Lines(sites))
    assert len(draws) == 9
    assert set(draws.values()) == {1}
    assert hospitals.states(plan.run)["east"] == ROUNDS


def copied(hospitals, other):
    """A copy of the coordinator's ledger and run folders, as they are on the disk now."""
    with sqlite3.connect(hospitals.root / "federation.db") as whole, sqlite3.connect(other / "federation.db") as copy:
        whole.backup(copy)
    shutil.copytree(hospitals.root / "runs", other / "runs")


def test_a_ledger_that_was_put_back_does_not_start(hospitals, draws):
    """
    The silos have seen a later one, of another run.
    """
    with hospitals.sites() as sites:
        hospitals.run(Lines(sites))
        backup = (hospitals.root / "federation.db").read_bytes()
        hospitals.run(Lines(sites), "seed=2")
        drawn = len(draws)
        (hospitals.root / "federation.db").write_bytes(backup)
        with pytest.raises(VerificationError, match="rolled back"):
            hospitals.run(Lines(sites), "seed=3")
        (hospitals.root / "federation.db").unlink()
        with pytest.raises(VerificationError, match="rolled back"):
            hospitals.run(Lines(sites), "seed=3")
    assert len(draws) == drawn
