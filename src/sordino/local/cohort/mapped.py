"""Each client's gradient by `torch.func.vmap` over clients: any model without value-dependent control flow."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sordino.local.clipping._engine import per_example
from sordino.local.cohort.buckets import Padded
from sordino.local.layout import Layout
from sordino.local.losses import Loss


class Mapped:
    """A model's gradient, mapped over clients.

    A model that draws (dropout) raises a RuntimeError: its clients would draw otherwise than one after another.

    Args:
        model: Any.
        loss: One loss per example.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.layout, self.device = Layout.of(model), next(model.parameters()).device
        names = [group.name for group in self.layout.groups]

        def mean(values: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
            outputs = functional_call(model, dict(zip(names, values, strict=True)), (x,))
            return (per_example(loss(outputs, y), len(x)) * weights).sum()

        self._mapped = vmap(grad(mean), in_dims=(0, 1, 1, 1), randomness="error")

    def gradients(self, parameters: Sequence[Tensor], batch: Padded) -> list[Tensor]:
        """As `Twin.gradients`."""
        made: list[Tensor] = self._mapped([p.detach() for p in parameters], batch.x, batch.y, batch.weights)
        return made
