"""LoRA whose strength falls with the root of the rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.local.adapters._adapter import adapters
from sordino.local.adapters._lowrank import LowRank


@adapters.register("rslora")
@dataclass(frozen=True)
class RsLora(LowRank):
    """LoRA with s = alpha / √rank, so that a larger rank does not learn more slowly; A and B are trained.

    Clipping acts on A and B, so s changes what a given clip means. Saved as the plain LoRA with the same s.

    Args:
        rank: Rows of A.
        alpha: Strength; left out, 16.
        targets: `attention` (query and value), `all-linear`, or names of linear maps, e.g. ["q_proj", "o_proj"].
        layers: Numbers of the layers to adapt; none means all.
        head: Train the classification head as well. If not, it keeps its public random values.

    Source: Kalajdzievski (2023), arXiv:2312.03732.
    """

    example: ClassVar[dict[str, Any]] = {"rank": 4}

    @property
    def scale(self) -> float:
        return (16.0 if self.alpha is None else self.alpha) / math.sqrt(self.rank)
