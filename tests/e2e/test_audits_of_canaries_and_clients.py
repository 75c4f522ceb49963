"""From a finished run to canaries and crafted clients: its own step, its own coins, its own rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sordino.audit.attacks import attacks
from sordino.audit.findings import Finding, Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.core.errors import VerificationError
from sordino.experiment.audits import canaries, clients
from sordino.experiment.audits._audited import Audited
from sordino.experiment.audits.opening import open_run
from sordino.experiment.config import read
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.run import run

DIGITS = """
name = "digits"
rounds = 5
[data.digits]
[partition.iid]
clients = 2
[model.mlp]
hidden = [64]
[privacy]
non_private = true
[local]
lr = 0.5
steps = 60
[strategy.fedavg]
[audit]
canaries = 200
"""
"""A network that has time to learn by heart."""

CLIENTS = ('privacy={unit="client", noise_at="coordinator", noise_multiplier=1.0}', "stages=[{clip={norm=0.5}}]")


def opened(file: Path, *overrides: str) -> Audited:
    """A finished run, opened again. Whether it could learn is no matter."""
    experiment = read(file, overrides)
    population = load(experiment)
    plan = make_plan(experiment, population, check_learning=False)
    return open_run(run(plan, population, "", file.parent / "runs").folder)


def attacked(name: str, subject: Any, **fields: Any) -> Finding:
    found: Finding = attacks.build(name, fields).run(subject, lambda _: None)
    return found


def test_a_run_that_carried_canaries_is_attacked_by_them_and_by_its_own_step(heart: Path) -> None:
    """Two trainings, each beside its own claim; the run's claim of 2 is tested as it is."""
    audited = opened(heart, "audit.canaries=60")
    subject = canaries.subject(audited)
    for name in ("one_run", "one_run_curve", "order_statistic"):
        finding = attacked(name, subject, canaries=2000)
        assert finding.verdict is Verdict.HOLDS
        assert finding.promise == audited.promise
        assert {"epsilon at least, step", "epsilon at least, own model"} <= set(finding.figures)
        assert "the run's own step at its own noise, rate and length" in finding.says
        assert "the run's own final model" in finding.says


def test_a_model_that_learnt_its_canaries_by_heart_is_found_out(tmp_path: Path) -> None:
    """The positive control of carried canaries: without privacy their losses tell the coins."""
    file = tmp_path / "digits.toml"
    file.write_text(DIGITS, encoding="utf-8")
    finding = attacked("one_run", canaries.subject(opened(file)))
    assert finding.verdict is Verdict.LEAKS
    assert finding.lower_bound is not None
    assert finding.lower_bound > 0.2
    assert finding.promise is None


def test_coins_that_were_changed_after_the_run_are_not_believed(heart: Path) -> None:
    """Whoever could choose the coins afterwards could pass any audit."""
    audited = opened(heart, "audit.canaries=20")
    kept = audited.folder.read("canaries.json")
    kept["included"][0] = not kept["included"][0]
    (audited.folder.path / "canaries.json").write_text(json.dumps(kept), encoding="utf-8")
    with pytest.raises(VerificationError, match="other coins"):
        canaries.subject(audited)


@pytest.mark.parametrize(
    ("overrides", "rate", "records"),
    [
        (('privacy.unit="user"', "local.batch=0.5"), 0.5, 1),
        (('privacy.unit="user"', 'local.people="records"', "local.records_per_person=3", "local.batch=0.5"), 0.5, 3),
        (('privacy.noise_at="sum"', "simulation.secure_sum=true", 'local.clipping="per_layer"'), 1.0, 1),
    ],
)
def test_the_step_that_is_driven_is_declared_as_the_run_was_charged(
    table: Path, overrides: tuple[str, ...], rate: float, records: int
) -> None:
    """The same events as in the ledger: persons, record by record, and one noise at the sum."""
    audited = opened(table, "local.clip=0.5", "privacy.noise_multiplier=8.0", *overrides)
    step = canaries.subject(audited).step
    assert step is not None
    assert audited.promise is not None
    assert (step.terms.rate, step.terms.records) == (rate, records)
    assert step.terms.promise(audited.promise.delta, step.unit, "a test").events == audited.promise.events
    assert attacked("one_run", canaries.subject(audited), canaries=500).verdict is Verdict.HOLDS


def test_released_figures_are_no_step(heart: Path) -> None:
    """They are in the account's price, and not among the steps that are driven."""
    audited = opened(heart, "rounds=3", "evaluation.release={ epsilon=0.2 }")
    step = canaries.subject(audited).step
    assert step is not None
    assert audited.built.setup.account(0).releases == 4
    assert step.terms.steps == 3


def test_runs_without_a_step_on_records_say_so(table: Path) -> None:
    """Whole clients, and zeroth-order slopes; and clients are no unit of a run on records."""
    with pytest.raises(DoesNotFit, match="carried none"):
        canaries.subject(opened(table, *CLIENTS))
    slopes = opened(table, "local.clip=0.5", "privacy.noise_multiplier=20.0", 'local.method="zeroth_order"')
    with pytest.raises(DoesNotFit, match="carried none"):
        canaries.subject(slopes)
    with pytest.raises(DoesNotFit, match="does not protect whole clients"):
        clients.subject(slopes)


def test_crafted_clients_join_the_runs_own_rounds(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 2,401 parameters, so that directions have room; the ledger of the run is left alone.

    The run's noise is seeded, and the same wherever the test runs (a plan, and so its noise, knows the path of its
    data): how far updates point the same way depends on where noise leads the model.
    """
    monkeypatch.chdir(table.parent)
    wide = ("model={mlp={hidden=[600]}}", "sampling={poisson={rate=0.5}}")
    fixed = ('data.table.path="patients.csv"', "simulation.noise_seed=5")
    audited = opened(table, *CLIENTS, *wide, *fixed)
    before = audited.folder.ledger.read_bytes()
    subject = clients.subject(audited)
    assert attacked("cosine_canaries", subject).verdict is Verdict.HOLDS
    finding = attacked("canife", subject, rounds=200)
    assert finding.verdict is Verdict.HOLDS
    assert finding.figures["largest cosine with a held-out update"].value < 0.5
    assert finding.figures["share of the clip that the client moves"].value == pytest.approx(1.0, abs=0.4)
    assert audited.folder.ledger.read_bytes() == before


def test_a_client_that_adds_its_own_noise_is_heard_alone(table: Path) -> None:
    """The coordinator sees its message, not a sum."""
    audited = opened(table, 'privacy={unit="client", noise_at="silo", noise_multiplier=2.0}', CLIENTS[1])
    finding = attacked("canife", clients.subject(audited), rounds=200)
    assert finding.verdict is Verdict.HOLDS
    assert finding.figures["share of the clip that the client moves"].value == pytest.approx(1.0, abs=0.7)
