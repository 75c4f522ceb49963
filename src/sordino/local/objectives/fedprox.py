"""A pull towards the parameters a round began with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.types import Vector
from sordino.local.objectives._registry import objectives


@objectives.register("fedprox")
@dataclass(frozen=True)
class FedProx:
    """The loss plus `mu`/2 · ‖θ − θ_start‖²: keeps silos with unlike data from drifting apart.

    Both parameters are released, so the pull is free of privacy cost and stays outside the clip.

    Args:
        mu: Strength of the pull, >= 0.

    Source: Li et al. (2020), arXiv:1812.06127, equation 2.
    """

    example: ClassVar[dict[str, Any]] = {"mu": 0.1}
    mu: float

    def __post_init__(self) -> None:
        checks.non_negative("objective.fedprox", mu=self.mu)

    @property
    def pulls(self) -> bool:
        return self.mu > 0

    def regulariser(self, theta: Vector, start: Vector) -> Vector:
        return np.float32(self.mu) * (theta - start)
