"""The run folder: whole or not at all, the same state back, no trace of who ran it."""

from __future__ import annotations

import getpass
import json
import socket

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.experiment.folder import RunFolder, environment
from sordino.experiment.rounds import State
from sordino.federation.averaging import TailState
from sordino.federation.strategies import strategies


def test_a_checkpoint_comes_back_to_the_bit(tmp_path):
    """
    Every strategy's memory, the average, the stages' memory and the round.
    """
    for name in strategies.names():
        server = strategies.example(name).init(np.array([0.1, -2.5], np.float32))
        server = strategies.example(name).step(server, np.array([0.3, 0.7], np.float32))
        state = State(server, TailState(np.array([1 / 3, 2.0]), 4), {"stages": [{"clip": {"norm": 0.1}}]}, 7)
        folder = RunFolder(tmp_path)

        folder.save(state)
        back = folder.load()

        assert (back.round, back.memory, back.average.count) == (7, state.memory, 4)
        assert np.array_equal(back.average.mean, state.average.mean)
        for key, array in server.to_arrays().items():
            assert np.array_equal(back.server.to_arrays()[key], array)


def test_there_is_no_checkpoint_before_the_first_and_after_the_end(tmp_path):
    """
    A finished run has nothing to resume.
    """
    folder = RunFolder(tmp_path)
    assert folder.load() is None
    (tmp_path / "checkpoint.npz").write_bytes(b"")

    folder.finish({"epsilon": 1.0})

    assert folder.load() is None
    assert folder.read("summary.json") == {"epsilon": 1.0}


def test_a_refused_run_is_taken_back_but_never_a_ledger(tmp_path):
    """
    `discard` removes what `begin` wrote; a ledger in the folder stays.
    """
    folder = RunFolder(tmp_path / "run")
    assert folder.begin("", {"digest": "a"})
    assert not folder.begin("", {"digest": "a"})
    folder.ledger.write_bytes(b"ledger")

    folder.discard()

    assert [file.name for file in folder.path.iterdir()] == ["ledger.db"]
    folder.ledger.unlink()
    folder.discard()
    assert not folder.path.exists()


def test_the_plan_is_written_last(tmp_path, monkeypatch):
    """
    A crash while the folder is begun leaves it as good as new: the next run begins it again.
    """
    folder = RunFolder(tmp_path / "run")
    monkeypatch.setattr("sordino.experiment.folder.environment", lambda: {}["gone"])
    with pytest.raises(KeyError):
        folder.begin("", {"digest": "a"})
    monkeypatch.undo()

    assert folder.finished("b") is None
    assert folder.begin("", {"digest": "b"})


def test_another_plan_is_refused(tmp_path):
    """
    Digests name plans.
    """
    folder = RunFolder(tmp_path)
    folder.begin("", {"digest": "a"})

    with pytest.raises(ConfigError, match="another plan"):
        folder.finished("b")


def test_the_environment_names_no_person_and_no_host():
    """
    Versions only.
    """
    text = json.dumps(environment())

    assert socket.gethostname() not in text
    assert f"/{getpass.getuser()}" not in text
    assert {"python", "platform", "packages"} == environment().keys()
