"""Who takes part in a round, and what that is worth: the sampler itself states the event that is charged.

Cohorts of the random samplers are secret and drawn from the noise source; the amplification they buy holds only
against those who do not see who took part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.core.registry import Registry, load
from sordino.core.types import Adjacency
from sordino.privacy.noise import NoiseSource

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


def fits(name: str, size: int, population: int) -> None:
    """Refuse a cohort that is larger than the population."""
    if size > population:
        raise ConfigError.about(f"sampling.{name}", f"exceeds the {population} clients there are", size=size)


load(__name__, __path__)
