"""Figures that silos release, where silos keep ledgers of their own, and as a person reads them."""

from __future__ import annotations

import pytest
from whole_runs import planned, sordino

from sordino.core.types import Adjacency, Unit
from sordino.experiment.run import run
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey

SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")
RELEASE = ("rounds=1", "evaluation.release={ noise_multiplier = 15.0, loss = 2.0 }")


@pytest.fixture
def federation(heart, unwatched):
    """Four enrolled silos beside the experiment file, and the coordinator's key."""
    del unwatched
    head = 'ledger = "federation.db"\n'
    tail = '[enforcement]\nsilos = "silos"\nkey = "coordinator.pem"\n'
    heart.write_text(head + heart.read_text(encoding="utf-8") + tail, encoding="utf-8")
    key = SigningKey.generate("coordinator")
    key.save(heart.parent / "coordinator.pem")
    for name in SILOS:
        account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-4)
        enrol(heart.parent / "silos" / name, account, coordinators=[key.public])
    return heart


def charges(file, run_name):
    """Purposes and fates in every ledger."""
    places = [file.parent / "silos" / name / "ledger.db" for name in SILOS] + [file.parent / "federation.db"]
    found = []
    for place in places:
        assert verify(place, reprice=True).ok
        with Ledger(place, read_only=True) as ledger:
            found.append([(charge.purpose, charge.state) for charge in ledger.charges(run_name)])
    return found


def test_every_silo_grants_its_figures(federation, tmp_path):
    """Each silo's own ledger reserves them as `metric`, beside the coordinator's."""
    plan, population = planned(federation, *RELEASE)
    result = run(plan, population, "", tmp_path / "runs", base=federation.parent)

    assert charges(federation, plan.run) == [[("train", "committed"), ("metric", "committed")]] * 5
    assert result.summary["released_metrics"]["units_error"] > 0
    assert result.summary["epsilon"] == plan.epsilon


def test_a_crash_between_the_ledgers_loses_the_figures_on_all_sides(federation, tmp_path, monkeypatch):
    """Silos have charged, the coordinator has not: paid for everywhere, never drawn."""
    plan, population = planned(federation, *RELEASE)
    sound = Ledger.reserve

    def reserve(self, txid, run, round, purpose, lines, *rest, **more):  # noqa: A002 - the noun
        if purpose == "metric" and len(lines) > 1:
            raise KeyboardInterrupt
        return sound(self, txid, run, round, purpose, lines, *rest, **more)

    with monkeypatch.context() as dying:
        dying.setattr(Ledger, "reserve", reserve)
        with pytest.raises(KeyboardInterrupt):
            run(plan, population, "", tmp_path / "runs", base=federation.parent)
    result = run(plan, population, "", tmp_path / "runs", base=federation.parent)

    assert result.summary["released_metrics"] is None
    assert result.summary["epsilon"] == plan.epsilon
    assert charges(federation, plan.run) == [[("train", "committed"), ("metric", "forfeited")]] * 5


def test_a_person_reads_what_is_released_and_who_pays(heart, unwatched, capsys, tmp_path):
    """The plan says it before, the run after; figures without noise are not called released."""
    del unwatched
    overrides = [part for override in RELEASE for part in ("--set", override)]
    code, plan, _ = sordino(capsys, "plan", heart, *overrides)
    assert code == 0
    assert "released figures: each silo's held-out accuracy and loss, once, gaussian noise of std 18.37" in plan
    code, result, _ = sordino(capsys, "run", heart, *overrides, "--runs", tmp_path / "runs")
    assert code == 0
    (line,) = [line for line in result.splitlines() if line.startswith("released ")]
    assert "±" in line
    assert "may leave the silos" in line
    code, without, _ = sordino(capsys, "run", heart, "--set", "rounds=1", "--runs", tmp_path / "runs")
    assert code == 0
    assert "released" not in without
