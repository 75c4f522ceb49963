"""Trainings that took crafted records, each in or out by a fair coin: the run's own, and its step driven anew."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.core.types import Adjacency, Unit
from sordino.privacy import events

if TYPE_CHECKING:
    from sordino.privacy.events import Event

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Terms:
    """What a training declares of its releases.

    Args:
        rate: At which a unit (with `records` above 1: each of its records) joins a release, in (0, 1].
        noise_multiplier: Noise over the clip norm of one clipped gradient, > 0.
        steps: Number of releases.
        records: Records behind one unit that are sampled and clipped one by one.
    """

    rate: float
    noise_multiplier: float
    steps: int
    records: int = 1

    @property
    def event(self) -> Event:
        """One release, relative to adding or removing a unit."""
        return events.records_of_person(self.records, self.rate, self.noise_multiplier)

    def promise(self, delta: float, unit: Unit, by: str) -> Promise:
        """What these terms promise to a unit that is added or removed."""
        sequence = [(self.event, self.steps)]
        return Promise.declared(sequence, delta, unit=unit, adjacency=Adjacency.ADD_REMOVE, by=by)

    def log_ratios(self, released: Floats) -> Floats:
        """How much likelier a canary's releases are if it was in, by these terms. Shapes (steps, m) to (m,).

        >>> Terms(1.0, 2.0, 1).log_ratios(np.array([[0.5, 1.0]])).tolist()
        [0.0, 0.125]
        """
        counts = np.arange(self.records + 1)
        chances = [
            math.comb(self.records, int(j)) * self.rate**j * (1 - self.rate) ** (self.records - j) for j in counts
        ]
        moved = np.full(released.shape, chances[0])
        for j, chance in zip(counts[1:], chances[1:], strict=True):
            # Noise of zero gives ratios beyond the floats; as good as certain is all they need to say.
            exponent = np.minimum(j * (2 * released - j) / (2 * self.noise_multiplier**2), 300.0)
            moved += chance * np.exp(exponent)
        ratios: Floats = np.log(np.maximum(moved, 1e-300)).sum(axis=0)
        return ratios


class Step(Protocol):
    """A training's own private step on crafted gradients: each canary's is long, and orthogonal to all others."""

    @property
    def terms(self) -> Terms:
        """Those of the run."""
        ...

    @property
    def unit(self) -> Unit:
        """What one canary is."""
        ...

    @property
    def most(self) -> int:
        """Canaries that one training can take in a second or so."""
        ...

    def released(self, included: Bools, terms: Terms, seed: int) -> Floats:
        """What an observer sees of each canary's direction, training by training.

        Args:
            included: Which canaries each training has, shape (trainings, m). The step does not know that they are any.
            terms: As declared; the same code at another noise, rate or length.
            seed: Of noise and batches: a test's, never a run's.

        Returns:
            Released sums over the clip norm, shape (trainings, steps, m): a canary that joins adds at most 1.
        """
        ...


@dataclass(frozen=True, eq=False)
class Carried:
    """Canaries that a run had in its own training.

    Args:
        included: Their coins, shape (m,).
        scores: Computed from public starting point and final model, without the coins; high means in. Shape (m,) each.
        promise: What the run claims for one record of their silo, or None.
    """

    included: Bools
    scores: Mapping[str, Floats]
    promise: Promise | None


class Canaries(Protocol):
    """What canary attacks are given; at least one of `step` and `carried` is there."""

    @property
    def promise(self) -> Promise | None:
        """What the run claims for one unit of the attacked silo, or None."""
        ...

    @property
    def step(self) -> Step | None:
        """Its private step; None where it has none on gradients of records or persons."""
        ...

    @property
    def carried(self) -> Carried | None:
        """Canaries of its own; None where it carried none."""
        ...

    @property
    def seed(self) -> int:
        """Of the coins that are thrown now."""
        ...
