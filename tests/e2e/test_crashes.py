"""A run that dies goes on where it was, draws nothing twice, and claims no less than a run that did not die."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from whole_runs import model, one_line, planned, ran, sordino

from sordino.core.errors import ConfigError, PrivacyError
from sordino.experiment import build as building
from sordino.experiment.books import LedgerBooks
from sordino.experiment.folder import RunFolder
from sordino.experiment.run import run
from sordino.ledger import Ledger, verify
from sordino.privacy.noise import SeededNoise

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def crash():
    """The crash study, `benchmarks/crash.py`."""
    spec = importlib.util.spec_from_file_location("crash_study", ROOT / "benchmarks" / "crash.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["crash_study"] = module
    spec.loader.exec_module(module)
    return module


def test_kills_at_random_moments_leave_the_books_true(crash, tmp_path):
    """
    The study, shortened: after each of six kills every check of the audit holds, and resumed runs claim enough.
    """
    found = crash.study(6, tmp_path, rounds=6)

    assert found["problems"] == []
    assert found["kills"] == 6


def die_once_after_drawing(monkeypatch, marker: Path) -> None:
    """The process is killed when it wants to commit what it has drawn; the next one is not."""
    sound = LedgerBooks.commit

    def commit(self, reservation, artefact):
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        sound(self, reservation, artefact)

    monkeypatch.setattr(LedgerBooks, "commit", commit)


@pytest.mark.parametrize("number", [0, 1])
def test_what_was_drawn_before_a_kill_is_forfeited(crash, tmp_path, monkeypatch, number):
    """
    The worst moment, after the draw and before the commit: the charge stays, and nothing is drawn for it again.
    """
    die_once_after_drawing(monkeypatch, tmp_path / "died")
    case = crash.cases(tmp_path, rounds=3)(number)

    assert case.attempt(None)
    assert case.audit() == []
    assert list(case.states.values()) == ["reserved"]
    assert not case.attempt(None)
    assert case.audit() + case.ended() == []
    assert list(case.states.values()) == ["forfeited", "committed", "committed"]


def test_a_run_that_draws_again_is_found(crash, tmp_path, monkeypatch):
    """
    Negative control: books that draw a forfeited release once more fail the study's audit.
    """
    die_once_after_drawing(monkeypatch, tmp_path / "died")
    case = crash.cases(tmp_path, rounds=3, twin=True)(0)

    assert case.attempt(None)
    assert not case.attempt(None)

    assert any(problem.startswith("drawn twice") for problem in case.audit())


class Stop(Exception):
    """A crash that can be caught."""


def stop_in_round(monkeypatch, number: int) -> None:
    """Every run stops before it commits this round."""
    sound = LedgerBooks.commit

    def commit(self, reservation, artefact):
        if reservation.txid.endswith(f"/{number}"):
            raise Stop
        sound(self, reservation, artefact)

    monkeypatch.setattr(LedgerBooks, "commit", commit)


def interrupted(heart: Path, monkeypatch, *overrides: str):
    """A run of three rounds that stopped in its second."""
    plan, population = planned(heart, *overrides)
    with monkeypatch.context() as patch:
        stop_in_round(patch, 1)
        with pytest.raises(Stop):
            run(plan, population, "", heart.parent / "runs")
    return plan, population, RunFolder(heart.parent / "runs" / f"tiny-{plan.digest[:8]}")


def test_a_resumed_run_claims_what_an_unbroken_one_does(heart, monkeypatch):
    """
    The claim is that of the whole plan, and the progress starts where it was.
    """
    plan, population, folder = interrupted(heart, monkeypatch)
    seen = []

    result = run(plan, population, "", heart.parent / "runs", progress=seen.append)

    assert result.summary["epsilon"] == plan.epsilon
    assert [step.round for step in seen] == [2, 3]
    assert [step.spent for step in seen] == sorted(step.spent for step in seen)
    assert verify(folder.ledger).ok


def test_what_was_committed_is_used_and_not_drawn_again(heart, monkeypatch):
    """
    A crash after the commit and before the checkpoint: the resumed run takes the same bytes, to the same model.
    """
    whole = model(ran(heart, "simulation.noise_seed=1"))
    plan, population = planned(heart, "simulation.noise_seed=1")
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", lambda self, state: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            run(plan, population, "", heart.parent / "again")

    result = run(plan, population, "", heart.parent / "again")

    assert np.array_equal(model(result), whole)
    assert result.summary["test"]


def noise_of(heart: Path, monkeypatch, source: type[SeededNoise]) -> list[bytes]:
    """Every draw of an interrupted and resumed run."""
    drawn: list[bytes] = []

    class Recording(source):
        def normal(self, permit, std, size):
            noise = super().normal(permit, std, size)
            drawn.append((noise / std).tobytes())
            return noise

    monkeypatch.setattr(building, "source_of", lambda experiment: Recording(1))
    plan, population, _ = interrupted(heart, monkeypatch, "simulation.noise_seed=1")
    run(plan, population, "", heart.parent / "runs")
    return drawn


def test_no_noise_is_used_twice_over_a_resume(heart, monkeypatch):
    """
    Seeded noise too belongs to its release: an interrupted and resumed run repeats none of it.
    """
    drawn = noise_of(heart, monkeypatch, SeededNoise)

    assert len(drawn) == 4 * 3
    assert len(set(drawn)) == len(drawn)


def test_noise_that_starts_over_at_a_resume_is_found(heart, monkeypatch):
    """
    Negative control: one stream per process, seeded alike, repeats itself after the resume.
    """

    class StartsOver(SeededNoise):
        def _stream(self, permit):
            return self._coins

    drawn = noise_of(heart, monkeypatch, StartsOver)

    assert len(set(drawn)) < len(drawn)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_a_damaged_checkpoint_is_one_line(heart, monkeypatch, capsys, content):
    """
    A checkpoint that cannot be read stops the run; nothing is drawn in its place.
    """
    _, _, folder = interrupted(heart, monkeypatch)
    (folder.path / "checkpoint.npz").write_bytes(content)

    code, out, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs", "--json")

    assert (code, out) == (2, "")
    assert "checkpoint.npz" in one_line(error)


def test_a_lost_checkpoint_never_means_a_second_draw(heart, monkeypatch, capsys):
    """
    Without its checkpoint a run cannot go on: what was published is not drawn again.
    """
    _, _, folder = interrupted(heart, monkeypatch)
    (folder.path / "checkpoint.npz").unlink()

    code, _, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs")

    assert code == 2
    assert "never drawn again" in one_line(error)


@pytest.mark.parametrize("content", ["", "{", "3", '"text"'])
@pytest.mark.parametrize("name", ["summary.json", "plan.json"])
def test_a_damaged_file_of_the_run_folder_is_one_line(heart, capsys, name, content):
    """
    A summary or plan that cannot be read is said, and not overwritten.
    """
    folder = ran(heart).folder
    (folder / name).write_text(content, encoding="utf-8")

    code, _, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs")

    assert code == 2
    assert name in one_line(error)
    assert (folder / name).read_text(encoding="utf-8") == content


def test_a_folder_of_another_plan_is_refused(heart):
    """
    A run folder belongs to the plan whose digest it holds.
    """
    plan, population = planned(heart)
    folder = ran(heart).folder
    other = json.loads((folder / "plan.json").read_text(encoding="utf-8")) | {"digest": "0" * 64}
    (folder / "plan.json").write_text(json.dumps(other), encoding="utf-8")

    with pytest.raises(ConfigError, match="another plan"):
        run(plan, population, "", heart.parent / "runs")


def test_a_trainer_that_releases_more_than_was_charged_is_stopped(heart, monkeypatch, unwatched):
    """
    What ran is what was accounted: one step more than planned finds no permit, and no second round starts.
    """
    from sordino.experiment.settings import record_at_silo

    sound = record_at_silo.train_private

    def twice(*arguments, **terms):
        sound(*arguments, **terms)
        return sound(*arguments, **terms)

    monkeypatch.setattr(record_at_silo, "train_private", twice)
    with pytest.raises(PrivacyError, match="not charged for another release"):
        ran(heart)

    (folder,) = (heart.parent / "runs").iterdir()
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        (name,) = ledger.runs()
        assert [charge.state for charge in ledger.charges(name)] == ["reserved"]
        assert min(claim.epsilon for claim in ledger.claims(name)) > 0
