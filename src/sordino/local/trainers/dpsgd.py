"""DP-SGD: every step is a clipped sum that goes through a door.

    coins ──► batch ──engine──► BoundedSum ──release──► g / expected_batch ──► + regulariser ──► momentum ──► θ

Everything right of `release` is post-processing. Before it, nothing has a value that could leave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sordino.core.errors import PrivacyError
from sordino.core.types import Vector
from sordino.local.clipping import ClippingEngine, engines
from sordino.local.layout import Layout
from sordino.local.losses import Loss, cross_entropy
from sordino.local.objectives import Objective
from sordino.local.trainers._data import Data, tensor
from sordino.local.trainers._pools import pools, step_sum
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy.doors import Release
from sordino.privacy.noise import NoiseSource


def train_private(  # noqa: PLR0913 - the parts of a private step come from different owners
    model: nn.Module,
    layout: Layout,
    data: Data,
    start: Vector,
    plan: PrivateSteps,
    *,
    release: Release,
    source: NoiseSource,
    objective: Objective,
    loss: Loss = cross_entropy,
    engine: ClippingEngine | None = None,
    labels: NDArray[Any] | None = None,
) -> Vector:
    """The change that a silo's private steps make to the parameters.

    Args:
        model: A shared instance: its parameters are overwritten. Modules keep their mode.
        layout: `Layout.of(model)`.
        data: The silo's records; there may be none, and noise is released all the same.
        start: Released or public parameters, shape (d,).
        plan: What to do.
        release: Adds the noise; the caller has reserved `plan.steps` releases.
        source: For the coins of the batches.
        objective: Added outside the clip.
        loss: One loss per example.
        engine: The clipping engine; left out, one by the plan's name.
        labels: The public group of each record, where the plan tells groups apart.

    Returns:
        θ_end − θ_start, shape (d,): released.

    Guarantee:
        The result depends on the data through exactly `plan.steps` releases, of sums that one unit moves by at
        most `plan.clip`, if examples do not influence each other in the model (`sordino.local.probe`). With
        `records_per_person` K, a person moves them by at most K · `plan.clip`, a record at a time. With groups, a
        record moves them by at most its group's share of `plan.clip`.

    Raises:
        PrivacyError: A release was refused, or has another shape than the model.
        EngineError: The parameters diverged.

    Source: Abadi et al. (2016), arXiv:1607.00133, algorithm 1, with a public divisor.
    """
    parts = pools(data, labels, plan)
    x, y = tensor(model, data[0]), tensor(model, data[1])
    clipping = engine or engines.build(plan.engine, {})
    theta, velocity = np.array(start, dtype=np.float32), np.zeros(layout.size, dtype=np.float32)
    for _ in range(plan.steps):
        layout.restore(model, theta)
        total = step_sum(parts, model, loss, x, y, plan, source, clipping)
        released = checked(release(total), layout)
        gradient = released / np.float32(plan.expected_batch) + objective.regulariser(theta, start)
        velocity = np.float32(plan.momentum) * velocity + gradient
        theta = theta - np.float32(plan.lr) * velocity
    layout.restore(model, theta)
    return theta - start


def checked(released: Vector, layout: Layout) -> Vector:
    """The released vector, if it is as long as the model's."""
    if released.shape != (layout.size,):
        raise PrivacyError.about(
            "train", "is not the shape of the model", "release the whole sum", shape=released.shape
        )
    return released
