"""What zeroth-order training asks of a plan, and what its steps can find."""

from __future__ import annotations

import math

from sordino.core.errors import ConfigError
from sordino.core.types import NoiseAt
from sordino.experiment.config import Experiment
from sordino.local.trainers.plans import check_directions


def check(experiment: Experiment) -> None:
    """Refuse what zeroth-order steps do not offer, and their keys where gradients are used.

    Raises:
        ConfigError: A key that would do nothing, or a combination that is not offered.
    """
    local = experiment.local
    if local.method == "gradient":
        _refuse_unused(experiment)
        return
    check_directions("local", local.directions)
    if experiment.privacy.noise_at is not NoiseAt.SILO:
        raise ConfigError.about(
            "privacy", "is not offered for zeroth_order", 'use noise_at = "silo"', noise_at=experiment.privacy.noise_at
        )
    if local.people != "mean":
        raise ConfigError.about("local", "clips gradients", 'use "mean" with zeroth_order', people=local.people)
    if local.clipping != "flat":
        raise ConfigError.about("local", "clips gradients", 'use "flat" with zeroth_order', clipping=local.clipping)
    if local.noise_walk is not None:
        raise ConfigError.about("local", "fits gradients", "use lr with zeroth_order", noise_walk=local.noise_walk)
    if local.engine != "auto":
        raise ConfigError.about(
            "local", "clips gradients, and zeroth_order has none", "drop engine", engine=local.engine
        )
    if "plain" not in experiment.objective:
        raise ConfigError.about(
            "objective",
            "needs the whole vector on the wire",
            "use plain with zeroth_order",
            name=[*experiment.objective],
        )


def refuse(experiment: Experiment) -> None:
    """Refuse the method where whole clients are protected, or nobody.

    Raises:
        ConfigError: It is asked for.
    """
    if experiment.local.method != "gradient":
        raise ConfigError.about(
            "local", "protects records and users inside silos only", 'use "gradient"', method=experiment.local.method
        )
    _refuse_unused(experiment)


def search(directions: int, parameters: int, steps: int = 1) -> float:
    """Signal over what random directions add by themselves: √(T · K / d).

    With K directions u_k the mean of (g·u_k) u_k is the gradient g plus a random vector of length ‖g‖ · √((d+1)/K),
    by the fourth moments of a normal vector. Over T steps the gradients add up like T, the rest like √T.
    A bound for the worst case: where the loss bends in few directions only, what is random hurts far less.

    Source: Zhang et al. (2024), arXiv:2310.09639, for the part that the bending's effective rank plays.

    >>> round(search(directions=16, parameters=399, steps=100), 3)
    2.0
    """
    return math.sqrt(steps * directions / (parameters + 1))


def _refuse_unused(experiment: Experiment) -> None:
    local = experiment.local
    if local.directions != 1 or local.radius != type(local).radius:
        raise ConfigError.about(
            "local", "serve zeroth_order only", "drop them", directions=local.directions, radius=local.radius
        )
