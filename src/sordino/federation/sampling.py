"""Who takes part in a round, and what that is worth: the sampler itself states the event that is charged.

Cohorts of the random samplers are secret and drawn from the noise source; the amplification they buy holds only
against those who do not see who took part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.registry import Registry
from sordino.core.types import Adjacency
from sordino.privacy import events
from sordino.privacy.noise import NoiseSource, choice, coins

if TYPE_CHECKING:
    from sordino.privacy.events import Event


class Sampler(Protocol):
    """A rule that picks each round's cohort out of `population` clients, numbered from 0."""

    example: ClassVar[Mapping[str, Any]]
    public: ClassVar[bool] = False
    """Whether everyone knows who takes part."""
    adjacency: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    """Neighbouring relations under which `event` states the cost."""

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002 - the glossary's word
        """Positions of the clients of this round, ascending or in turn. Secret unless `public`."""
        ...

    def event(self, noise: Event, population: int) -> Event:
        """What one round costs a client that may take part, given the mechanism's unsampled event.

        Raises:
            ConfigError: No accountant prices this noise under this sampling, or the population is too small.
        """
        ...

    def expected(self, population: int) -> float:
        """Expected size of the cohort: the public divisor."""
        ...

    def participations(self, population: int, rounds: int) -> NDArray[np.int64]:
        """In how many rounds each client pays, at worst. Shape (population,)."""
        return np.full(population, rounds, np.int64)


samplers: Registry[Sampler] = Registry("sampling")


@samplers.register("poisson")
@dataclass(frozen=True)
class Poisson(Sampler):
    """Every client joins independently with probability `rate`. The usual choice: best understood and cheapest.

    Args:
        rate: Probability to take part in a round, in (0, 1].
    """

    example: ClassVar = {"rate": 0.1}
    rate: float

    def __post_init__(self) -> None:
        checks.rate("sampling.poisson", rate=self.rate)

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002
        del round
        return coins(source, self.rate, population)

    def event(self, noise: Event, population: int) -> Event:
        del population
        return events.poisson(self.rate, noise)

    def expected(self, population: int) -> float:
        return self.rate * population


@samplers.register("truncated_poisson")
@dataclass(frozen=True)
class TruncatedPoisson(Sampler):
    """A Poisson cohort, cut uniformly at random to at most `cap` clients. For systems with a hard limit.

    Args:
        rate: Probability to be drawn before the cut, in (0, 1].
        cap: Most clients in a round, >= 1.

    Source:
        Chua et al. (2025), arXiv:2508.15089.
    """

    example: ClassVar = {"rate": 0.1, "cap": 20}
    rate: float
    cap: int

    def __post_init__(self) -> None:
        checks.rate("sampling.truncated_poisson", rate=self.rate)
        checks.count("sampling.truncated_poisson", cap=self.cap)

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002
        del round
        cohort = coins(source, self.rate, population)
        return cohort if cohort.size <= self.cap else cohort[choice(source, cohort.size, self.cap)]

    def event(self, noise: Event, population: int) -> Event:
        if self.cap >= population:
            return events.poisson(self.rate, noise)  # the cut never happens
        return events.truncated_poisson(population, self.rate, self.cap, _multiplier("truncated_poisson", noise))

    def expected(self, population: int) -> float:
        from scipy.stats import binom

        # E[min(X, cap)] = Σ_{k < cap} P(X > k)
        return float(binom.sf(np.arange(min(self.cap, population)), population, self.rate).sum())


@samplers.register("fixed_size")
@dataclass(frozen=True)
class FixedSize(Sampler):
    """Exactly `size` clients, drawn without replacement. Priced under replace-one only, and dearly.

    Args:
        size: Clients in a round, >= 1, at most the population.
    """

    example: ClassVar = {"size": 10}
    adjacency: ClassVar = (Adjacency.REPLACE_ONE,)
    size: int

    def __post_init__(self) -> None:
        checks.count("sampling.fixed_size", size=self.size)

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002
        del round
        _fits("fixed_size", self.size, population)
        return choice(source, population, self.size)

    def event(self, noise: Event, population: int) -> Event:
        _fits("fixed_size", self.size, population)
        _multiplier("fixed_size", noise)
        return noise if self.size == population else events.without_replacement(population, self.size, noise)

    def expected(self, population: int) -> float:
        _fits("fixed_size", self.size, population)
        return float(self.size)


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
        _fits("round_robin", self.size, population)
        return (round * self.size + np.arange(self.size, dtype=np.int64)) % population

    def event(self, noise: Event, population: int) -> Event:
        _fits("round_robin", self.size, population)
        return noise

    def expected(self, population: int) -> float:
        _fits("round_robin", self.size, population)
        return float(self.size)

    def participations(self, population: int, rounds: int) -> NDArray[np.int64]:
        # The windows follow one another without a gap, so they deal out rounds·size places in turn.
        _fits("round_robin", self.size, population)
        full, rest = divmod(rounds * self.size, population)
        return full + (np.arange(population, dtype=np.int64) < rest)


def _fits(name: str, size: int, population: int) -> None:
    if size > population:
        raise ConfigError.about(f"sampling.{name}", f"exceeds the {population} clients there are", size=size)


def _multiplier(name: str, noise: Event) -> float:
    """The noise multiplier of a Gaussian event; no accountant prices other noise under this sampling."""
    if type(noise).__name__ != "GaussianDpEvent":
        raise ConfigError.about(
            f"sampling.{name}",
            "is priced for Gaussian noise only",
            "use 'gaussian', or 'poisson' sampling",
            noise=noise,
        )
    return float(noise.noise_multiplier)
