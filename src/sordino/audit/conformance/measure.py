"""How far one unit moves a release, against its noise: measured, without statistics, by common random numbers.

The framework's own noise is made to repeat. Between two neighbouring rounds it cancels, and what is left of the
difference is the sensitivity; between two seeds the data cancels, and what is left is the noise. Their ratio is the
noise multiplier that is really in force.

Source: sensitivity by replayed noise is also how `dp-recorder` (PETS 2026) works; here it needs no instrumentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.audit.conformance.limits import quietly
from sordino.audit.conformance.protocol import Adaptive, Declared, NotApplicable, Refused, Target, Tensors
from sordino.core.seeds import stream
from sordino.core.types import Adjacency

Named = dict[str, NDArray[Any]]

MODEL: Named = {"layer.weight": np.zeros((100, 150), np.float32), "layer.bias": np.zeros(5000, np.float32)}
"""20,000 numbers: a noise scale read off two releases is within 0.5 %."""

TINY = 1e-12
"""The size of a vanishing update: nothing is exactly zero, which some frameworks do not survive."""

ENOUGH = 0.97
"""A multiplier below this share of the claimed one is too small; six times what the measurement scatters."""


def zeros(model: Tensors) -> Named:
    """The update that changes nothing."""
    return {name: np.zeros_like(value) for name, value in model.items()}


def spike(size: float, model: Tensors = MODEL) -> Named:
    """An update with one large coordinate, the first."""
    update = zeros(model)
    update[next(iter(update))].reshape(-1)[0] = size
    return update


def dense(norm: float, model: Tensors = MODEL, seed: int = 0) -> Named:
    """An update of random direction and the given norm, over all tensors."""
    rng = stream(seed, "dense update")
    update = {name: rng.normal(size=np.shape(value)) for name, value in model.items()}
    length = math.sqrt(sum(float(np.sum(value**2)) for value in update.values()))
    return {name: np.asarray(value * (norm / length), model[name].dtype) for name, value in update.items()}


def quiet(count: int, model: Tensors = MODEL, norm: float = TINY) -> list[Named]:
    """So many updates that say next to nothing, each in a direction of its own."""
    return [dense(norm, model, seed=i + 1) for i in range(count)]


def flat(released: Tensors) -> NDArray[np.float64]:
    """A release as one vector, tensors by name."""
    return np.concatenate([np.asarray(released[name], np.float64).reshape(-1) for name in sorted(released)])


@dataclass(frozen=True)
class Ratio:
    """A noise multiplier as measured.

    Args:
        noise: Scale of the noise, in the release's unit.
        moved: How far the unit moved the release.
    """

    noise: float
    moved: float

    @property
    def multiplier(self) -> float:
        """Noise over movement."""
        return self.noise / self.moved if self.moved > 0 else math.inf

    @property
    def numbers(self) -> Mapping[str, float]:
        """By name, for a row."""
        return {"noise": self.noise, "moved": self.moved, "multiplier": self.multiplier}


@dataclass(frozen=True)
class Bench:
    """A target under measurement.

    Args:
        target: Whose.
        model: What rounds start from.
        first: The one that this came from, by `on`: it measures the bound, on many numbers.
        spec: How `load` finds the target, if it does.
    """

    target: Target
    model: Tensors = field(default_factory=lambda: MODEL)
    first: Bench | None = None
    spec: str = ""

    def on(self, model: Tensors) -> Bench:
        """The same target on another model."""
        return replace(self, model=model, first=self.first or self)

    @cached_property
    def claim(self) -> Declared:
        """What it says of itself."""
        return self.target.claim()

    @property
    def claimed(self) -> float:
        """The claimed noise multiplier.

        Raises:
            NotApplicable: None is claimed.
        """
        if self.claim.noise_multiplier is None:
            raise NotApplicable("it states no noise multiplier")
        return self.claim.noise_multiplier

    def others(self, norm: float = TINY) -> list[Named]:
        """The updates of everybody in the cohort but one."""
        return quiet(self.claim.cohort - 1, self.model, norm)

    def release(
        self, updates: Sequence[Tensors], weights: Sequence[float] | None = None, seed: int | None = 1
    ) -> Tensors:
        """What is released, in silence."""
        with quietly():
            return self.target.release(self.model, updates, weights or [1.0] * len(updates), seed)

    def vector(
        self, updates: Sequence[Tensors], weights: Sequence[float] | None = None, seed: int | None = 1
    ) -> NDArray[np.float64]:
        """The same as one vector."""
        return flat(self.release(updates, weights, seed))

    def noise(self, updates: Sequence[Tensors], weights: Sequence[float] | None = None) -> float:
        """The scale of the noise on a release: standard deviation, or the scale of a Laplace law.

        Raises:
            NotApplicable: The noise cannot be made to repeat, so nothing can be told apart from it.
        """
        first, second = (self.vector(updates, weights, seed) for seed in (1, 2))
        if not np.array_equal(first, self.vector(updates, weights, 1), equal_nan=True):
            raise NotApplicable("its noise cannot be made to repeat")
        std = float(np.std(first - second) / math.sqrt(2))
        return std / math.sqrt(2) if self.claim.law == "laplace" else std

    def moved(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """The distance of two releases, in the norm of the clip."""
        return float(np.linalg.norm(one - other, ord=self.claim.norm))

    def neighbours(
        self, others: Sequence[Tensors], victim: Tensors, weights: Sequence[float] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Releases of two neighbouring rounds with the same noise: the unit is there, or as the relation says.

        Where a framework refuses a round with one unit less, the unit sends a vanishing update instead.
        """
        weights = weights or [1.0] * (len(others) + 1)
        present = self.vector([*others, victim], weights)
        if self.claim.adjacency is Adjacency.REPLACE_ONE:
            opposite = {name: -np.asarray(value) for name, value in victim.items()}
            return present, self.vector([*others, opposite], weights)
        if self.claim.adjacency is Adjacency.ADD_REMOVE and len(others) > 0:
            try:
                return present, self.vector(others, weights[:-1])
            except Refused:
                pass
        return present, self.vector([*others, spike(TINY, self.model)], weights)

    def ratio(self, others: Sequence[Tensors], victim: Tensors, weights: Sequence[float] | None = None) -> Ratio:
        """The noise multiplier in force when the victim, the last of the cohort, is there or not.

        Where the clip follows the updates, half the distance of two opposite victims is taken instead: both are
        clipped, so the next norm, which is released with noise of its own, is the same on both sides.
        """
        noise = self.noise([*others, victim], weights)
        if isinstance(self.target, Adaptive):
            opposite = {name: -np.asarray(value) for name, value in victim.items()}
            pair = (self.vector([*others, one], weights) for one in (victim, opposite))
            return Ratio(noise, self.moved(*pair) / 2)
        return Ratio(noise, self.moved(*self.neighbours(others, victim, weights)))

    @cached_property
    def bound(self) -> float:
        """How far the claim allows one unit to move a release, in the release's unit."""
        if self.first is not None:
            return self.first.bound
        return self.noise([*self.others(), spike(TINY, self.model)]) / self.claimed
