"""Records whose labels are coin tosses, so that a model can only learn them by heart; clipped and noised, or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from sordino.audit.promise import Promise
from sordino.core.seeds import stream
from sordino.privacy import events

RECORDS, POPULATION, COLUMNS, STEPS, CLIP, RATE = 120, 60, 6, 60, 1.0, 1.0
"""Few records, each with a value of its own in every column of signs."""

PROMISED_NOISE = 40.0
"""Noise multiplier of a step; over all steps epsilon is 0.7."""


@dataclass(eq=False)
class Toy:
    """Kernel regression on tables of signs: one weight per public centre, full batches, per-example clipping.

    Args:
        noise: Of a step, over the clip; the promise says `PROMISED_NOISE`.
        promises: Whether anything is promised.
        seed: Of data and coins.
    """

    noise: float
    promises: bool = True
    seed: int = 0
    flagged: np.ndarray | None = None
    public: bool = True
    features: tuple[str, ...] = tuple(f"column {i}" for i in range(COLUMNS))
    trained: list = field(default_factory=list)

    def __post_init__(self):
        rng = stream(self.seed, "toy records")
        rows = rng.choice([-1.0, 1.0], size=(RECORDS + POPULATION, COLUMNS))
        x = np.concatenate([rows, rng.normal(size=(len(rows), 4))], axis=1).astype(np.float32)
        self.features = (*self.features, *(f"number {i}" for i in range(4)))
        y = rng.integers(2, size=len(x))
        self.x, self.y, self.population = x[:RECORDS], y[:RECORDS], (x[RECORDS:], y[RECORDS:])

    @property
    def promise(self):
        return promised() if self.promises else None

    def kernel(self, x):
        """Shape (n, centres): near 1 for a record and itself, small for any two that differ in a sign."""
        squares = np.square(x[:, None, :] - self.x[None]).sum(-1)
        return np.exp(-squares / 2)

    def train(self, included, seed, progress):
        progress(f"{len(included)} models")
        rng, features = stream(seed, "toy training", len(included)), self.kernel(self.x)
        lengths = np.linalg.norm(features, axis=1)
        sign, theta = 2.0 * self.y - 1, np.zeros((len(included), RECORDS))
        for _ in range(STEPS):
            pull = sign / (1 + np.exp(sign * (theta @ features.T)))
            clipped = np.sign(pull) * np.minimum(np.abs(pull), CLIP / lengths) * included
            gradient = clipped @ features + self.noise * CLIP * rng.normal(size=theta.shape)
            theta += RATE * gradient / (1 + self.noise)
        return theta.astype(np.float32)

    def log_probabilities(self, models, x):
        logits = models.astype(float) @ self.kernel(x).T
        return -np.logaddexp(0, np.stack([logits, -logits], axis=-1))


@cache
def promised():
    """What a step's noise of `PROMISED_NOISE` gives."""
    return Promise.declared([(events.gaussian(PROMISED_NOISE), STEPS)], 1e-5, by="a toy training")


def leaky():
    """The noise is missing; epsilon is promised all the same."""
    return Toy(noise=0.0)


def sound():
    """The noise is there."""
    return Toy(noise=PROMISED_NOISE)
