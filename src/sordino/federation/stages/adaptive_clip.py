"""Clip to a norm that follows a quantile of the clients' norms, privately."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from sordino.core import checks
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.bounds import MARGIN, Bound, length, shortened
from sordino.federation.stages import Stage, stages

SMALLEST = 1e-20
"""The norm never falls below this, so that its float32 image stays above zero."""


@stages.register("adaptive_clip")
@dataclass(frozen=True)
class AdaptiveClip(Stage):
    """Clip to an L2 norm that moves towards a quantile of the clients' norms.

    Each client sends its clipped update and, as one more coordinate, its centred bit ±norm·bit: plus when the
    update was not clipped. The noisy sum of the bits gives the share of unclipped clients, divided by the public
    expected cohort, and C ← C·exp(−lr·(share − quantile)).

    One Gaussian covers both. With multiplier z its std is s = z·C·√(1 + bit²) on every coordinate, hence
    z_Δ = s/C = z·√(1 + bit²) on the update and σ_b = s/(2·C·bit) = z·√(1 + bit²)/(2·bit) on the sum of the bits
    in the paper's unit ±½. So z_Δ⁻² + (2σ_b)⁻² = z⁻²·(1 + bit²)/(1 + bit²) = z⁻², which is the paper's
    z_Δ = (z⁻² − (2σ_b)⁻²)^(−½): the bit is paid for, and nothing has to be split by hand.

    An update that is not finite counts as zero and its bit too. Put stages that scale (weight) before this one:
    after it they would shrink the bit.

    Args:
        norm: The norm of this round; in a file, of the first, > 0.
        quantile: Share of clients that should stay unclipped, in (0, 1).
        lr: Step of the logarithm of the norm, > 0.
        bit: Size of the bit over the norm, > 0. Larger follows the quantile better and costs more noise.

    Source:
        Andrew et al. (2021), arXiv:1905.03871, with the bit centred; the joint coordinate as in pfl-research.
    """

    example: ClassVar = {"norm": 0.1, "quantile": 0.5, "lr": 0.2, "bit": 0.1}
    norm: float = 0.1
    quantile: float = 0.5
    lr: float = 0.2
    bit: float = 0.1

    def __post_init__(self) -> None:
        checks.sensible("stage.adaptive_clip", norm=self.norm, lr=self.lr, bit=self.bit)
        checks.fraction("stage.adaptive_clip", quantile=self.quantile)

    @property
    def coordinate(self) -> float:
        """Magnitude of the bit as it is sent: a float32 just inside norm·bit."""
        return float(np.float32(self.norm * self.bit * MARGIN))

    def bound(self, incoming: Bound) -> Bound:
        return incoming.capped(l2=self.norm).joined(self.norm * self.bit)

    def size(self, size: int) -> int:
        return size + 1

    def client(self, update: Update, plan: RoundPlan) -> Update:
        del plan
        finite = np.isfinite(update.vector).all()
        sign = 0.0 if not finite else 1.0 if length(update.vector) <= self.norm else -1.0
        clipped = shortened(update.vector, self.norm)
        return replace(update, vector=np.append(clipped, sign * self.coordinate).astype(np.float32))

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Self]:
        # The sum of ±½ over the expected cohort, plus ½. Clamped, so that noise cannot throw the norm far in one round.
        share = 0.5 + float(released[-1]) / (2 * self.coordinate * plan.expected)
        step = self.lr * (min(max(share, 0.0), 1.0) - self.quantile)
        return released[:-1], replace(self, norm=max(self.norm * math.exp(-step), SMALLEST))
