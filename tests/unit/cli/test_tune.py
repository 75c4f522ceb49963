"""`sordino tune`: the price before anything is trained, then the best setting and nothing of the others."""

from __future__ import annotations

import json

import pytest

from sordino.cli import main
from sordino.ledger import Ledger

SCORED = ("--set", "rounds=1", "--set", "evaluation.release={ noise_multiplier = 20.0 }")
SETTINGS = ("--setting", "local.noise_walk=0.1", "--setting", "local.noise_walk=0.9; average=0.5")


def call(capsys, *arguments):
    """Exit code and stdout of a verb."""
    code = 0
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().out


@pytest.fixture
def tune(heart, unwatched, capsys):
    del unwatched
    runs = heart.parent / "runs"
    return lambda *more: call(capsys, "tune", heart, *SCORED, "--mean", "2", "--runs", runs, *more)


def test_the_price_is_shown_and_nothing_is_charged(tune, heart):
    """
    As text and as JSON; one trial alone costs less.
    """
    code, out = tune(*SETTINGS, "--price")
    assert (code, "a selection among 2 settings" in out) == (0, True)
    code, out = tune(*SETTINGS, "--price", "--json")
    told = json.loads(out)
    assert told["epsilon"] > told["epsilon_of_one_trial"] > 0
    assert [setting["local"]["noise_walk"] for setting in told["settings"]] == [0.1, 0.9]
    assert not (heart.parent / "runs").exists()


def test_the_best_setting_is_shown_and_charged_once(tune, heart):
    """
    A second call reads the result and trains nothing.
    """
    code, out = tune(*SETTINGS, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["setting"] in (0, 1)
    (folder,) = (heart.parent / "runs").iterdir()
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        (charge,) = ledger.charges(ledger.runs()[0])
        assert (charge.purpose, charge.state) == ("tune", "committed")
        assert max(claim.epsilon for claim in ledger.claims(charge.run)) <= found["epsilon"]
    code, out = tune(*SETTINGS)
    assert code == 0
    assert "selected: local.noise_walk=" in out
    assert "(before)" in out
    assert "accuracy" in out


def test_settings_of_another_price_are_refused(tune, heart):
    """
    More steps cost more; a single setting leaves nothing to select from. Neither charges anything.
    """
    assert tune("--setting", "local.steps=1", "--setting", "local.steps=2")[0] == 2
    assert tune("--setting", "local.steps=1")[0] == 2
    assert not (heart.parent / "runs").exists()
