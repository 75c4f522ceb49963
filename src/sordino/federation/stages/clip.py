"""Clip the whole update to an L2 norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.types import RoundPlan, Update
from sordino.federation.bounds import Bound, shortened
from sordino.federation.stages import Stage, stages


@stages.register("clip")
@dataclass(frozen=True)
class Clip(Stage):
    """Scale the whole update down to L2 norm at most `norm`.

    The norm is taken over all released tensors jointly, in float64. An update that is not finite counts as zero.

    Args:
        norm: Largest L2 norm of one client's update, > 0.

    Source:
        McMahan et al. (2018), arXiv:1710.06963.
    """

    example: ClassVar = {"norm": 1.0}
    norm: float

    def __post_init__(self) -> None:
        checks.sensible("stage.clip", norm=self.norm)

    def bound(self, incoming: Bound) -> Bound:
        return incoming.capped(l2=self.norm)  # scaling down keeps an L1 bound that holds already

    def client(self, update: Update, plan: RoundPlan) -> Update:
        del plan
        return replace(update, vector=shortened(update.vector, self.norm).astype(np.float32))
