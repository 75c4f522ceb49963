"""Secret cohorts, drawn from the noise source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency
from sordino.federation.sampling import Sampler, fits, samplers
from sordino.privacy import events
from sordino.privacy.noise import NoiseSource, choice, coins

if TYPE_CHECKING:
    from sordino.privacy.events import Event


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
        fits("fixed_size", self.size, population)
        return choice(source, population, self.size)

    def event(self, noise: Event, population: int) -> Event:
        fits("fixed_size", self.size, population)
        _multiplier("fixed_size", noise)
        return noise if self.size == population else events.without_replacement(population, self.size, noise)

    def expected(self, population: int) -> float:
        fits("fixed_size", self.size, population)
        return float(self.size)


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
