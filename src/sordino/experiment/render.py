"""A plan as stable JSON. The text for people is in `cli/`; both say the same numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sordino.core.types import Unit
from sordino.experiment import accounts as paying
from sordino.experiment import asynchrony, config, released_metrics
from sordino.experiment.plan import Plan
from sordino.privacy.comparison import composition_table


def plan_json(plan: Plan) -> dict[str, Any]:
    """The documented, stable JSON of `sordino plan --json` (docs/reference/json.md).

    An unbounded epsilon is `null`, and `private` is false where nothing is protected.
    """
    privacy, experiment = plan.experiment.privacy, plan.experiment
    multipliers = [account.noise_multiplier for account in plan.accounts]
    return {
        "name": experiment.name,
        "digest": plan.digest,
        "private": plan.private,
        "test": experiment.simulation.test,
        "epsilon": finite(plan.epsilon),
        "delta": plan.delta,
        "unit": str(privacy.unit),
        "noise_at": str(privacy.noise_at),
        "adjacency": str(plan.adjacency),
        "mechanism": privacy.mechanism,
        "noise_multiplier": max(multipliers) if multipliers else None,
        "rounds": experiment.count,
        "sampling_rate": _sampling_rate(plan),
        "clip": experiment.local.clip if plan.private else None,
        "lr": experiment.local.lr,
        "accountant": plan.accountant,
        "parameters": plan.parameters,
        "clients": len(plan.clients),
        "silos_per_person": privacy.silos_per_person,
        "views": {name: finite(value) for name, value in plan.views.items()},
        "silos": [
            {
                "name": account.name,
                "epsilon": account.epsilon,
                "noise_multiplier": account.noise_multiplier,
                "releases": account.releases,
                "units": account.units,
                "weight": plan.weights[account.client] if account.client is not None else 1.0,
                "charges": [list(charge) for charge in account.charges],
            }
            for account in plan.accounts
        ],
        "attack": _attack(plan),
        "signal_to_noise": {
            "step": finite(plan.forecast.step),
            "run": finite(plan.forecast.run),
            "verdict": plan.forecast.verdict,
        },
        "asynchronous": asynchrony.facts(plan),
        "people": _people(plan),
        "canaries": _canaries(plan),
        "metric_release": released_metrics.planned(plan),
        "composition": _composition(plan),
        "experiment": config.to_plain(experiment),
    }


def _sampling_rate(plan: Plan) -> float:
    """At which rate a protected unit joins a step: a record its silo's batch, a client the cohort."""
    experiment, n = plan.experiment, len(plan.clients)
    if not plan.private:
        return 1.0
    if experiment.privacy.unit is not Unit.CLIENT:
        return experiment.local.rate
    return paying.sampler_of(experiment).expected(n) / n


def finite(value: float | None) -> float | None:
    """JSON has no infinity: an unbounded number is null."""
    return value if value is not None and math.isfinite(value) else None


def _attack(plan: Plan) -> dict[str, Any] | None:
    if plan.attack is None:
        return None
    return {
        "tpr_at_fpr": {str(fpr): tpr for fpr, tpr in plan.attack.tpr_at_fpr.items()},
        "auc": plan.attack.auc,
        "accuracy": plan.attack.accuracy,
    }


def _people(plan: Plan) -> dict[str, Any] | None:
    if plan.ways is None:
        return None
    return {
        "mean": finite(plan.ways.mean.run),
        "records": finite(plan.ways.records.run),
        "records_per_person": plan.ways.records_per_person,
        "better": plan.ways.better,
    }


def _canaries(plan: Plan) -> dict[str, Any] | None:
    if plan.canaries is None:
        return None
    return dataclasses.asdict(plan.canaries) | {"says": plan.canaries.says}


def _composition(plan: Plan) -> list[dict[str, Any]]:
    if not plan.private or not plan.worst.charges:
        return []
    rows = composition_table(plan.worst.events, plan.delta, adjacency=plan.adjacency)
    return [{"method": r.method, "epsilon": finite(r.epsilon), "valid": r.valid, "note": r.note} for r in rows]
