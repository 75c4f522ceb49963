"""Public cohorts: everybody, or turns. Nothing is amplified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.types import Adjacency
from sordino.federation.sampling import Sampler, fits, samplers
from sordino.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from sordino.privacy.events import Event


@samplers.register("all")
@dataclass(frozen=True)
class All(Sampler):
    """Every client in every round: no amplification, no secret. For a few silos."""

    example: ClassVar = {}
    public: ClassVar = True
    adjacency: ClassVar = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002
        del round, source
        return np.arange(population, dtype=np.int64)

    def event(self, noise: Event, population: int) -> Event:
        del population
        return noise

    def expected(self, population: int) -> float:
        return float(population)


@samplers.register("round_robin")
@dataclass(frozen=True)
class RoundRobin(Sampler):
    """`size` clients in turn: round t takes the window [t·size, (t + 1)·size) modulo the population.

    The order is public, so there is no amplification; but a client pays only for the rounds it is in.

    Args:
        size: Clients in a round, >= 1, at most the population.
    """

    example: ClassVar = {"size": 10}
    public: ClassVar = True
    adjacency: ClassVar = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)
    size: int

    def __post_init__(self) -> None:
        checks.count("sampling.round_robin", size=self.size)

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002
        del source
        fits("round_robin", self.size, population)
        return (round * self.size + np.arange(self.size, dtype=np.int64)) % population

    def event(self, noise: Event, population: int) -> Event:
        fits("round_robin", self.size, population)
        return noise

    def expected(self, population: int) -> float:
        fits("round_robin", self.size, population)
        return float(self.size)

    def participations(self, population: int, rounds: int) -> NDArray[np.int64]:
        # The windows follow one another without a gap, so they deal out rounds·size places in turn.
        fits("round_robin", self.size, population)
        full, rest = divmod(rounds * self.size, population)
        return full + (np.arange(population, dtype=np.int64) < rest)
