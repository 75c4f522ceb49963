"""Adapters that train some of their parameters at a time, or a block per silo, and what that means for a plan."""

from __future__ import annotations

import math

from sordino.core.errors import ConfigError
from sordino.core.registry import single
from sordino.core.types import NoiseAt, Unit
from sordino.experiment.config import Experiment
from sordino.experiment.population import Population
from sordino.local.models import active_names, models

ROUNDS = 2
"""Adapters that take turns have had all of them after so many rounds."""


def parameters(experiment: Experiment, population: Population) -> tuple[int, int]:
    """The length of the flat vector, and the most of it that is trained, hence noised, in one round.

    Blocks of different silos count together: each is noised by its own silo alone, so their noise does not average.
    """
    name, options = single("model", experiment.model)
    model, n = models.build(name, options, f"model.{name}"), len(population)
    sizes = {name: math.prod(shape) for name, shape in model.shapes(population.spec)}
    everything = tuple(sizes)
    clients = range(n) if hasattr(model, "trained") else range(1)
    in_round = [{name for c in clients for name in active_names(model, everything, r, c, n)} for r in range(ROUNDS)]
    return sum(sizes.values()), max(sum(sizes[name] for name in names) for names in in_round)


def check(experiment: Experiment, population: Population) -> None:
    """Refuse blocks where silos do not train by private steps of their own.

    Raises:
        ConfigError: Silos train different parameters, and something else is protected, summed or compared.
    """
    name, options = single("model", experiment.model)
    model = models.build(name, options, f"model.{name}")
    if not hasattr(model, "trained"):
        return
    names, n = tuple(name for name, _ in model.shapes(population.spec)), len(population)
    if len({active_names(model, names, 0, client, n) for client in range(n)}) == 1:
        return
    privacy = experiment.privacy
    inside = privacy.unit is not Unit.CLIENT and privacy.noise_at is NoiseAt.SILO and not privacy.non_private
    if not inside or experiment.local.method != "gradient":
        raise ConfigError.about(
            "model.adapter",
            "gives every silo a block of its own, which needs private steps inside the silos",
            'use unit = "record" or "user", noise_at = "silo" and method = "gradient"',
        )
    compared = experiment.compare
    if compared is not None and (compared.alone or compared.non_private):
        raise ConfigError.about(
            "compare",
            "trains silos alone or without privacy, where nobody has a block of its own",
            "set alone = false and non_private = false",
        )
