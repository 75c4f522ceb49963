"""LoRA: both factors are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.local.adapters._adapter import adapters
from sordino.local.adapters._lowrank import LowRank


@adapters.register("lora")
@dataclass(frozen=True)
class Lora(LowRank):
    """A low-rank change of the linear maps, W0 + s·B·A with s = alpha / rank; A and B are trained.

    Across silos the mean of B times the mean of A is not the mean of the products, and noise in both factors is
    multiplied: at small epsilon `ffa` or `alternating` is the better choice.

    Args:
        rank: Rows of A.
        alpha: Strength; left out, twice the rank.
        targets: `attention` (query and value), `all-linear`, or names of linear maps, e.g. ["q_proj", "o_proj"].
        layers: Numbers of the layers to adapt; none means all.
        head: Train the classification head as well. If not, it keeps its public random values.

    Source: Hu et al. (2021), arXiv:2106.09685.
    """

    example: ClassVar[dict[str, Any]] = {"rank": 4, "targets": "attention"}
