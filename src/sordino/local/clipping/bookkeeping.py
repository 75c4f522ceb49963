"""Clipped sums from one forward and one backward pass, without per-example gradients of large linear maps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from sordino.local.clipping._engine import Batch, Clip, Clipped, Groups, Unsupported, checked, engines, per_example
from sordino.local.clipping._formulas import Formula, formula_of, parts_of
from sordino.local.clipping._rehearsal import OfEach, Rehearsed, compare
from sordino.local.clipping._rules import factors, layers_of
from sordino.local.clipping._shares import Part, Share, share
from sordino.local.clipping._shares import Rows as PartRows
from sordino.local.clipping._sums import Rows, clipped
from sordino.local.clipping._taps import tapped
from sordino.local.layout import trainable
from sordino.local.losses import Loss
from sordino.local.passes import Passes, records_per_pass, smooth
from sordino.privacy.kernel import certify

Layers: TypeAlias = dict[nn.Module, Formula]
"""Layers with trainable parameters of their own."""

MATERIALISED = 2**22
"""Entries of per-example convolution gradients held at once."""


@engines.register("bookkeeping")
@dataclass(frozen=True)
class Bookkeeping:
    """Inputs and output gradients of every layer are met once, in the backward pass; norms and sums follow from them.

    Knows linear, embedding, convolution, Conv1D, LayerNorm, RMSNorm and GroupNorm layers, tied and reused ones,
    gradient checkpointing of both kinds and autocast. A model is rehearsed first, on made-up
    examples, so a parameter that is used in another way is found out, and another engine is for it.
    Examples share a pass: the model must have passed `sordino.local.probe`.

    Args:
        chunk: Examples per pass (micro-batch); left out, chosen by the size of convolutions and texts. It changes
            memory only.
        rows: A public number of examples that few batches exceed; see `Passes`.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    rows: int | None = None
    _rehearsed: Rehearsed = field(
        default_factory=Rehearsed, init=False, repr=False, compare=False, metadata={"toml": False}
    )

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        checked(batch, clip, groups)
        layers, (x, _) = _layers(model), batch
        self._rehearsed.once(model, lambda: _rehearse(model, layers, loss, batch))
        passes = Passes(self.chunk or _step(model, layers, x), self.rows or self.chunk, smooth(model))
        if groups is not None:

            def gradients(x: Tensor, y: Tensor) -> Rows:
                return [part.rows() for part in _shares(model, layers, loss, (x, y), multiply=True)]

            return clipped(model, batch, gradients, clip, groups, passes)
        own, nonfinite = trainable(model), 0
        numbers = layers_of(list(own))
        total = torch.zeros(sum(p.numel() for p in own.values()), dtype=torch.float64)
        for part, real in passes.over(model, batch):
            shares = _shares(model, layers, loss, part)
            squares = torch.stack([each.squares() for each in shares])
            weights, finite = factors(squares, numbers, clip.norm, clip.rule)
            weights[:, real:] = 0.0
            total += torch.cat([each.total(w) for each, w in zip(shares, weights, strict=True)]).cpu()
            nonfinite += int((~finite[:real]).sum())
        return Clipped(certify(total.numpy(), unit=clip.unit, l2=clip.norm), nonfinite)


def _layers(model: nn.Module) -> Layers:
    """The layers that hold trainable parameters of their own, with their formulas."""
    found = {}
    for name, layer in model.named_modules():
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            formula = formula_of(layer)
            if formula is None:
                raise Unsupported.about(
                    "engine.bookkeeping",
                    "is a layer it has no formula for",
                    'use engine = "auto"',
                    layer=name or "model",
                )
            found[layer] = formula
    return found


def _rehearse(model: nn.Module, layers: Layers, loss: Loss, like: Batch) -> None:
    def gradients(batch: Batch) -> OfEach:
        shares, ones = _shares(model, layers, loss, batch), torch.eye(len(batch[0]), dtype=torch.float64)
        return lambda i: torch.cat([each.total(ones[i].to(batch[0].device)) for each in shares])

    compare("engine.bookkeeping", model, loss, like, gradients)


def _step(model: nn.Module, layers: Layers, x: Tensor) -> int:
    held = sum(p.numel() for layer in layers if isinstance(layer, (nn.Conv1d, nn.Conv2d)) for p in layer.parameters())
    return records_per_pass(model, x, max(1, min(256, MATERIALISED // max(1, held))))


def _shares(model: nn.Module, layers: Layers, loss: Loss, batch: Batch, *, multiply: bool = False) -> list[Share]:
    """Every trainable parameter's share, in order."""
    x, y = batch
    own = trainable(model).values()
    found: dict[int, list[Part]] = {id(parameter): [] for parameter in own}
    wanted = {layer: _own(layer) for layer in layers}

    def record(layer: nn.Module, a: Tensor, g: Tensor) -> None:
        if len(a) != len(x) or len(g) != len(x):
            raise Unsupported.about("engine.bookkeeping", "a layer is called without one row per example")
        parts = parts_of(layer, layers[layer], a.detach(), g.detach())
        for name, parameter in wanted[layer].items():
            found[id(parameter)].append(parts[name]())

    with tapped(list(layers), len(x), record):
        total = per_example(loss(model(x), y), len(x)).sum()
        if total.requires_grad:  # else no trainable layer was called
            torch.autograd.backward(total)
    parts = [each or [_unused(len(x), p.numel())] for each, p in zip(found.values(), own, strict=True)]
    return [share(each, multiply=multiply) for each in parts]


def _own(layer: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in layer.named_parameters(recurse=False) if p.requires_grad}


def _unused(examples: int, numel: int) -> Part:
    return PartRows(torch.zeros(1, 1).expand(examples, numel))
