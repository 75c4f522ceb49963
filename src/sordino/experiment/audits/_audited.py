"""A finished run, opened again for an audit."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.audit.promise import Promise
from sordino.core.types import Vector
from sordino.experiment.build import Built
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population


@dataclass(frozen=True)
class Audited:
    """What subjects are made from.

    Args:
        folder: The run folder.
        plan: The plan that ran, made again from the folder's own experiment file; its digest agrees.
        population: The data it ran on.
        built: Model, engine and data, built as for the run.
        promise: What the run's ledger claims for the silo or federation under attack, or None if nothing is private.
        model: The final model, shape (d,).
        client: The silo that is attacked: the one with the largest promised epsilon.
        seed: Of the audit's own choices.
    """

    folder: RunFolder
    plan: Plan
    population: Population
    built: Built
    promise: Promise | None
    model: Vector
    client: int
    seed: int
