"""Plain SGD, for noise added later to whole updates, and for comparison without privacy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core.types import Vector
from sordino.local.layout import Layout, trainable
from sordino.local.losses import Loss, cross_entropy
from sordino.local.objectives import Objective
from sordino.local.passes import by_length, records_per_pass
from sordino.local.trainers._data import Data, tensor
from sordino.local.trainers.plans import PlainSteps


def train_plain(
    model: nn.Module,
    layout: Layout,
    data: Data,
    start: Vector,
    plan: PlainSteps,
    rng: np.random.Generator,
    objective: Objective,
    *,
    loss: Loss = cross_entropy,
) -> Vector:
    """The change that plain SGD makes to the parameters. Private: it must go through a door.

    Args:
        model: A shared instance: its parameters are overwritten. Modules keep their mode.
        layout: `Layout.of(model)`.
        data: The client's records. None at all give a zero change.
        start: Shape (d,).
        plan: What to do.
        rng: Shuffles the records.
        objective: Its regulariser is added to each step's mean gradient.
        loss: One loss per example.

    Returns:
        θ_end − θ_start, shape (d,). All NaN if training diverged: clipping counts that as zero,
        while an error would tell everyone about this client's data.
    """
    x, y = tensor(model, data[0]), tensor(model, data[1])
    theta, velocity = np.array(start, dtype=np.float32), np.zeros(layout.size, dtype=np.float32)
    for rows in batches(len(x), plan, rng):
        layout.restore(model, theta)
        picked = torch.from_numpy(rows).to(x.device)
        gradient = _mean_gradient(model, loss, x[picked], y[picked])
        velocity = np.float32(plan.momentum) * velocity + gradient + objective.regulariser(theta, start)
        theta = theta - np.float32(plan.lr) * velocity
        if not np.isfinite(theta).all():
            return np.full(layout.size, np.nan, dtype=np.float32)
    layout.restore(model, theta)
    return theta - start


def _mean_gradient(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Vector:
    """The gradient of the mean loss, shape (d,), a few texts at a time; nothing is left on the model."""
    parameters = list(trainable(model).values())
    for parameter in parameters:
        parameter.grad = None  # an earlier use may have left one, and backward adds
    step = records_per_pass(model, x, len(x))
    for rows in torch.split(by_length(model, x), step):
        # `torch.autograd.grad` knows no reentrant checkpoints.
        torch.autograd.backward(loss(model(x[rows]), y[rows]).sum() / len(x))
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    gradient: Vector = torch.cat([part.reshape(-1).float() for part in parts]).cpu().numpy()
    return gradient


def batches(records: int, plan: PlainSteps, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Rows of each step: shuffled passes, cut into batches; the last of a pass may be smaller."""
    if records == 0:
        return
    size = min(plan.batch_size or records, records)
    per_pass = -(-records // size)
    left = plan.steps if plan.steps is not None else (plan.epochs or 0) * per_pass
    while left > 0:
        order = rng.permutation(records) if size < records else np.arange(records)
        for start in range(0, records, size)[:left]:
            yield order[start : start + size]
        left -= min(left, per_pass)
