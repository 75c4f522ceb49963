"""The verbs: quick where they can be, machine-readable where asked, and never torch where nothing is trained."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sordino.cli import VERBS, cli, main

ROOT = Path(__file__).parents[3]
STABLE = ("epsilon", "delta", "unit", "noise_at", "adjacency", "noise_multiplier", "rounds", "silos", "test")


def call(capsys, *arguments: object) -> str:
    """The stdout of a verb."""
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out


def loaded(*arguments: object) -> set[str]:
    """The packages that a verb imports, in a process of its own."""
    code = (
        "import sys\n"
        "from sordino.cli import main\n"
        f"main({[str(argument) for argument in arguments]!r})\n"
        "print('\\n' + ' '.join(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_help_answers_at_once():
    """
    Less than half a second of CPU, the interpreter's start included.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "sordino.cli", "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 0.5
    assert all(verb in done.stdout for verb in VERBS)


def test_pricing_listing_and_ledgers_import_no_torch(heart, tmp_path):
    """
    `plan`, `list` and `ledger` work where torch is not installed.
    """
    from sordino.ledger import Ledger

    Ledger(tmp_path / "ledger.db").close()
    for arguments in (("plan", heart), ("list",), ("ledger", "show", tmp_path), ("ledger", "verify", tmp_path)):
        assert not loaded(*arguments) & {"torch", "opacus", "safetensors"}, arguments


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb, capsys):
    """
    One line per example, as it is to be typed.
    """
    with contextlib.suppress(SystemExit):
        main([verb, "--help"])
    out = capsys.readouterr().out

    assert f"  sordino {verb}" in out
    assert "\\b" not in out
    assert cli.get_command(None, verb) is not None


def test_plan_and_run_print_pure_json_with_the_stable_keys(heart, capsys):
    """
    stdout is one JSON document; both verbs use the same keys for the same things.
    """
    plan = json.loads(call(capsys, "plan", heart, "--json"))
    ran = json.loads(call(capsys, "run", heart, "--runs", heart.parent / "runs", "--json"))

    assert set(STABLE) <= plan.keys() <= ran.keys()
    assert {"metrics", "run_folder", "ledger_sha256"} <= ran.keys()
    assert {key: ran[key] for key in STABLE} == {key: plan[key] for key in STABLE}
    assert [set(silo) >= {"name", "epsilon"} for silo in ran["silos"]] == [True] * 4
    assert ran["metrics"]["visibility"] == "public"
    assert not ran["test"]


def test_a_plan_for_people_shows_every_part(heart, capsys):
    """
    Noise, guarantee by view and silo, attacker's bounds, composition table, signal to noise.
    """
    shown = call(capsys, "plan", heart)

    for part in (
        "multiplier",
        "coordinator",
        "cleveland",
        "false positives",
        "GDP (exact)",
        "signal to noise",
        "delta",
    ):
        assert part in shown


def test_a_run_without_a_terminal_says_how_far_it_is(heart, capsys, monkeypatch):
    """
    A log that says nothing until the end looks like one of a program that hangs.
    """
    from sordino.cli import run

    monkeypatch.setattr(run, "EVERY_S", 0.0)
    main(["run", str(heart), "--runs", str(heart.parent / "runs")])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round ")]
    assert lines[0].startswith("round 1 of ")
    assert "epsilon" in lines[0]


def test_a_run_for_people_says_what_was_spent(heart, capsys):
    """
    A head, the figures, what was spent and where the folder is; the second time that nothing was trained.
    """
    first = call(capsys, "run", heart, "--runs", heart.parent / "runs")
    second = call(capsys, "run", heart, "--runs", heart.parent / "runs")

    assert "charged in the ledger" in first
    assert "already run" not in first
    assert "nothing was trained or charged again" in second


