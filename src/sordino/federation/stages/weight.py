"""Weight clients by their number of records, capped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.types import RoundPlan, Update
from sordino.federation.stages import Stage, stages


@stages.register("weight")
@dataclass(frozen=True)
class Weight(Stage):
    """Multiply an update by min(records / cap, 1).

    The weight never exceeds 1, so the bound passes through. Put it before the clip: then a small client's update
    is shrunk by its weight first, and the clip's noise is spent on what is really sent. The divisor stays the
    public expected cohort; dividing by the realised sum of weights would cost a factor 2 and more.

    Args:
        cap: Public number of records from which a client has full weight, >= 1. Never computed from the data.

    Source:
        McMahan et al. (2018), arXiv:1710.06963.
    """

    example: ClassVar = {"cap": 100}
    cap: int

    def __post_init__(self) -> None:
        checks.count("stage.weight", cap=self.cap)

    def client(self, update: Update, plan: RoundPlan) -> Update:
        del plan
        weight = min(max(update.records, 0) / self.cap, 1.0)
        # A weight of 0 times infinity would not be a number, which a clip after this stage counts as zero too.
        with np.errstate(invalid="ignore"):
            return replace(update, vector=(update.vector * weight).astype(update.vector.dtype))
