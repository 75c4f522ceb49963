"""Clipped sums from one forward and one backward pass, without per-example gradients of large linear maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sordino.core.seeds import stream
from sordino.local.clipping._engine import Batch, Clip, Clipped, Groups, Unsupported, checked, engines, per_example
from sordino.local.clipping._formulas import Formula, formula_of, parts_of
from sordino.local.clipping._rules import factors, layers_of
from sordino.local.clipping._shares import Part, Share, share
from sordino.local.clipping._shares import Rows as PartRows
from sordino.local.clipping._sums import Rows, clipped, paired
from sordino.local.clipping._taps import tapped
from sordino.local.layout import trainable
from sordino.local.losses import Loss
from sordino.local.passes import by_length, records_per_pass
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
    gradient checkpointing of both kinds and autocast. The first use of a model (and of other trainable parameters of it) compares its plain
    gradient with autograd's, so a parameter used in another way is found out, and another engine is for it.
    Examples share a pass: the model must have passed `sordino.local.probe`.

    Args:
        chunk: Examples per pass (micro-batch); left out, chosen by the size of convolutions and texts. It changes
            memory only.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    _compared: WeakKeyDictionary[nn.Module, set[tuple[str, ...]]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False, metadata={"toml": False}
    )

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        checked(batch, clip, groups)
        layers, names, (x, _) = _layers(model), tuple(trainable(model)), batch
        if len(x) and names not in self._compared.setdefault(model, set()):
            _compare(model, layers, loss, batch)
            self._compared[model].add(names)
        step = self.chunk or _step(model, layers, x)
        if groups is not None:

            def gradients(x: Tensor, y: Tensor) -> Rows:
                return [part.rows() for part in _shares(model, layers, loss, (x, y), multiply=True)]

            return clipped(model, batch, gradients, clip, groups, chunk=step)
        total = torch.zeros(sum(p.numel() for p in trainable(model).values()), dtype=torch.float64)
        nonfinite = 0
        for part in _passes(model, batch, step):
            real = len(part[0])
            shares = _shares(model, layers, loss, paired(*part))
            squares = torch.stack([each.squares() for each in shares])
            weights, finite = factors(squares, layers_of(names), clip.norm, clip.rule)
            weights[:, real:] = 0.0
            total += torch.cat([each.total(w) for each, w in zip(shares, weights, strict=True)]).cpu()
            nonfinite += int((~finite[:real]).sum())
        return Clipped(certify(total.numpy(), unit=clip.unit, l2=clip.norm), nonfinite)


def _passes(model: nn.Module, batch: Batch, step: int) -> Iterator[Batch]:
    x, y = batch
    for rows in torch.split(by_length(model, x), step):
        if len(rows):
            yield x[rows], y[rows]


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


def _step(model: nn.Module, layers: Layers, x: Tensor) -> int:
    held = sum(p.numel() for layer in layers if isinstance(layer, (nn.Conv1d, nn.Conv2d)) for p in layer.parameters())
    return records_per_pass(model, x, max(1, min(128, MATERIALISED // max(1, held))))


def _shares(model: nn.Module, layers: Layers, loss: Loss, batch: Batch, *, multiply: bool = False) -> list[Share]:
    """Every trainable parameter's share, in order."""
    x, y = batch
    found: dict[int, list[Part]] = {id(parameter): [] for parameter in trainable(model).values()}
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
    sizes = [parameter.numel() for parameter in trainable(model).values()]
    parts = [each or [_unused(len(x), size)] for each, size in zip(found.values(), sizes, strict=True)]
    return [share(each, multiply=multiply) for each in parts]


def _own(layer: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in layer.named_parameters(recurse=False) if p.requires_grad}


def _unused(examples: int, numel: int) -> Part:
    return PartRows(torch.zeros(1, 1).expand(examples, numel))


def _compare(model: nn.Module, layers: Layers, loss: Loss, batch: Batch) -> None:
    """Refuse a model whose gradients are not the sum of its layers' calls.

    Tried on two sizes, for positions taken for examples cannot fit both; and beside the starting point, where an
    adapter's zeros would hide what is compared.
    """
    x, y = batch
    # Real records may be extreme or not finite; tokens cannot be.
    calm = torch.from_numpy(stream(0, "compare").normal(size=x.shape)).to(x) if x.is_floating_point() else x
    with _moved(model):
        good = _finite(model, loss, (calm[:16], y[:16]))
        for rows in (2, 3):
            some = good[torch.arange(rows, device=x.device) % len(good)]
            _compare_once(model, layers, loss, (calm[some], y[some]))


def _finite(model: nn.Module, loss: Loss, batch: Batch) -> Tensor:
    """Rows whose losses are numbers."""
    x, y = batch
    good = torch.nonzero(torch.isfinite(per_example(loss(model(x), y), len(x)))).flatten()
    if not len(good):
        raise Unsupported.about("engine.bookkeeping", "finds no example with a finite loss to compare itself on")
    return good


def _compare_once(model: nn.Module, layers: Layers, loss: Loss, batch: Batch) -> None:
    x, y = batch
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):  # dropout must repeat its draws
        shares = _shares(model, layers, loss, batch)
    parameters = list(trainable(model).values())
    with torch.random.fork_rng(devices=devices):
        plain = _plain(loss(model(x), y).sum(), parameters)
    ones = torch.ones(len(x), dtype=torch.float64, device=x.device)
    rough = any(p.dtype != torch.float32 for p in model.parameters()) or torch.is_autocast_enabled(x.device.type)
    tolerance = 0.05 if rough else 1e-3
    for own, expected in zip(shares, plain, strict=True):
        apart = (own.total(ones) - expected.flatten().double()).norm()
        if not apart <= tolerance * expected.double().norm() + 1e-5:
            raise Unsupported.about("engine.bookkeeping", "a parameter is used outside its layer's call")


def _plain(total: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Gradients by autograd, without leaving any; `torch.autograd.grad` knows no reentrant checkpoints."""
    for parameter in parameters:
        parameter.grad = None  # an earlier use may have left one, and backward adds
    if total.requires_grad:
        torch.autograd.backward(total)
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return gradients


@contextmanager
def _moved(model: nn.Module) -> Iterator[None]:
    """The model a little beside itself."""
    parameters = list(trainable(model).values())
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
