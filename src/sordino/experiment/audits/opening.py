"""Open a finished run again: plan, data and parts as they were, and what its ledger claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sordino.audit.promise import Promise
from sordino.core import tables
from sordino.core.errors import ConfigError, VerificationError
from sordino.core.types import Vector
from sordino.experiment.audits._audited import Audited
from sordino.experiment.build import Built, build
from sordino.experiment.config import Experiment
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import load
from sordino.experiment.run import claims_of
from sordino.ledger import Claim
from sordino.ledger.stores import Place, is_url


def open_run(path: Path, *, ledger: Path | None = None, seed: int = 0) -> Audited:
    """A finished run with everything that an attack may need.

    Args:
        path: The run folder.
        ledger: The run's ledger, where it is not in the folder.
        seed: Of the audit's own choices.

    Raises:
        ConfigError: No finished run is there, or its ledger is elsewhere; or its records are, and it has no canaries.
        VerificationError: Data, settings or code have changed since: what would be attacked is not what ran.
    """
    folder = RunFolder(path)
    written = folder.read("plan.json")
    if written is None or folder.read("summary.json") is None:
        raise ConfigError.about(
            "audit", "holds no finished run", "give a folder that `sordino run` named", run=str(path)
        )
    experiment: Experiment = tables.build(Experiment, written["experiment"], "experiment")
    population = load(experiment)
    if population.canaries is None:
        population.train.require_here()
    plan = make_plan(experiment, population, check_learning=False)
    if plan.digest != written["digest"]:
        raise VerificationError.about(
            "audit",
            "is not what its data and settings give now: they, or this program, have changed since",
            "audit it where it ran",
            plan=written["digest"][:16],
        )
    built = build(plan, population, together=not population.elsewhere)
    claim = _weakest(plan, _ledger_of(plan, folder, ledger))
    return Audited(
        folder=folder,
        plan=plan,
        population=population,
        built=built,
        promise=Promise.of_claim(claim) if claim is not None else None,
        model=_model(folder, built),
        client=_client(plan, claim),
        seed=seed,
    )


def _ledger_of(plan: Plan, folder: RunFolder, given: Path | None) -> Place:
    named = plan.experiment.ledger
    if given is None and named is not None and is_url(named):
        return named
    file = given if given is not None else folder.ledger
    if plan.private and not file.exists():
        raise ConfigError.about("audit", "is not there", "name the run's ledger with --ledger", ledger=str(file))
    return file


def _weakest(plan: Plan, place: Place) -> Claim | None:
    """The claim with the largest epsilon: that of the people who risk most."""
    return max(claims_of(plan, place), key=lambda claim: claim.epsilon, default=None)


def _client(plan: Plan, claim: Claim | None) -> int:
    """The silo behind a claim; the first where clients share an account, or nothing is claimed."""
    numbers = {account.name: account.client for account in plan.accounts}
    return (numbers.get(claim.account) if claim is not None else None) or 0


def _model(folder: RunFolder, built: Built) -> Vector:
    from safetensors.numpy import load_file

    tensors: dict[str, Any] = load_file(folder.path / "model.safetensors")
    names = [group.name for group in built.setup.layout.groups]
    if sorted(tensors) != sorted(names):
        raise VerificationError.about("audit", "has other tensors than the plan's model", file="model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in names]).astype(np.float32)
