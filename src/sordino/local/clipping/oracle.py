"""One example at a time by plain autograd: slow, obvious, and what the other engines are tested against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core.types import Unit
from sordino.local.clipping._engine import Batch, Clipped, Groups, checked, engines, per_example
from sordino.local.layout import Layout, trainable
from sordino.local.losses import Loss
from sordino.privacy.kernel import certify


@engines.register("oracle")
@dataclass(frozen=True)
class Oracle:
    """A backward pass per example and float64 from there on. It shares no code with the faster engines."""

    example: ClassVar[dict[str, Any]] = {}

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, *, norm: float, unit: Unit, groups: Groups = None
    ) -> Clipped:
        checked(batch, norm, unit, groups)
        owners = np.arange(len(batch[0])) if groups is None else np.asarray(groups)
        total, nonfinite = np.zeros(Layout.of(model).size), 0
        for owner in np.unique(owners):
            each = [
                _gradient(model, loss, *(part[i : i + 1] for part in batch)) for i in np.flatnonzero(owners == owner)
            ]
            if not np.isfinite(each).all():
                nonfinite += 1
                continue
            gradient = np.mean(each, axis=0)
            length = float(np.linalg.norm(gradient))
            total += gradient * (norm / length if length > norm else 1.0)
        return Clipped(certify(total, unit=unit, l2=norm), nonfinite)


def _gradient(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> NDArray[np.float64]:
    parameters = list(trainable(model).values())
    value = per_example(loss(model(x), y), 1)[0]
    parts = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([part.reshape(-1) for part in parts]).double().cpu().numpy()
