"""FLoRA: one block per silo, stacked instead of averaged.

W0 + s · [B_1 … B_n] · [A_1; …; A_n] = W0 + s · Σ_i B_i·A_i
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import adapters
from sordino.local.adapters._base import Linear
from sordino.local.adapters._lowrank import LowRank

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from sordino.local.models._registry import Shapes

Matrix = NDArray[np.floating]


@adapters.register("stacked")
@dataclass(frozen=True, kw_only=True)
class Stacked(LowRank):
    """Silo i trains its own B_i against its own public random A_i; the model is W0 + s·Σ B_i·A_i, exactly.

    A_i is fixed, so silo i's noise ξ_i enters as s·ξ_i·A_i: it stays linear. Were A_i trained as well, its noise would
    be multiplied by that of B_i. Saved as one LoRA of rank silos × rank.

    Args:
        silos: Number of silos, each with a block of its own.
        rank: Rows of one silo's A_i.
        alpha: Strength, s = alpha / rank; left out, twice the rank.
        targets: `attention` (query and value), `all-linear`, or names of linear maps, e.g. ["q_proj", "o_proj"].
        layers: Numbers of the layers to adapt; none means all.
        head: Train the classification head as well, by all silos. If not, it keeps its public random values.

    Source: Wang et al. (2024), arXiv:2409.05976; there A_i is trained as well, and merged into W0 after each round.
    """

    example: ClassVar[dict[str, Any]] = {"rank": 2, "silos": 3}
    silos: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("adapter.stacked", silos=self.silos)

    @property
    def width(self) -> int:
        return self.rank * self.silos

    def trained(self, linear: Linear) -> Shapes:
        return tuple((f"lora_B.default.{i}.weight", (linear.outputs, self.rank)) for i in range(self.silos))

    def start(self, linear: Linear, layer: Any, generator: Generator) -> None:
        from sordino.local.adapters._torch import Blocks

        super().start(linear, layer, generator)
        layer.lora_B["default"] = Blocks(layer.lora_B["default"], self.silos)

    def factors(self, layer: Any) -> tuple[Tensor, Tensor]:
        return layer.lora_A["default"].weight, layer.lora_B["default"].joined()

    def active(self, names: tuple[str, ...], round: int, client: int, clients: int) -> tuple[str, ...]:  # noqa: A002, ARG002 - the protocol's
        if clients != self.silos:
            raise ConfigError.about("adapter.stacked", f"must be {clients}, one block per silo", silos=self.silos)
        own = f".lora_B.default.{client}."
        return tuple(name for name in names if ".lora_B." not in name or own in name)


def stack(parts: Sequence[tuple[Matrix, Matrix, float]]) -> tuple[Matrix, Matrix]:
    """One pair of factors whose product is the weighted sum of the products, whatever the ranks.

    Args:
        parts: Of each silo A_i, shape (rank_i, inputs), B_i, shape (outputs, rank_i), and a weight.

    Returns:
        A, shape (Σ rank_i, inputs), and B, shape (outputs, Σ rank_i), with B·A = Σ weight_i·B_i·A_i.

    Raises:
        ConfigError: There is no part, or shapes do not fit.

    Source:
        Wang et al. (2024), arXiv:2409.05976, section 3.2.

    >>> A, B = stack([(np.ones((1, 2)), np.ones((3, 1)), 0.5), (np.ones((2, 2)), np.ones((3, 2)), 0.25)])
    >>> A.shape, B.shape, float((B @ A)[0, 0])
    ((3, 2), (3, 3), 1.0)
    """
    widths = {(A.shape[1], B.shape[0]) for A, B, _ in parts}
    if len(widths) != 1 or any(A.shape[0] != B.shape[1] for A, B, _ in parts):
        raise ConfigError.about(
            "stack", "must fit the same map, each A its B", shapes=[(A.shape, B.shape) for A, B, _ in parts]
        )
    return np.concatenate([A for A, _, _ in parts]), np.concatenate([weight * B for _, B, weight in parts], axis=1)
