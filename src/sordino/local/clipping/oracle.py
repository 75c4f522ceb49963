"""One example at a time by plain autograd: slow, obvious, and what the other engines are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.local.clipping._engine import Batch, Clip, Clipped, Groups, checked, engines, per_example
from sordino.local.clipping._rules import Rule
from sordino.local.layout import Layout, trainable
from sordino.local.losses import Loss
from sordino.privacy.kernel import certify


@engines.register("oracle")
@dataclass(frozen=True)
class Oracle:
    """A backward pass per example and float64 from there on. It shares no code with the faster engines."""

    example: ClassVar[dict[str, Any]] = {}

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        checked(batch, clip, groups)
        owners = np.arange(len(batch[0])) if groups is None else np.asarray(groups)
        layout, parameters = Layout.of(model), list(trainable(model).values())
        total, nonfinite = np.zeros(layout.size), 0
        for owner in np.unique(owners):
            each = [
                _gradient(model, parameters, loss, *(part[i : i + 1] for part in batch))
                for i in np.flatnonzero(owners == owner)
            ]
            mean = sum(each[1:], start=each[0]) / len(each)
            if not np.isfinite(mean).all():
                nonfinite += 1
                continue
            total += _scaled(mean, layout, clip.norm, clip.rule)
        return Clipped(certify(total, unit=clip.unit, l2=clip.norm), nonfinite)


def _gradient(model: nn.Module, parameters: Sequence[Tensor], loss: Loss, x: Tensor, y: Tensor) -> NDArray[np.float64]:
    value = per_example(loss(model(x), y), 1)[0]
    if value.requires_grad:
        torch.autograd.backward(value)  # not `grad`, which knows no reentrant checkpoints
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return torch.cat([part.reshape(-1) for part in parts]).double().cpu().numpy()


def _scaled(gradient: NDArray[np.float64], layout: Layout, norm: float, rule: Rule) -> NDArray[np.float64]:
    """One unit's gradient within the norm."""
    if rule == "automatic":
        scaled: NDArray[np.float64] = gradient * norm / (np.linalg.norm(gradient) + 0.01)
        return scaled
    if rule == "flat":
        return _shortened(gradient, norm)
    layers: dict[str, list[int]] = {}
    for group in layout.groups:
        layers.setdefault(".".join(group.name.split(".")[:-1]), []).extend(range(group.start, group.stop))
    result = np.zeros_like(gradient)
    for rows in layers.values():
        result[rows] = _shortened(gradient[rows], norm / len(layers) ** 0.5)
    return result


def _shortened(gradient: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    length = float(np.linalg.norm(gradient))
    return gradient * (norm / length) if length > norm else gradient
