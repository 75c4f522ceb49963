"""Per-example gradients by `torch.func.vmap` over `grad`: no hooks, no wrapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sordino.local.clipping._engine import Batch, Clip, Clipped, Groups, engines, per_example
from sordino.local.clipping._sums import Rows, clipped, passes_of
from sordino.local.layout import trainable
from sordino.local.losses import Loss


@engines.register("vmap")
@dataclass(frozen=True)
class Vmap:
    """One function per example, mapped over the batch: each example sees itself only.

    Models whose control flow depends on values cannot be mapped; use `opacus` for them.

    Args:
        chunk: Examples per pass; left out, chosen by the number of parameters.
        rows: A public number of examples that few batches exceed; see `Passes`.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    rows: int | None = None

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        parameters = {name: parameter.detach() for name, parameter in trainable(model).items()}

        def of_one(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return per_example(loss(functional_call(model, values, (x[None],)), y[None]), 1)[0]

        mapped = vmap(grad(of_one), in_dims=(None, 0, 0), randomness="different")

        def gradients(x: Tensor, y: Tensor) -> Rows:
            rows = mapped(parameters, x, y)
            # Not `flatten(1)`: the rows of a 0-d parameter have no second dimension.
            return [rows[name].reshape(len(x), parameter.numel()) for name, parameter in parameters.items()]

        return clipped(model, batch, gradients, clip, groups, passes_of(model, self.chunk, self.rows))
