"""Worlds whose truth is known: canaries, each in by a fair coin, and one normal score each, N(μ, 1) if in."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from sordino.audit.promise import Promise
from sordino.core.seeds import stream
from sordino.privacy import events, gaussian

DELTA = 1e-5
ALPHA = 0.05
SURE = 0.999
"""Of a test's own limit on violations."""


@dataclass(frozen=True)
class World:
    """One audited release whose μ is known."""

    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    mu: float

    @property
    def epsilon(self) -> float:
        """The truth that no bound may exceed."""
        return gaussian.epsilon_of(self.mu, DELTA)

    @property
    def members(self):
        return self.scores[self.included]

    @property
    def others(self):
        return self.scores[~self.included]


@functools.cache
def worlds(mu: float, canaries: int, count: int) -> tuple[World, ...]:
    """Independent worlds, always the same ones."""
    draws = stream(20, "known worlds", canaries, round(mu * 1000))
    made = []
    for _ in range(count):
        included = draws.random(canaries) < 0.5
        made.append(World(draws.normal(size=canaries) + mu * included, included, mu))
    return tuple(made)


@functools.cache
def promise(mu: float) -> Promise:
    """The truth, as a promise. No privacy loss at all is promised as a hardly measurable one."""
    return Promise.declared([(events.gaussian(1 / max(mu, 1e-6)), 1)], DELTA, by="a known world")


def violations(wrong: Callable[[World], bool], mu: float, canaries: int, count: int) -> int:
    """In how many worlds an estimator says what is not so."""
    return sum(wrong(world) for world in worlds(mu, canaries, count))


def limit(count: int, alpha: float = ALPHA) -> int:
    """More violations than this come from an estimator at its level with a chance of 0.1 %, at most."""
    return math.ceil(binom.ppf(SURE, count, alpha))
