"""A small square matrix between fixed public bases.

x ──┬─► W0 ───────────────────────────────────┐
    └─► A (public) ─► R (rank × rank) ─► B (public) ─► · s ┴─► y
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import adapters
from sordino.local.adapters._base import Base, Linear
from sordino.local.adapters._lowrank import LowRank

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from sordino.local.models._registry import Shapes


@adapters.register("fed_sb")
@dataclass(frozen=True)
class FedSb(LowRank):
    """W0 + s·B·R·A with orthonormal public bases A and B; only R, rank × rank numbers per map, is trained.

    The original takes its bases from a first gradient on private data, which tells of that data without noise. Here
    they come from the shared seed or from the pretrained weights. The model is linear in R, so averages are exact.
    Saved as plain LoRA with B·R in the place of B.

    Args:
        rank: Side of R, at most the widths of the maps.
        alpha: Strength, s = alpha / rank; left out, twice the rank.
        targets: `attention` (query and value), `all-linear`, or names of linear maps, e.g. ["q_proj", "o_proj"].
        layers: Numbers of the layers to adapt; none means all.
        head: Train the classification head as well. If not, it keeps its public random values.
        bases: `orthogonal` draws them from the seed; `svd` takes the leading singular vectors of the pretrained weight.

    Source: Singhal et al. (2025), arXiv:2502.15436.
    """

    example: ClassVar[dict[str, Any]] = {"rank": 4, "bases": "orthogonal"}
    bases: Literal["orthogonal", "svd"] = "orthogonal"

    def trained(self, linear: Linear) -> Shapes:  # noqa: ARG002 - the same for every map
        return (("lora_B.default.core.weight", (self.rank, self.rank)),)

    def targeted(self, base: Base) -> tuple[Linear, ...]:
        found = super().targeted(base)
        for linear in found:
            if self.rank > min(linear.inputs, linear.outputs):
                raise ConfigError.about(
                    "adapter.fed_sb", "exceeds the width of a map", "lower it", rank=self.rank, map=linear.path
                )
        return found

    def start(self, linear: Linear, layer: Any, generator: Generator) -> None:
        from torch import nn

        down, up = layer.lora_A["default"].weight, layer.lora_B["default"]
        if self.bases == "svd":
            weight = layer.get_base_layer().weight
            A, B = _singular(weight.T if linear.transposed else weight, self.rank)
        else:
            A = _orthonormal(linear.inputs, self.rank, generator).T
            B = _orthonormal(linear.outputs, self.rank, generator)
        core = nn.Linear(self.rank, self.rank, bias=False, device=down.device, dtype=down.dtype)
        core.weight.zero_()
        down.copy_(A)
        up.weight.copy_(B)
        layer.lora_B["default"] = nn.Sequential(OrderedDict(core=core, basis=up))

    def factors(self, layer: Any) -> tuple[Tensor, Tensor]:
        up = layer.lora_B["default"]
        product: Tensor = up.basis.weight @ up.core.weight
        return layer.lora_A["default"].weight, product


def _orthonormal(rows: int, columns: int, generator: Generator) -> Tensor:
    """Random orthonormal columns; signs are fixed, because libraries differ in theirs."""
    import torch

    drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    return torch.mul(basis, triangle.diagonal().sign())


def _singular(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Leading right and left singular vectors; the largest entry of each right one is positive, as above."""
    import torch

    if not weight.is_floating_point():
        raise ConfigError.about("adapter.fed_sb", "needs the weights in full precision", 'use bases = "orthogonal"')
    left, _, right = torch.linalg.svd(weight.double(), full_matrices=False)
    left, right = left[:, :rank], right[:rank]
    signs = right.gather(1, right.abs().argmax(dim=1, keepdim=True)).sign()
    return right * signs, left * signs.T
