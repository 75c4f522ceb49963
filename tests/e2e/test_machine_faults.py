"""Silos and coordinators that die, hang, lie and come back: nothing is drawn twice, and all ledgers stay true."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from machines import Killed, Lines, Machines
from whole_runs import model, planned

from sordino.experiment.folder import RunFolder
from sordino.experiment.remote.books import RemoteBooks
from sordino.federation.post import Letter
from sordino.privacy.noise import SystemNoise

FILE = """
name = "faults"
rounds = 3
ledger = "federation.db"
[budget]
epsilon = 100.0
delta = 1e-3
[data.table]
path = '{path}'
label = "ill"
client = "hospital"
features = ["a"]
ranges = {{ a = [0, 1] }}
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
noise_multiplier = 2.0
delta = 1e-5
silos_per_person = 1
[local]
lr = 0.5
clip = 1.0
[strategy.fedavg]
"""
SILOS = ("east", "north", "south")
ROUNDS = ["0 committed", "1 committed", "2 committed"]


@pytest.fixture
def machines(tmp_path, unwatched):
    """Three hospitals with twenty records each, enrolled with 8."""
    del unwatched
    rows = "".join(f"{i % 7 / 7:.3f},{i % 2},{SILOS[i % 3]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("a,ill,hospital\n" + rows)
    file = tmp_path / "faults.toml"
    file.write_text(FILE.format(path=tmp_path / "rows.csv"))
    return Machines.enrolled(file, SILOS, data={"path": str(tmp_path / "rows.csv")})


@pytest.fixture
def draws(monkeypatch):
    """How often noise was drawn for each silo and release."""
    drawn = Counter()
    sound = SystemNoise.normal

    def normal(self, permit, std, size):
        drawn[permit.txid, permit.stream] += 1
        return sound(self, permit, std, size)

    monkeypatch.setattr(SystemNoise, "normal", normal)
    return drawn


def holds(machines, run, draws, away=()):
    """Every ledger verifies, all tell of the same spending, nobody is over a limit, and nothing was drawn twice."""
    assert machines.problems() == []
    assert machines.disagreements(run, away=away) == []
    assert set(draws.values()) <= {1}


def trains(letter, number):
    return letter.action == "train" and letter.number("round") == number


class TestCoordinatorIsKilled:
    """Between any two steps of a round; the same command then goes on."""

    MOMENTS = ("reserve", "reserved", "letters", "half", "answers", "committed", "saved", "published")

    def kill(self, monkeypatch, moment, number=1):
        end = f"/{number}"

        def before(kind, name, moments):
            true = getattr(kind, name)

            def broken(self, *arguments, **terms):
                txid = arguments[0] if arguments and isinstance(arguments[0], str) else ""
                if moment == moments[0] and txid.endswith(end):
                    raise Killed
                found = true(self, *arguments, **terms)
                if moment == moments[-1] and txid.endswith(end):
                    raise Killed
                return found

            monkeypatch.setattr(kind, name, broken)

        before(RemoteBooks, "reserve", ("reserve", "reserved"))
        before(RemoteBooks, "published", ("saved", "published"))
        commit, save, ask = RemoteBooks.commit, RunFolder.save, Lines.ask

        def committing(self, reservation, artefact):
            if self._round.txid.endswith(end) and moment == "answers":
                raise Killed
            commit(self, reservation, artefact)

        def saving(self, state):
            if state.round == number + 1 and moment == "committed":
                raise Killed
            save(self, state)

        def asking(self, letters, timeout):
            first = next(iter(letters.values()), Letter(""))
            for count, answer in enumerate(ask(self, letters, timeout)):
                if trains(first, number) and (moment, count) in {("letters", 0), ("half", 1)}:
                    raise Killed  # with "letters" one site has answered, and nobody has read it
                yield answer

        monkeypatch.setattr(RemoteBooks, "commit", committing)
        monkeypatch.setattr(RunFolder, "save", saving)
        monkeypatch.setattr(Lines, "ask", asking)

    @pytest.mark.parametrize("moment", MOMENTS)
    def test_no_round_is_lost_or_drawn_twice(self, machines, draws, monkeypatch, moment):
        """
        Silos keep what they drew: the restarted coordinator gets the same bytes, and all rounds are committed.
        """
        plan, _ = planned(machines.file)
        with machines.sites() as sites:
            with monkeypatch.context() as patch, pytest.raises(Killed):
                self.kill(patch, moment)
                machines.run(Lines(sites))
            before = dict(draws)
            result = machines.run(Lines(sites))
        assert result.resumed_at == (2 if moment in ("saved", "published") else 1)
        assert machines.states(plan.run) == dict.fromkeys(["", *SILOS], ROUNDS)
        holds(machines, plan.run, draws)
        assert len(draws) == 9
        assert before.items() <= draws.items()
        assert result.summary["silos_away"] == []
        assert result.summary["rounds_lost"] == 0
