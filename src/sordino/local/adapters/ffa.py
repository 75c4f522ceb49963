"""FFA-LoRA: A is public and fixed, B is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sordino.local.adapters._adapter import adapters
from sordino.local.adapters._base import Linear
from sordino.local.adapters._lowrank import LowRank

if TYPE_CHECKING:
    from sordino.local.models._registry import Shapes


@adapters.register("ffa")
@dataclass(frozen=True)
class Ffa(LowRank):
    """LoRA with A frozen at random values from the shared seed; only B is trained.

    The model is linear in what is released: averaging over silos is exact, noise is not multiplied, and there are
    half as many coordinates to add noise to.

    Args:
        rank: Rows of A.
        alpha: Strength; left out, twice the rank.
        targets: `attention` (query and value), `all-linear`, or names of linear maps, e.g. ["q_proj", "o_proj"].
        layers: Numbers of the layers to adapt; none means all.
        head: Train the classification head as well. If not, it keeps its public random values.

    Source: Sun et al. (2024), arXiv:2403.12313.
    """

    example: ClassVar[dict[str, Any]] = {"rank": 4}

    def trained(self, linear: Linear) -> Shapes:
        return (("lora_B.default.weight", (linear.outputs, self.rank)),)
