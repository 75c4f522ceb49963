"""Reading a training from outside: the parameters after every step are public, so an objective may write them down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sordino.audit.sensor.world import Floats
from sordino.core.types import Vector


class Watching:
    """An objective that adds nothing and remembers which parameters it was asked about."""

    pulls = True

    def __init__(self) -> None:
        self.seen: list[Vector] = []

    def regulariser(self, theta: Vector, start: Vector) -> Vector:  # noqa: ARG002 - the protocol's arguments
        """Zero."""
        self.seen.append(theta.copy())
        return np.zeros_like(theta)


def sums(thetas: Sequence[Vector], lr: float, expected: float, momentum: float = 0.0) -> Floats:
    """The released sums between parameters, undoing the public step: shape (len(thetas) - 1, d).

    θ' = θ − lr·v and v = momentum·v₀ + sum/expected, so sum = expected · (v − momentum·v₀).

    >>> sums([np.zeros(1, np.float32), np.full(1, -0.5, np.float32)], lr=0.25, expected=10.0)
    array([[20.]])
    """
    path = np.stack([np.asarray(theta, np.float64) for theta in thetas])
    velocity = -np.diff(path, axis=0) / lr
    before = np.concatenate([np.zeros_like(velocity[:1]), velocity[:-1]])
    return np.asarray(expected * (velocity - momentum * before))
