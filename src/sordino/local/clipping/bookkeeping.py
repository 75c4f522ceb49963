"""Clipped sums from one forward and one backward pass, without per-example gradients of linear maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import Tensor, nn

from sordino.core.seeds import stream
from sordino.core.types import Unit
from sordino.local.clipping._engine import Batch, Clipped, Groups, Unsupported, checked, engines, per_example
from sordino.local.clipping._shares import Share, Use, bias_share, supported, weight_share
from sordino.local.clipping._sums import paired
from sordino.local.clipping.vmap import Vmap
from sordino.local.layout import trainable
from sordino.local.losses import Loss
from sordino.privacy.kernel import certify

MATERIALISED = 2**22
"""Entries of per-example convolution gradients held at once."""


@engines.register("bookkeeping")
@dataclass(frozen=True)
class Bookkeeping:
    """Inputs and output gradients of linear, convolution and embedding layers are kept; norms and sums follow.

    Other trainable layers, and people as units (their means need whole gradients), are for `vmap`. The first use
    of a model compares its plain gradient with autograd's, so a parameter used in another way is found out.
    Examples share a pass: the model must have passed `sordino.local.probe`.

    Args:
        chunk: Examples per pass; left out, chosen by the size of the convolutions.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    _compared: WeakSet[nn.Module] = field(
        default_factory=WeakSet, init=False, repr=False, compare=False, metadata={"toml": False}
    )

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, *, norm: float, unit: Unit, groups: Groups = None
    ) -> Clipped:
        checked(batch, norm, unit, groups)
        if unit is Unit.USER:
            return Vmap().clipped_sum(model, loss, batch, norm=norm, unit=unit, groups=groups)
        layers = _layers(model)
        x, y = batch
        if len(x) and model not in self._compared:
            for rows in (2, 3):  # two sizes: positions taken for examples cannot fit both
                some = torch.arange(rows, device=x.device) % len(x)
                _compare(model, layers, loss, (x[some], y[some]))
            self._compared.add(model)
        total = torch.zeros(sum(p.numel() for p in trainable(model).values()), dtype=torch.float64)
        nonfinite, step = 0, self.chunk or _step(layers)
        for start in range(0, len(x), step):
            part = x[start : start + step], y[start : start + step]
            real = len(part[0])
            shares, _ = _shares(model, layers, loss, paired(*part))
            norms = torch.stack([share.squares for share in shares]).sum(dim=0).sqrt()
            finite = torch.isfinite(norms)
            weights = torch.where(finite, (norm / norms).clamp(max=1.0), 0.0)
            weights[real:] = 0.0
            total += torch.cat([share.total(weights) for share in shares]).cpu()
            nonfinite += int((~finite[:real]).sum())
        return Clipped(certify(total.numpy(), unit=unit, l2=norm), nonfinite)


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers that hold trainable parameters of their own."""
    found = []
    for name, layer in model.named_modules():
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            if not supported(layer):
                raise Unsupported.about(
                    "engine.bookkeeping",
                    "is a layer it has no formula for",
                    'use engine = "auto"',
                    layer=name or "model",
                )
            found.append(layer)
    return found


def _step(layers: list[nn.Module]) -> int:
    held = sum(p.numel() for layer in layers if isinstance(layer, nn.Conv2d) for p in layer.parameters())
    return max(1, min(256, MATERIALISED // max(1, held)))


@contextmanager
def _calls(layers: list[nn.Module]) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
    """Collects layer, input and output of every call."""
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def record(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((layer, inputs[0].detach(), output))

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _shares(
    model: nn.Module, layers: list[nn.Module], loss: Loss, batch: Batch, *, plain: bool = False
) -> tuple[list[Share], list[Tensor]]:
    """Every trainable parameter's share, in order; with `plain`, also its gradient by autograd."""
    x, y = batch
    with _calls(layers) as seen:
        losses = per_example(loss(model(x), y), len(x))
    versions = [output._version for _, _, output in seen]  # noqa: SLF001 - how torch counts in-place writes
    if any(versions):
        raise Unsupported.about("engine.bookkeeping", "a layer's output is overwritten in place", "use inplace=False")
    outputs: list[Tensor] = [output for _, _, output in seen]
    parameters = list(trainable(model).values())
    wanted = [*outputs, *parameters] if plain else outputs
    gradients = torch.autograd.grad(losses.sum(), wanted, allow_unused=True, materialize_grads=True)
    uses: list[Use] = [(layer, a, g) for (layer, a, _), g in zip(seen, gradients, strict=False)]
    if any(len(a) != len(x) or len(g) != len(x) for _, a, g in uses):
        raise Unsupported.about("engine.bookkeeping", "a layer is called without one row per example")
    return [_share(parameter, uses, len(x)) for parameter in parameters], list(gradients[len(outputs) :])


def _share(parameter: nn.Parameter, uses: list[Use], examples: int) -> Share:
    own = [use for use in uses if getattr(use[0], "weight", None) is parameter]
    if own:
        return weight_share(own)
    own = [use for use in uses if getattr(use[0], "bias", None) is parameter]
    if own:
        return bias_share(own)
    zero = torch.zeros(examples, dtype=torch.float64, device=parameter.device)  # the layer was not called
    return Share(zero, lambda _: torch.zeros(parameter.numel(), dtype=torch.float64, device=parameter.device))


def _compare(model: nn.Module, layers: list[nn.Module], loss: Loss, batch: Batch) -> None:
    """Refuse a model whose gradients are not the sum of its layers' calls."""
    x, y = batch
    # Real records may be extreme or not finite; tokens cannot be.
    calm = torch.from_numpy(stream(0, "compare").normal(size=x.shape)).to(x) if x.is_floating_point() else x
    shares, plain = _shares(model, layers, loss, (calm, y), plain=True)
    ones = torch.ones(len(calm), dtype=torch.float64, device=x.device)
    for share, expected in zip(shares, plain, strict=True):
        if not torch.allclose(share.total(ones), expected.flatten().double(), rtol=1e-3, atol=1e-5):
            raise Unsupported.about("engine.bookkeeping", "a parameter is used outside its layer's call")
