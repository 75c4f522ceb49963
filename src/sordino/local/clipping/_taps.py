"""Taps on layers: what went in and which gradient came back, without any weight gradient of the batch being made.

    input ──► layer (weights frozen) ──► Tap ──► the rest of the model
       └────────────saved────────────────┘ ▲ backward: record(layer, input, output gradient), pass the gradient on

A tap keeps exactly what autograd would have kept for the weight gradient, so memory does not grow; under gradient
checkpointing it is dropped and made anew like everything else, and its backward still runs once per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

Record: TypeAlias = Callable[[nn.Module, Tensor, Tensor], None]
"""Is told of each call of a layer: the layer, its input, the gradient of its output."""


class _Tap(torch.autograd.Function):
    """The identity, and a witness of the gradient."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, _: Tensor, x: Tensor, witness: Callable[[Tensor, Tensor], None]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.witness = witness
        ctx.mark_dirty(output)  # no copy and no view, so that what follows may work in place, as many a ReLU does
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        ctx.witness(x, gradient)
        return gradient, None, None, None


@contextmanager
def tapped(layers: Sequence[nn.Module], examples: int, record: Record) -> Iterator[None]:
    """Layers whose parameters make no gradients of their own and whose calls are recorded.

    Args:
        layers: Those with trainable parameters of their own.
        examples: Rows of the batch. An embedding called with one row for all (position ids) is given a row each,
            so that its gradient can be told apart by example.
        record: Called in the backward pass.
    """
    trigger = torch.zeros((), requires_grad=True)  # makes outputs need a gradient though no weight does
    parameters = {p for layer in layers for p in layer.parameters(recurse=False) if p.requires_grad}

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(layer, nn.Embedding) and args and args[0].dim() > 1 and len(args[0]) == 1 < examples:
            return (args[0].expand(examples, *args[0].shape[1:]), *args[1:]), kwargs
        return None

    def after(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Any:
        x = args[0] if args else next(iter(kwargs.values()))
        return cast("Any", _Tap).apply(output, trigger, x, lambda a, g: record(layer, a, g))

    handles = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    handles += [layer.register_forward_hook(after, with_kwargs=True) for layer in layers]
    try:
        for parameter in parameters:
            parameter.requires_grad = False
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad = True
        for handle in handles:
            handle.remove()
