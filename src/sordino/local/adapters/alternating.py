"""RoLoRA: rounds alternate between the two factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.local.adapters._adapter import adapters
from sordino.local.adapters._lowrank import LowRank


@adapters.register("alternating")
@dataclass(frozen=True)
class Alternating(LowRank):
    """LoRA that trains B in even rounds and A in odd ones.

    Within a round the model is linear in what is released: averaging is exact, and noise is never multiplied by other
    noise of the same round. One accountant covers all rounds. B comes first, because A has no gradient while B is 0.

    Args:
        rank: Rows of A.
        alpha: Strength; left out, twice the rank.
        targets: `attention` (query and value), `all-linear`, or names of linear maps, e.g. ["q_proj", "o_proj"].
        layers: Numbers of the layers to adapt; none means all.
        head: Train the classification head as well, in every round. If not, it keeps its public random values.

    Source: Chen et al. (2024), arXiv:2409.02346.
    """

    example: ClassVar[dict[str, Any]] = {"rank": 4}

    def active(self, names: tuple[str, ...], round: int, client: int, clients: int) -> tuple[str, ...]:  # noqa: A002, ARG002 - the protocol's
        resting = ".lora_A." if round % 2 == 0 else ".lora_B."
        return tuple(name for name in names if resting not in name)
