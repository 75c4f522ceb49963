"""Adapters that give every silo a block of its own, and what they ask of a plan."""

from __future__ import annotations

from sordino.core.errors import ConfigError
from sordino.core.registry import single
from sordino.core.types import NoiseAt, Unit
from sordino.experiment.config import Experiment
from sordino.experiment.population import Population
from sordino.local.models import active_names, models


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