def test_the_live_line_tells_what_is_spent_and_left(heart):
    """
    On a terminal: a line per round with epsilon spent and left.
    """
    import os
    import pty

    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "sordino.cli", "run", str(heart), "--runs", str(heart.parent / "runs")],
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 4096):
                shown += piece
        except OSError:  # the terminal closes with the process
            pass
        os.close(leader)

    assert process.returncode == 0
    assert b"spent" in shown
    assert b"0.000 left" in shown


def test_list_names_everything_with_a_valid_example(capsys):
    """
    The lists are read from the registries; an unknown kind offers the nearest.
    """
    found = json.loads(call(capsys, "list", "--json"))
    stages = json.loads(call(capsys, "list", "stages", "--json"))

    assert {"stages", "mechanisms", "strategies", "sampling", "models", "datasets", "partitions"} <= found.keys()
    assert stages == {"stages": found["stages"]}
    assert {entry["name"] for entry in found["mechanisms"]} >= {"gaussian", "laplace"}
    assert all(entry["summary"] for entries in found.values() for entry in entries)
    assert "clip" in call(capsys, "list", "stages")
    with pytest.raises(SystemExit) as end:
        main(["list", "stage"])
    assert end.value.code == 2
    assert "did you mean 'stages'" in capsys.readouterr().err


def test_describe_says_where_data_come_from(capsys):
    """
    Counts, source and licence.
    """
    value = json.loads(call(capsys, "data", "describe", "heart", "--json"))

    assert (value["records"], value["classes"], value["clients"], value["public"]) == (920, 2, 4, True)
    assert value["licence"]
    assert "920" in call(capsys, "data", "describe", "heart")


def test_fetching_what_needs_no_fetching_is_one_line(capsys):
    """
    A packaged set, and a set of one's own.
    """
    with pytest.raises(SystemExit) as end:
        main(["data", "fetch", "digits"])
    assert end.value.code == 2
    assert "needs no fetching" in capsys.readouterr().err


def test_init_writes_once(tmp_path, capsys):
    """
    An existing file is kept.
    """
    file = tmp_path / "experiment.toml"
    call(capsys, "init", "tabular", "--out", file)
    text = file.read_text(encoding="utf-8")

    assert text == call(capsys, "init", "tabular")
    with pytest.raises(SystemExit) as end:
        main(["init", "image", "--out", str(file)])
    assert end.value.code == 2
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("arguments", [("ledger", "show"), ("ledger", "verify")])
def test_a_ledger_that_is_not_there_is_one_line(arguments, tmp_path, capsys):
    """
    Nothing is made in its place.
    """
    with pytest.raises(SystemExit) as end:
        main([*arguments, str(tmp_path / "no.db")])

    assert end.value.code == 2
    assert "is not there" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_verb_is_said(capsys):
    """
    Usage errors have exit code 2 as well.
    """
    with pytest.raises(SystemExit) as end:
        main(["rum"])

    assert end.value.code == 2
    assert "rum" in capsys.readouterr().err


def test_a_ledger_put_back_is_found_by_a_hash_kept_elsewhere(heart, capsys):
    """
    The hash that a run printed lies in the history; one that does not shows a roll-back.
    """
    runs = heart.parent / "runs"
    summary = json.loads(call(capsys, "run", heart, "--runs", runs, "--json"))
    folder = summary["run_folder"]

    assert "ok" in call(capsys, "ledger", "verify", folder, "--expect", summary["ledger_sha256"])
    with pytest.raises(SystemExit) as end:
        call(capsys, "ledger", "verify", folder, "--expect", "f" * 64)
    assert end.value.code == 5


def test_a_weak_promise_and_a_lost_round_are_said(heart, capsys):
    """
    An epsilon above ten is called weak; a finished run counts the rounds that a crash lost.
    """
    strong = call(capsys, "plan", heart)
    weak = call(capsys, "plan", heart, "--set", "privacy={ epsilon = 30.0, silos_per_person = 1 }")
    summary = json.loads(call(capsys, "run", heart, "--runs", heart.parent / "runs", "--json"))

    assert "WEAK" in weak
    assert "WEAK" not in strong
    assert summary["rounds_lost"] == 0
