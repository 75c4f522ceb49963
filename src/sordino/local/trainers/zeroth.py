"""Zeroth-order steps: forward passes only, and a few numbers through the door whatever the size of the model.

    public seed ──► directions u_1 … u_K              the same in every silo, never sent
    coins ──► batch ──losses at θ ± φu_k──► slopes (units, K) ──clip, sum──► release / expected_batch ──► p
    θ ← θ − lr · Σ_k p_k u_k / K                       silo and coordinator replay it from p alone

Memory is that of inference: no gradient is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core import seeds
from sordino.core.errors import PrivacyError
from sordino.core.types import Unit, Vector
from sordino.local.clipping._engine import per_example
from sordino.local.evaluate import evaluating
from sordino.local.layout import Layout
from sordino.local.losses import Loss, cross_entropy
from sordino.local.passes import FEWEST, likely, records_per_pass
from sordino.local.trainers._data import Data, Units, tensor
from sordino.local.trainers.plans import ZerothSteps
from sordino.privacy.doors import Release
from sordino.privacy.kernel import BoundedSum, Private
from sordino.privacy.noise import NoiseSource

Scalars: TypeAlias = NDArray[np.float32]
"""Released mean slopes of a round's steps along their directions. Shape (steps, K)."""

Along: TypeAlias = Callable[[int], Vector]
"""A step's directions by number. Drawn anew each time they are needed: none is kept, so memory does not grow with K."""

ROWS, NUMBERS = 256, 2**18
"""Most records, and input numbers where they are no tokens, of one forward pass."""


@dataclass(frozen=True)
class Directions:
    """A round's directions: standard normal vectors that everyone draws alike. Public, so they cost nothing.

    Args:
        seed: The experiment's.
        round: Number of the round.
        size: Length d of the flat vector.
    """

    seed: int
    round: int
    size: int

    def __call__(self, step: int, k: int) -> Vector:
        """The k-th direction of a step. Shape (size,)."""
        rng = seeds.stream(self.seed, "direction", self.round, step, k)
        return rng.standard_normal(self.size, dtype=np.float32)


def train_zeroth(  # noqa: PLR0913 - as in train_private
    model: nn.Module,
    layout: Layout,
    data: Data,
    start: Vector,
    plan: ZerothSteps,
    directions: Directions,
    *,
    release: Release,
    source: NoiseSource,
    loss: Loss = cross_entropy,
) -> Scalars:
    """The released slopes of a silo's steps, which are all that it sends; `replay` makes its change from them.

    Args:
        model: A shared instance: its parameters are overwritten. Losses are taken in eval mode, so that dropout
            is the same on both sides of a difference.
        layout: `Layout.of(model)`.
        data: The silo's records; there may be none, and noise is released all the same.
        start: Released or public parameters, shape (d,).
        plan: What to do.
        directions: The round's.
        release: Adds the noise; the caller has reserved `plan.steps` releases.
        source: For the coins of the batches.
        loss: One loss per example.

    Guarantee:
        The result depends on the data through exactly `plan.steps` releases, of sums that one unit moves by at
        most `plan.clip` in the plan's norm, if examples do not influence each other in the model.

    Raises:
        PrivacyError: A release was refused, or has another shape than the directions.
        EngineError: The parameters diverged.

    Source: Zhang et al. (2024), arXiv:2310.09639, and Tang et al. (2024), arXiv:2401.04343; here with a public
        divisor, Poisson batches and several directions clipped as one vector.
    """
    units = Units(data, plan.unit)
    x, y = tensor(model, data[0]), tensor(model, data[1])
    slopes = Slopes(model, layout, loss, _rows_at_once(model, x, plan))
    theta, velocity = np.array(start, dtype=np.float32), np.zeros(layout.size, dtype=np.float32)
    scalars = np.zeros((plan.steps, plan.directions), dtype=np.float32)
    for step in range(plan.steps):
        rows = units.draw(plan.batch, source)
        picked = torch.from_numpy(rows).to(x.device)
        along = partial(directions, step)
        found = slopes.at(theta, along, plan, x[picked], y[picked])
        released = release(_bounded(found, units.groups(rows), plan))
        scalars[step] = _checked(released, plan) / np.float32(plan.expected_batch)
        theta, velocity = _moved(theta, velocity, scalars[step], along, plan)
    layout.restore(model, theta)
    return scalars


