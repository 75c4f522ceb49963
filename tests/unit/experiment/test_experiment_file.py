"""TOML in, one frozen value out, and back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core import tables
from sordino.core.errors import ConfigError
from sordino.experiment.config import Experiment, Simulation, changed, parse, read, to_plain

ROOT = Path(__file__).parents[3]
FILES = [*sorted((ROOT / "examples").glob("*.toml")), *sorted((ROOT / "src/sordino/cli/templates").glob("*.toml"))]


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_an_experiment_comes_back_from_its_plain_form(file):
    """
    What the run folder keeps is the whole experiment: built anew it is equal.
    """
    experiment = read(file)

    assert tables.build(Experiment, to_plain(experiment), "experiment") == experiment


def test_an_override_is_toml_and_the_last_word(heart):
    """
    Dotted keys reach into tables, make them where they are missing, and later ones win.
    """
    experiment = parse(
        heart.read_text(encoding="utf-8"),
        (
            "privacy.epsilon=1",
            "privacy.epsilon=0.5",
            "silos.hungary.epsilon=0.25",
            "sampling={ round_robin = { size = 2 } }",
        ),
    )

    assert experiment.privacy.epsilon == 0.5
    assert experiment.silos["hungary"].epsilon == 0.25
    assert experiment.sampling == {"round_robin": {"size": 2}}


def test_a_bare_word_is_a_text(heart):
    """
    `--set name=other` needs no quotes.
    """
    assert parse(heart.read_text(encoding="utf-8"), ("name=other",)).name == "other"


@given(key=st.text(max_size=12), value=st.text(max_size=12))
def test_any_override_is_taken_or_refused_in_one_line(key, value):
    """
    Whatever is typed after --set: an experiment, or a ConfigError of one line.
    """
    text = "name='a'\n" + "".join(f"{t}={{a={{}}}}\n" for t in ("data", "model", "strategy"))
    text += "privacy={epsilon=1.0}\nlocal={lr=1.0}\n"
    said = "nothing"
    try:
        parse(text, (f"{key}={value}",))
    except ConfigError as error:
        said = str(error)

    assert len(said.splitlines()) == 1


def test_changed_reaches_into_a_table(heart):
    """
    A copy with one field changed; the original stays.
    """
    experiment = parse(heart.read_text(encoding="utf-8"))

    assert changed(experiment, privacy__epsilon=1.0, rounds=7).privacy.epsilon == 1.0
    assert experiment.privacy.epsilon == 2.0


def test_what_is_simulated_is_a_test():
    """
    Seeded noise and played secure summation each mark a run.
    """
    assert not Simulation().test
    assert Simulation(noise_seed=0).test
    assert Simulation(secure_sum=True).test


def test_the_table_template_reads_when_its_comments_are_taken_off(tmp_path):
    """
    The lines for a table of one's own are valid, and plan on a file of that form.
    """
    from sordino.experiment.plan import make_plan
    from sordino.experiment.population import load

    text = (ROOT / "src/sordino/cli/templates/tabular.toml").read_text(encoding="utf-8")
    lines = text.replace("[data.heart]", "#").splitlines()
    start = lines.index("# [data.table]")
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("#"))
    lines[start:end] = [line.removeprefix("# ") for line in lines[start:end]]
    rows = "".join(f"{20 + i},{('female', 'male')[i % 2]},{i % 3 % 2},h{i % 2}\n" for i in range(60))
    (tmp_path / "patients.csv").write_text(f"age,sex,ill,hospital\n{rows}", encoding="utf-8")
    experiment = parse("\n".join(lines), (f"data.table.path={tmp_path / 'patients.csv'}", "privacy.delta=1e-5"))

    assert tomllib.loads("\n".join(lines))["data"]["table"]["label"] == "ill"
    assert make_plan(experiment, load(experiment)).epsilon <= 2.0
