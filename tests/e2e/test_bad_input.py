"""Bad input: one clear line on stderr, exit code 2, no traceback, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from whole_runs import one_line, sordino

WRONG = {
    "an unknown key": ("round=5", "did you mean 'rounds'"),
    "an unknown key of a table": ("privacy.epsillon=1", "did you mean 'epsilon'"),
    "a text for a number": ("privacy.epsilon=high", "a number"),
    "a number for a text": ("name=3", "a text"),
    "a table for a number": ("rounds={}", "rounds"),
    "no rounds": ("rounds=0", "at least 1"),
    "half a round": ("rounds=1.5", "rounds"),
    "epsilon of zero": ("privacy.epsilon=0", "above 0"),
    "negative epsilon": ("privacy.epsilon=-1", "above 0"),
    "epsilon that is no number": ("privacy.epsilon=nan", "finite"),
    "infinite epsilon": ("privacy.epsilon=inf", "finite"),
    "delta above one record in n": ("privacy.delta=0.01", "below 1/n"),
    "delta that suits the smaller silos only": ("privacy.delta=0.0045", "below 1/n"),
    "delta of one": ("privacy.delta=1.0", "between 0 and 1"),
    "an unknown unit": ("privacy.unit=person", "person"),
    "an unknown place of noise": ("privacy.noise_at=cloud", "cloud"),
    "an unknown mechanism": ("privacy.mechanism=uniform", "uniform"),
    "an unknown stage": ("stages=[{ clpi = { norm = 1.0 } }]", "stage"),
    "an unknown data set": ("data={ hearts = {} }", "did you mean 'heart'"),
    "an unknown model": ("model={ logistics = {} }", "did you mean 'logistic'"),
    "an unknown sampler": ("sampling={ al = {} }", "did you mean 'all'"),
    "an unknown strategy": ("strategy={ fedavgg = {} }", "did you mean 'fedavg'"),
    "an unknown objective": ("objective={ fedpro = {} }", "did you mean 'fedprox'"),
    "two models": ("model={ logistic = {}, mlp = {} }", "exactly one"),
    "an unknown silo": ("silos={ bern = { epsilon = 1.0 } }", "known: cleveland"),
    "one client only": ("partition={ iid = { clients = 1 } }", "two or more"),
    "no batch": ("local.batch=0", "(0, 1]"),
    "a batch as a count": ("local.batch=32", "(0, 1]"),
    "no clip": ("local={ lr = 1.0 }", "lacks the key 'clip'"),
    "no step size": ("local={ clip = 1.0 }", "lacks the key 'lr'"),
    "epsilon, noise and privacy denied": ("privacy.non_private=true", "excludes"),
    "two things to find": ("rounds=fit", "can be found only"),
    "test data of another kind": ("evaluation.data={ digits = {} }", "same kind"),
    "a model for images": ("model={ cnn = {} }", "cnn"),
    "a model for text": ("model={ char_lstm = {} }", "char_lstm"),
    "no assignment": ("rounds", "must look like"),
    "an assignment into a number": ("rounds.x=1", "not a table"),
    "an empty name": ("name=''", "name"),
    "a name that is a path": ("name='../up'", "letters"),
    "a share of all rounds": ("average=1.0", "[0, 1)"),
    "a negative seed": ("seed=-1", "0 or more"),
    "stages for records": ("stages=[{ clip = { norm = 1.0 } }]", "drop the stages"),
    "epochs for records": ("local.epochs=1", "use steps"),
}


@pytest.mark.parametrize(("assignment", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_one_line(heart, capsys, assignment, expected):
    """
    The line names what is wrong; neither a run folder nor a ledger appears.
    """
    code, out, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs", "--set", assignment)

    assert (code, out) == (2, "")
    assert expected in one_line(error)
    assert not (heart.parent / "runs").exists()


CLIENTS = ("privacy={ unit = 'client', noise_at = 'coordinator', noise_multiplier = 1.0 }", "local={ lr = 1.0 }")
IGNORED = {
    "no stage bounds a client": ((), "add a 'clip' stage"),
    "a clip of records": (("stages=[{ clip = { norm = 1.0 } }]", "local.clip=1.0"), "use a 'clip' stage"),
    "a batch of records": (("stages=[{ clip = { norm = 1.0 } }]", "local.batch=0.1"), "use batch_size"),
    "a step size from noise": (("stages=[{ clip = { norm = 1.0 } }]", "local={ noise_walk = 1.0 }"), "lacks the key"),
    "weights by noise": (("stages=[{ clip = { norm = 1.0 } }]", "weights=noise_aware"), "not clients"),
}


@pytest.mark.parametrize(("terms", "expected"), IGNORED.values(), ids=IGNORED)
def test_what_would_be_ignored_for_clients_is_refused(heart, capsys, terms, expected):
    """
    A key that protects records says nothing about clients; it is refused rather than ignored.
    """
    sets = [part for term in (*CLIENTS, *terms) for part in ("--set", term)]

    code, _, error = sordino(capsys, "plan", heart, *sets)

    assert code == 2
    assert expected in one_line(error)


def test_a_person_in_several_silos_moves_a_sum_several_times(heart, capsys):
    """
    One noise on the sum is priced for people of one silo only; anything else is refused.
    """
    terms = ("--set", "privacy={ noise_at = 'sum', epsilon = 2.0 }", "--set", "simulation.secure_sum=true")

    code, _, error = sordino(capsys, "plan", heart, *terms)

    assert code == 2
    assert "silos_per_person" in one_line(error)


HEADER = "a,b,ill,hospital,patient\n"
TABLES = {
    "a missing value": (lambda text: text + ",0.5,1,h0,p0\n", "lacks 1 values"),
    "a label outside the classes": (lambda text: text.replace(",1,h", ",2,h", 1), "none of the classes"),
    "a value that is no number": (lambda text: text.replace("0.143", "much", 1), "not numeric"),
    "an infinite value": (lambda text: text.replace("0.143", "inf", 1), "not finite"),
    "a column that is not there": (lambda text: text.replace("hospital", "clinic"), "has no column 'hospital'"),
    "nothing but a header": (lambda _: HEADER, "holds no records"),
    "nothing at all": (lambda _: "", "cannot be read"),
    "one client": (lambda text: HEADER + "".join(f"{line}\n" for line in text.splitlines()[1::6]), "two or more"),
    "a record of nobody": (lambda text: text + "0.1,0.5,1,,p0\n", "nothing in column 'hospital'"),
}


@pytest.mark.parametrize(("spoil", "expected"), TABLES.values(), ids=TABLES)
def test_a_bad_table_is_one_line(table, capsys, spoil, expected):
    """
    NaN, a stray label, a lost column, an empty file: each says where.
    """
    file = table.parent / "patients.csv"
    file.write_text(spoil(file.read_text(encoding="utf-8")), encoding="utf-8")

    code, _, error = sordino(
        capsys,
        "run",
        table,
        "--runs",
        table.parent / "runs",
        "--set",
        "local.clip=0.5",
        "--set",
        "data.table.ranges={}",
    )

    assert code == 2
    assert expected in one_line(error)
    assert not (table.parent / "runs").exists()


def test_persons_that_nobody_names_are_one_line(table, capsys):
    """
    The unit `user` needs a column that says whose each record is.
    """
    text = table.read_text(encoding="utf-8").replace('user = "patient"', 'features = ["a", "b"]')
    table.write_text(text, encoding="utf-8")

    code, _, error = sordino(capsys, "plan", table, "--set", "local.clip=0.5", "--set", "privacy.unit=user")

    assert code == 2
    assert "names the person" in one_line(error)


def test_a_missing_experiment_or_data_file_is_one_line(heart, table, capsys):
    """
    The file that is not there is named.
    """
    for file in ("nothing.toml", heart.parent):
        code, _, error = sordino(capsys, "run", file)
        assert code == 2
        assert "cannot be read" in one_line(error)
    (table.parent / "patients.csv").unlink()
    code, _, error = sordino(capsys, "plan", table, "--set", "local.clip=0.5")
    assert code == 2
    assert "patients.csv" in one_line(error)


@pytest.mark.parametrize("text", ["name = ", "[", "name = 'a'\nname = 'b'", "\x00", "rounds = 1"])
def test_a_file_that_is_no_experiment_is_one_line(tmp_path, capsys, text):
    """
    Invalid TOML, and valid TOML that lacks what an experiment needs.
    """
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")

    code, _, error = sordino(capsys, "run", tmp_path / "x.toml", "--runs", tmp_path / "runs")

    assert code == 2
    assert one_line(error).startswith("ConfigError: experiment")
    assert not (tmp_path / "runs").exists()


def test_a_runs_folder_that_cannot_be_written_is_one_line(heart, capsys):
    """
    A file stands where the folder should be.
    """
    (heart.parent / "runs").write_text("", encoding="utf-8")

    code, _, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs")

    assert code == 2
    assert "--runs" in one_line(error)


def test_a_ledger_that_is_no_ledger_is_one_line(heart, capsys):
    """
    A shared ledger of another format is refused before anything is trained, and stays as it is.
    """
    file = heart.parent / "shared.db"
    file.write_text("not a ledger", encoding="utf-8")

    code, _, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs", "--set", f"ledger={file}")

    assert code == 2
    one_line(error)
    assert file.read_text(encoding="utf-8") == "not a ledger"
    assert list((heart.parent / "runs").iterdir()) == []


def test_a_plan_that_drowns_in_noise_names_the_nearest_that_learns(heart, capsys):
    """
    Client level with four hospitals: refused with numbers, shown all the same with --force.
    """
    sets = [part for term in (*CLIENTS[1:], "stages=[{ clip = { norm = 1.0 } }]") for part in ("--set", term)]
    hopeless = (*sets, "--set", "privacy={ unit = 'client', noise_at = 'coordinator', epsilon = 0.5 }")

    code, _, error = sordino(capsys, "plan", heart, *hopeless)

    assert code == 2
    line = one_line(error)
    assert "nearest plans that can: epsilon=" in line
    assert "unit = 'record'" in line
    nearest = line.split("epsilon=")[-1].split(",")[0]
    assert sordino(capsys, "plan", heart, *hopeless, "--set", f"privacy.epsilon={float(nearest) * 1.02}")[0] == 0
    assert sordino(capsys, "plan", heart, *hopeless, "--force")[0] == 0


def test_an_error_of_the_real_command_has_its_code_and_no_traceback(heart):
    """
    The same through the installed command, in a process of its own.
    """
    done = subprocess.run(
        [sys.executable, "-m", "sordino.cli", "run", str(heart), "--set", "privacy.delta=2"],
        capture_output=True,
        text=True,
        cwd=heart.parent,
        env={**os.environ},
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "delta" in one_line(done.stderr)
    assert not (heart.parent / "runs").exists()
