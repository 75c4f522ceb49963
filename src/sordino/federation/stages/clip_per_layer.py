"""Clip each parameter tensor on its own, inside one joint L2 bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import RoundPlan, Update
from sordino.federation.bounds import Bound, shortened
from sordino.federation.stages import Stage, stages


@stages.register("clip_per_layer")
@dataclass(frozen=True)
class ClipPerLayer(Stage):
    """Clip each of L parameter tensors to its share of one joint L2 norm.

    Tensor l is clipped to C_l = norm·√p_l with Σ p_l = 1, so the whole update has norm at most √(Σ C_l²) = norm.
    The same noise then covers every coordinate. Equal shares give C_l = norm/√L. Coordinates behind the last
    tensor (a stage before this one added them) are one tensor more. An update that is not finite counts as zero.

    Args:
        norm: Largest joint L2 norm of one client's update, > 0.
        shares: Relative share of norm² per tensor, in the order of the flat vector; empty for equal shares.

    Source:
        McMahan et al. (2018), arXiv:1710.06963 (per-layer clipping).
    """

    example: ClassVar = {"norm": 1.0}
    norm: float
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        checks.sensible("stage.clip_per_layer", norm=self.norm)
        for share in self.shares:
            checks.positive("stage.clip_per_layer", share=share)

    def bound(self, incoming: Bound) -> Bound:
        return incoming.capped(l2=self.norm)

    def client(self, update: Update, plan: RoundPlan) -> Update:
        if not np.isfinite(update.vector).all():
            return replace(update, vector=np.zeros(update.vector.size, np.float32))
        edges = _edges(plan, update.vector.size)
        pieces = [update.vector[start:stop] for start, stop in pairwise(edges)]
        norms = self._norms(len(pieces))
        clipped = [shortened(piece, norm) for piece, norm in zip(pieces, norms, strict=True)]
        return replace(update, vector=np.concatenate(clipped).astype(np.float32))

    def _norms(self, pieces: int) -> list[float]:
        shares = self.shares or (1.0,) * pieces
        if len(shares) != pieces:
            raise ConfigError.about(
                "stage.clip_per_layer", f"needs one share for each of {pieces} tensors", shares=shares
            )
        return [self.norm * math.sqrt(share / math.fsum(shares)) for share in shares]


def _edges(plan: RoundPlan, size: int) -> list[int]:
    """Where the tensors begin and end; they must follow one another without gap or overlap."""
    edges = [0]
    for group in plan.groups:
        if group.start != edges[-1] or not group.start < group.stop <= size:
            raise ConfigError.about("stage.clip_per_layer", "does not follow the tensor before it", group=group)
        edges.append(group.stop)
    return edges if edges[-1] == size else [*edges, size]
