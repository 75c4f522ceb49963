"""Clip the whole update to an L1 norm, for Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.types import RoundPlan, Update
from sordino.federation.bounds import Bound, shortened
from sordino.federation.stages import Stage, stages


@stages.register("clip_l1")
@dataclass(frozen=True)
class ClipL1(Stage):
    """Scale the whole update down to L1 norm at most `norm`, as Laplace noise needs.

    The L1 norm bounds the L2 norm too. An update that is not finite counts as zero.

    Args:
        norm: Largest L1 norm of one client's update, > 0.
    """

    example: ClassVar = {"norm": 1.0}
    norm: float

    def __post_init__(self) -> None:
        checks.sensible("stage.clip_l1", norm=self.norm)

    def bound(self, incoming: Bound) -> Bound:
        return incoming.capped(l1=self.norm)

    def client(self, update: Update, plan: RoundPlan) -> Update:
        del plan
        return replace(update, vector=shortened(update.vector, self.norm, order=1).astype(np.float32))
