"""An engine is tried on made-up examples before it touches real ones: no record decides how records are clipped.

made-up examples ──engine──► gradient of each  ┐
       └── one at a time, by autograd ──►      ┴ equal? else the engine is not for this model
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sordino.core.seeds import stream
from sordino.local.clipping._engine import Batch, Unsupported, per_example
from sordino.local.dropout import without_dropout
from sordino.local.layout import trainable
from sordino.local.losses import Loss

OfEach: TypeAlias = Callable[[int], Tensor]
"""The flat gradient of one example of a batch."""


class Rehearsed:
    """Which models have been tried, with which of their parameters trained."""

    def __init__(self) -> None:
        self._done: WeakKeyDictionary[nn.Module, set[tuple[str, ...]]] = WeakKeyDictionary()

    def once(self, model: nn.Module, rehearse: Callable[[], None]) -> None:
        """Rehearse, unless it was done for the parameters that are trained now."""
        names = tuple(trainable(model))
        if names not in self._done.setdefault(model, set()):
            rehearse()
            self._done[model].add(names)


def made_up(model: nn.Module, like: Batch, examples: int) -> Batch:
    """Examples of the public shape of others: random numbers; classes 0 and 1; two tokens, neither of them padding."""
    rng, parts = stream(0, "made up"), []
    for part in like:
        size = (examples, *part.shape[1:])
        values = rng.normal(size=size) if part.is_floating_point() else rng.integers(2, size=size)
        parts.append(torch.from_numpy(values).to(part))
    padding = getattr(model, "padding", None)
    if padding in (0, 1) and not parts[0].is_floating_point():
        parts[0][parts[0] == padding] = 2
    return parts[0], parts[1]


def compare(where: str, model: nn.Module, loss: Loss, like: Batch, gradients: Callable[[Batch], OfEach]) -> None:
    """Refuse an engine whose gradients of single examples are not those that autograd gives for each alone.

    Two examples, then the same turned round with a third: positions taken for examples cannot fit both, nor can a
    layer that sees examples in another order. Tried a little beside the model's parameters, where an adapter's zeros
    would hide what is compared.

    Args:
        where: The engine, for the message.
        model: As it is trained.
        loss: One loss per example.
        like: A batch, for its shape and types only.
        gradients: What the engine makes of a batch.

    Raises:
        Unsupported: A gradient differs, or all are zero, so that nothing was compared.
    """
    x, y = made_up(model, like, 3)
    rough = any(p.dtype != torch.float32 for p in model.parameters()) or torch.is_autocast_enabled(x.device.type)
    tolerance, largest = (0.05 if rough else 1e-3), 0.0
    with without_dropout(model), _beside(model):
        for rows in ([0, 1], [1, 0, 2]):
            of_each = gradients((x[rows], y[rows]))
            for i, row in enumerate(rows):
                alone = _alone(model, loss, x[row : row + 1], y[row : row + 1])
                largest = max(largest, float(alone.norm()))
                if not (of_each(i).to(alone) - alone).norm() <= tolerance * alone.norm() + 1e-5:
                    raise Unsupported.about(where, "a parameter is used outside its layer's call, or in another order")
    if largest == 0:
        raise Unsupported.about(where, "finds no gradient to compare itself on")


def _alone(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """The flat gradient of one example, leaving none behind; `torch.autograd.grad` knows no reentrant checkpoints."""
    parameters = list(trainable(model).values())
    for parameter in parameters:
        parameter.grad = None
    value = per_example(loss(model(x), y), 1).sum()
    if value.requires_grad:
        torch.autograd.backward(value)
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return torch.cat([part.reshape(-1).double() for part in parts])


@contextmanager
def _beside(model: nn.Module) -> Iterator[None]:
    """The model a little beside itself: what is trained, and what is all zeros and would hide it."""
    real = [p for p in model.parameters() if p.is_floating_point()]
    parameters = [p for p in real if p.requires_grad or not bool(p.any())]
    before, rng = [parameter.detach().clone() for parameter in parameters], stream(0, "beside")
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.from_numpy(rng.normal(scale=0.02, size=tuple(parameter.shape))).to(parameter))
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)
