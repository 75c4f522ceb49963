"""Examples and templates do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from whole_runs import sordino

from sordino.cli.init import TASKS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
LANGUAGE = ("clinic_llm", "reviews_minilm")
"""Examples whose training takes minutes, and whose base and data must be fetched first."""
QUICK = [file for file in EXAMPLES if file.stem not in LANGUAGE]


@pytest.mark.parametrize("file", QUICK, ids=[file.stem for file in QUICK])
def test_an_example_runs(file, tmp_path, capsys):
    """
    With few rounds and without its comparison; it learns more than chance and spends what it promises.
    """
    code, out, error = sordino(
        capsys,
        "run",
        file,
        "--runs",
        tmp_path,
        "--no-compare",
        "--json",
        "--set",
        "rounds=10",
        "--set",
        "compare.splits=1",
    )

    assert code == 0, error
    summary = json.loads(out)
    assert 0 < summary["epsilon"] <= summary["experiment"]["privacy"]["epsilon"]
    assert summary["metrics"]["accuracy"] > 0.6


@pytest.mark.parametrize("stem", LANGUAGE)
def test_an_example_of_a_language_model_plans(stem, capsys):
    """
    It can learn, and every silo has what was promised; its training takes minutes, so it is not run here.
    """
    text = (ROOT / f"examples/{stem}.toml").read_text(encoding="utf-8")

    code, out, error = sordino(capsys, "plan", ROOT / f"examples/{stem}.toml", "--json")
    _skip_unless_fetched(code, error)

    assert code == 0, error
    plan = json.loads(out)
    assert plan["signal_to_noise"]["verdict"] == "good"
    assert all(0 < silo["epsilon"] <= plan["experiment"]["privacy"]["epsilon"] for silo in plan["silos"])
    assert f"an adapter of {plan['parameters']:,} numbers" in text.replace("\n# ", " ")


def test_the_comparison_is_a_table_of_claims(tmp_path, capsys):
    """
    The hospitals' table: alone, together without privacy, and by epsilon; kept in the folder.
    """
    terms = ("--set", "rounds=3", "--set", "compare={ epsilon = [8.0, 1.0], splits = 1, alone = false }")

    code, out, error = sordino(capsys, "run", ROOT / "examples/heart.toml", "--runs", tmp_path, "--json", *terms)

    assert code == 0, error
    rows = json.loads(out)["compare"]
    assert [row["setting"] for row in rows] == ["together, no privacy", "together, epsilon 8", "together, epsilon 1"]
    assert [row["epsilon"] is None for row in rows] == [True, False, False]
    assert rows[2]["epsilon"] <= 1.0 < rows[1]["epsilon"] <= 8.0
    assert "together, epsilon 1" in sordino(capsys, "run", ROOT / "examples/heart.toml", "--runs", tmp_path, *terms)[1]


def test_private_data_are_not_compared(table, capsys):
    """
    Each row of a comparison would be a release.
    """
    text = table.read_text(encoding="utf-8").replace("public = true", "")
    table.write_text(text, encoding="utf-8")
    own = ("--runs", table.parent / "runs", "--set", "local.clip=0.5", "--set", "compare.epsilon=[1.0]")

    code, _, error = sordino(capsys, "run", table, *own)

    assert code == 2
    assert "for public data" in error
    assert not (table.parent / "runs").exists()


@pytest.mark.parametrize("task", TASKS)
def test_a_template_plans_as_it_is(task, tmp_path, capsys):
    """
    Written, planned, and able to learn; texts need their data and their base fetched first.
    """
    file = tmp_path / f"{task}.toml"
    assert sordino(capsys, "init", task, "--out", file)[0] == 0

    code, out, error = sordino(capsys, "plan", file, "--json")
    _skip_unless_fetched(code, error)

    assert code == 0, error
    assert json.loads(out)["signal_to_noise"]["verdict"] == "good"


@pytest.mark.parametrize("task", ["tabular", "image"])
def test_a_template_runs(task, tmp_path, capsys):
    """
    Some of the rounds of what `init` writes already learn.
    """
    file = tmp_path / f"{task}.toml"
    sordino(capsys, "init", task, "--out", file)

    code, out, error = sordino(capsys, "run", file, "--runs", tmp_path / "runs", "--json", "--set", "rounds=20")

    assert code == 0, error
    assert json.loads(out)["metrics"]["accuracy"] > 0.6


def _skip_unless_fetched(code, error):
    """
    Skip where the cache lacks what the file names; the error says which command brings it.
    """
    missing = re.search(r"`sordino data fetch [\w-]+`", error)
    if code == 2 and missing:
        pytest.skip(f"needs {missing[0]}")
