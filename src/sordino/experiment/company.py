"""Whether a run's clients train side by side: decided once, from public numbers and made-up records."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from sordino.core.types import NoiseAt, Unit
from sordino.experiment import accounts as paying
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population

if TYPE_CHECKING:
    from torch import nn

    from sordino.local.clipping import ClippingEngine
    from sordino.local.cohort.plain import Stack
    from sordino.local.cohort.twin import Twin

FEWEST = 8
"""Clients of a cohort from which company is worth trying for."""


def company(
    plan: Plan, population: Population, module: nn.Module, clipping: ClippingEngine
) -> tuple[Stack | None, Twin | None]:
    """The model for many whole clients, and for many silos that protect records; None where one by one is faster."""
    experiment = plan.experiment
    privacy, local, way = experiment.privacy, experiment.local, experiment.simulation.cohort
    expected = paying.sampler_of(experiment).expected(len(population))
    whole = privacy.non_private or privacy.unit is Unit.CLIENT
    records = privacy.unit is Unit.RECORD and privacy.noise_at is NoiseAt.SILO and local.method == "gradient"
    records = records and local.clipping == "flat" and not experiment.groups
    if privacy.non_private and local.batch != "full":  # batches whose size follows each client's
        return None, None
    if way == "loop" or (way == "auto" and expected < FEWEST) or not (whole or records):
        return None, None
    from sordino.local.cohort.choice import choose_plain, choose_private
    from sordino.local.losses import cross_entropy

    size = int(median(population.train.sizes))
    if whole:
        examples = min(local.batch_size or size, size)
        return choose_plain(module, cross_entropy, population.spec, examples, way), None
    examples = max(1, round(size * local.rate))
    return None, choose_private(module, cross_entropy, population.spec, examples, clipping, way)