def replay(scalars: Scalars, plan: ZerothSteps, directions: Directions) -> Vector:
    """The change of the parameters that some released slopes stand for. Public, and linear in them.

    So the change by the mean of several silos' slopes is the mean of their changes: the coordinator averages a
    few numbers and everyone expands them.

    Args:
        scalars: Of one silo, or a weighted mean over silos. Shape (steps, K).
        plan: The steps that were taken.
        directions: The round's.

    Returns:
        θ_end − θ_start, shape (d,).
    """
    theta, velocity = np.zeros(directions.size, dtype=np.float32), np.zeros(directions.size, dtype=np.float32)
    for step in range(plan.steps):
        theta, velocity = _moved(theta, velocity, scalars[step], partial(directions, step), plan)
    return theta


@dataclass(frozen=True)
class Slopes:
    """Each example's slope along some directions, by central differences of its own loss. Private.

    Args:
        model: The shared instance.
        layout: Of its parameters.
        loss: One loss per example.
        rows: Examples per forward pass. The last one is filled up: another shape has other last bits, and divided
            by 2φ those would let one example move all others' slopes.
    """

    model: nn.Module
    layout: Layout
    loss: Loss
    rows: int

    def at(self, theta: Vector, along: Along, plan: ZerothSteps, x: Tensor, y: Tensor) -> Tensor:
        """(L(θ + φu) − L(θ − φu)) / 2φ for each example and direction. Shape (examples, K), float64."""
        found = torch.zeros((len(y), plan.directions), dtype=torch.float64)
        if len(y) == 0:
            return found
        with torch.no_grad(), evaluating(self.model):
            for k in range(plan.directions):
                move = np.float32(plan.radius) * along(k)
                ahead, behind = self._losses(theta + move, x, y), self._losses(theta - move, x, y)
                found[:, k] = (ahead - behind) / (2 * plan.radius)
        return found

    def _losses(self, theta: Vector, x: Tensor, y: Tensor) -> Tensor:
        self.layout.restore(self.model, theta)
        parts = []
        for start in range(0, len(y), self.rows):
            rows = torch.arange(start, start + self.rows, device=x.device) % len(y)
            inputs, targets = self._shaped(x[rows], y[rows])
            parts.append(per_example(self.loss(self.model(inputs), targets), len(targets)).double()[: self.rows])
        return torch.cat(parts)[: len(y)].cpu()

    def _shaped(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The examples, and for a model that cuts padding off a text without any: then none is cut, whoever is here."""
        padding = getattr(self.model, "padding", None)
        if padding is None:
            return x, y
        return torch.cat([x, torch.full_like(x[:1], 0 if padding else 1)]), torch.cat([y, y[:1]])


def _bounded(slopes: Tensor, groups: NDArray[np.int64] | None, plan: ZerothSteps) -> BoundedSum:
    """The sum of the units' slopes, each clipped; a user's are the mean over their own examples."""
    if groups is not None:
        _, person, counts = np.unique(groups, return_inverse=True, return_counts=True)
        sums = torch.zeros((len(counts), plan.directions), dtype=torch.float64)
        slopes = sums.index_add_(0, torch.from_numpy(person), slopes) / torch.from_numpy(counts)[:, None]
    private = Private(slopes.numpy(), plan.unit)
    return private.clip(l1=plan.clip) if plan.norm == "l1" else private.clip(l2=plan.clip)


def _moved(theta: Vector, velocity: Vector, scalars: Scalars, along: Along, plan: ZerothSteps) -> tuple[Vector, Vector]:
    """Parameters and velocity after one step."""
    velocity = np.float32(plan.momentum) * velocity
    for k, scalar in enumerate(scalars):
        velocity += (scalar / np.float32(plan.directions)) * along(k)
    return theta - np.float32(plan.lr) * velocity, velocity


def _checked(released: Vector, plan: ZerothSteps) -> Vector:
    if released.shape != (plan.directions,):
        raise PrivacyError.about(
            "train", "is not one number per direction", "release the whole sum", shape=released.shape
        )
    return released


def _rows_at_once(model: nn.Module, x: Tensor, plan: ZerothSteps) -> int:
    """A public number of examples per forward pass."""
    most = ROWS if not x.is_floating_point() else min(ROWS, NUMBERS // max(1, math.prod(x.shape[1:])))
    fits = records_per_pass(model, x, most)
    most = max(FEWEST, plan.micro_batch or fits)
    return min(most, likely(plan.expected_batch)) if plan.unit is Unit.RECORD else most
