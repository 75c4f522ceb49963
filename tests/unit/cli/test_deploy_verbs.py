"""`sordino deploy` where nothing runs: what it writes, says and refuses. Real processes: `tests/e2e`."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from sordino.cli import main
from sordino.experiment.deploy import local, marks
from sordino.experiment.deploy.keeping import Part
from sordino.experiment.deploy.layout import read_coordinator

pytest.importorskip("flwr")


@pytest.fixture
def fed(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sites = ["--site", "north", "--site", "south", "--epsilon", "8", "--delta", "1e-5", "--port", str(port)]
    main(["deploy", "init", str(tmp_path / "fed"), *sites, "--test", "--json"])
    keys = json.loads(capsys.readouterr().out)["public"]
    assert set(keys) == {"coordinator", "north", "south"}
    return tmp_path / "fed"


def test_check_names_what_is_wrong_and_exits_with_5(fed, capsys):
    with pytest.raises(SystemExit) as left:
        main(["deploy", "check", str(fed), "--json"])
    assert left.value.code == 5
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("nobody has signed" in line for line in problems["coordinator"])
    assert any("cannot be reached" in line for line in problems["north"])


def test_a_signature_is_carried_to_the_coordinator(fed, capsys):
    main(["deploy", "sign", str(fed / "sites/north"), "--out", str(fed / "coordinator/signatures/north.json")])
    assert "north signed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["deploy", "check", str(fed), "--json"])
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert not any("signed" in line for line in problems["coordinator"] + problems["north"])
    assert any("nobody whom it trusts has signed" in line for line in problems["south"])


def test_a_port_that_is_taken_is_said_before_anything_starts(fed, capsys):
    port = read_coordinator(fed / "coordinator").port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(SystemExit) as left:
        main(["deploy", "up", "--local", str(fed)])
    assert left.value.code == 1
    assert f"port={port} is taken by another program, but the coordinator needs it" in capsys.readouterr().err
    assert not (fed / "logs").exists()


def test_nothing_runs_and_nothing_is_stopped(fed, capsys):
    main(["deploy", "status", str(fed), "--json"])
    assert json.loads(capsys.readouterr().out) == {"kept": False, "processes": [], "nodes": {}}
    main(["deploy", "status", str(fed)])
    assert "nothing runs here; `sordino deploy up --local" in capsys.readouterr().out
    main(["deploy", "down", str(fed)])
    assert "nothing ran" in capsys.readouterr().out


def test_an_interrupt_just_before_it_detaches_stops_all(fed, monkeypatch, capsys):
    stopped = []

    def started(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        return [Part("keeper", os.getpid(), marks.began(os.getpid()))]

    monkeypatch.setattr(local, "up", started)
    monkeypatch.setattr(local, "down", lambda folder: stopped.append(folder) or ["keeper"])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as left:
            main(["deploy", "up", "--local", "--detach", str(fed)])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert left.value.code == 130
    assert stopped == [fed]
    assert "stopped: keeper" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "OUT"], "Name sites"),
        (["init", "OUT", "--site", "n", "--site", "n", "--epsilon", "1", "--delta", "1e-5"], "named twice"),
        (["init", "OUT", "--site", "n", "--epsilon", "1", "--delta", "2"], "strictly between 0 and 1"),
        (["init", "OUT", "--site", "../n", "--epsilon", "1", "--delta", "1e-5"], "letters, digits"),
        (["init", "OUT", "--site", "n", "--epsilon", "1", "--delta", "1e-5", "--officer", "x"], "not a public key"),
        (["init", "OUT", "--config", "no.toml"], "cannot be read"),
        (["check", "OUT"], "no folder of a federation"),
        (["up", "OUT"], "--local"),
        (["serve", "OUT"], "cannot be read"),
        (["down", "OUT"], "cannot be read"),
        (["scrub", "OUT"], "cannot be read"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(arguments, words, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["deploy", *(str(tmp_path / "out") if word == "OUT" else word for word in arguments)])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "more", "words"),
    [
        ("", (), "is no coordinator's folder"),
        ("sites/north", (), "is no coordinator's folder"),
        ("coordinator", ("--min-silos", "0"), "minimum=0"),
        ("coordinator", ("--timeout", "-1"), "timeout=-1"),
    ],
)
def test_a_run_by_the_wrong_folder_or_with_no_patience_is_refused_at_once(fed, tmp_path, capsys, folder, more, words):
    file = tmp_path / "heart.toml"
    file.write_text((Path(__file__).parents[3] / "examples/heart.toml").read_text())
    where = ["--engine", "flower", "--federation", str(fed / folder), "--runs", str(tmp_path / "runs")]
    with pytest.raises(SystemExit) as left:
        main(["run", str(file), "--no-compare", *where, *more])
    assert left.value.code == 2
    assert words in capsys.readouterr().err
