"""The generated pages are what the code makes, and the written ones name every key."""

import dataclasses
import importlib.util
import re
import tomllib
import typing

import pytest
from documents import ROOT, blocks

from sordino.experiment import config
from sordino.experiment.config import parse
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.render import plan_json

REFERENCE = ROOT / "docs" / "reference"


def generator():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_the_code_makes():
    """Else run `make docs`."""
    made = generator().pages()
    stale = [page for page, text in made.items() if _committed(page) != text]
    assert stale == []
    assert {f"registry/{path.name}" for path in (REFERENCE / "registry").glob("*.md")} <= set(made)


TABLES = {
    "Top level": config.Experiment,
    "`[privacy]`": config.Privacy,
    "`[local]`": config.Local,
    "`[silos]`": config.SiloTable,
    "`[budget]`": config.Budget,
    "`[homomorphic]`": config.Homomorphic,
    "`[evaluation]`": config.Evaluation,
    "`[evaluation.release]`": config.MetricRelease,
    "`[audit]`": config.AuditTable,
    "`[compare]`": config.Compare,
    "`[simulation]`": config.Simulation,
}


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_of_an_experiment_is_documented(heading):
    """With its choices, and no key that does not exist."""
    text = (REFERENCE / "experiment.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", _section(text, heading), flags=re.MULTILINE))
    cls = TABLES[heading]
    assert set(rows) == {field.name for field in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    missing = [(key, choice) for key in rows for choice in _choices(hints[key]) if choice not in rows[key]]
    assert missing == []


def test_every_key_of_a_plan_is_documented():
    """Down to the innermost tables, for a real plan."""
    text = (REFERENCE / "json.md").read_text("utf-8")
    documented = set(re.findall(r"`(\w+)`", text))
    experiment = parse((ROOT / "examples" / "heart.toml").read_text("utf-8"))
    plan = plan_json(make_plan(experiment, load(experiment)))
    inner = {key for part in ("silos", "composition") for row in plan[part] for key in row}
    inner |= set(plan["attack"]) | set(plan["signal_to_noise"])
    assert (set(plan) | inner) - documented == set()


def test_example_experiments_of_the_pages_are_valid():
    """A block with a name is a whole experiment; others are TOML at least."""
    pages = {"reference/experiment.md": "heart", "tutorial.md": "heart", "tutorial-language-models.md": "clinic-llm"}
    for page, name in pages.items():
        whole = [text for text in blocks((ROOT / "docs" / page).read_text("utf-8"), "toml") if "name =" in text]
        assert whole
        for text in whole:
            assert parse(text).name == name


def test_the_tutorial_of_language_models_shows_its_example():
    """The core that it prints has no key that the example lacks, and no other value."""
    (core,) = (
        tomllib.loads(text)
        for text in blocks((ROOT / "docs" / "tutorial-language-models.md").read_text("utf-8"), "toml")
        if "name =" in text
    )
    whole = tomllib.loads((ROOT / "examples" / "clinic_llm.toml").read_text("utf-8"))
    assert [key for key in core if not _within(core[key], whole.get(key))] == []


def _within(part, whole):
    """Whether every key of a table, down to the innermost, has the same value in the other one."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _within(value, whole[key]) for key, value in part.items())
    return part == whole


def _committed(page):
    path = REFERENCE / page
    return path.read_text("utf-8") if path.exists() else None


def _section(text, heading):
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]


def _choices(hint):
    if typing.get_origin(hint) is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint)]
    members = (
        [str(member) for member in hint] if isinstance(hint, type) and issubclass(hint, str) and hint is not str else []
    )
    return members + [choice for inner in typing.get_args(hint) for choice in _choices(inner)]
