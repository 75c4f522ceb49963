"""I16: what ran is what was accounted. Broken twins of the loop charge something else, and no result is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from whole_runs import planned

from sordino.core.errors import PrivacyError
from sordino.experiment.books import LedgerBooks
from sordino.experiment.rounds import Loop
from sordino.experiment.run import run
from sordino.experiment.settings.setup import Setup


@pytest.fixture
def broken_run(heart, unwatched):
    """Runs the plan with whatever the test has broken; says where the result would be."""
    del unwatched
    plan, population = planned(heart)
    folder = heart.parent / "runs"
    yield lambda: run(plan, population, "", folder)
    assert not list(folder.glob("*/summary.json"))


def test_a_round_that_is_left_out_is_found(broken_run, monkeypatch):
    """
    Its release was planned and priced, and never charged: the claim would be of a run that did not take place.
    """
    true = Loop._round

    def skipping(self, number, state, setting):
        return (replace(state, round=2), setting) if number == 1 else true(self, number, state, setting)

    monkeypatch.setattr(Loop, "_round", skipping)
    with pytest.raises(PrivacyError, match="charged for other releases than the plan's"):
        broken_run()


def test_a_silo_that_is_not_charged_draws_nothing(broken_run, monkeypatch):
    """
    The cohort that trains is larger than the one that pays.
    """
    true = Setup.payers
    monkeypatch.setattr(Setup, "payers", lambda self, cohort: true(self, cohort[:-1]))
    with pytest.raises(PrivacyError, match="was not charged"):
        broken_run()


def test_a_round_that_is_charged_twice_is_refused(broken_run, monkeypatch):
    """
    A second noise for it, under another name: the plan allows as many releases as it was priced for.
    """
    true = LedgerBooks.reserve

    def twice(self, txid, round, lines, purpose="train"):  # noqa: A002 - as in the class
        true(self, f"{txid}/again", round, lines, purpose)
        return true(self, txid, round, lines, purpose)

    monkeypatch.setattr(LedgerBooks, "reserve", twice)
    with pytest.raises(PrivacyError, match="plan"):
        broken_run()
