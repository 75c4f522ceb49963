"""Every attack finds a planted leak, stays below the promise on a sound run, and says what it does not show."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any

import pytest

from sordino.audit.attacks import Attack, Kind, attacks
from sordino.audit.findings import Finding, Grade, Verdict, to_plain
from sordino.experiment.catalogue import catalogue


def world(kind: Kind, which: str, attack: str) -> Any:
    """A tiny subject of a kind: `leaky` breaks its promise, `sound` keeps it."""
    make = getattr(importlib.import_module(f"worlds.{kind}"), which)
    return make(attack) if inspect.signature(make).parameters else make()


def attacked(name: str, which: str) -> Finding:
    attack: Attack = attacks.example(name)
    return attack.run(world(attack.kind, which, name), lambda _: None)


@pytest.mark.parametrize("name", attacks.names())
def test_it_finds_a_planted_leak(name: str) -> None:
    finding = attacked(name, "leaky")
    assert finding.verdict in {Verdict.LEAKS, Verdict.REFUTED}, finding
    check_words(finding, name)


@pytest.mark.parametrize("name", attacks.names())
def test_it_finds_nothing_against_a_sound_run(name: str) -> None:
    finding = attacked(name, "sound")
    assert finding.verdict is Verdict.HOLDS, finding
    assert not finding.above_claim
    check_words(finding, name)


def check_words(finding: Finding, name: str) -> None:
    attack: Attack = attacks.example(name)
    assert finding.attack == name
    refuted = finding.verdict is Verdict.REFUTED and attack.grade is Grade.LEAKAGE
    assert finding.grade is (Grade.FALSIFICATION if refuted else attack.grade)
    assert finding.says.endswith("."), "a sentence"
    assert finding.does_not_show
    assert finding.figures, "an attack measures something"
    if finding.verdict is Verdict.REFUTED:
        assert finding.causes, "a refutation names likely causes"
        assert finding.confidence is not None
    for figure in finding.figures.values():
        if figure.low is not None and figure.high is not None:
            assert figure.low <= figure.value <= figure.high
    for series in finding.curves.values():
        assert len({len(values) for values in series.values()}) == 1
    json.dumps(to_plain(finding), allow_nan=False)


@pytest.mark.parametrize("name", attacks.names())
def test_it_is_listed_with_an_example_that_is_valid(name: str) -> None:
    entry = next(entry for entry in catalogue()["attacks"] if entry["name"] == name)
    assert entry["summary"]
    assert isinstance(attacks.example(name).kind, Kind)
