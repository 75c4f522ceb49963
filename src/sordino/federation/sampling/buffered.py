"""Buffered asynchronous rounds: nobody waits for the slowest, and a client takes part a capped number of times."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency
from sordino.federation.sampling import Sampler, fits, samplers
from sordino.federation.sampling._arrivals import Arrivals, Flush
from sordino.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from sordino.privacy.events import Event


@samplers.register("buffered")
@dataclass(frozen=True)
class Buffered(Sampler):
    """Asynchronous rounds (FedBuff): the server steps whenever `size` updates have arrived, whenever they began.

    Who arrives when is played from the seed and the declared durations, so it is public and no record has a part in it.
    Arrival is no random sampling, so nothing is amplified: a client pays for each of its updates, at most
    `per_client` of them. A buffer never holds two updates of one client.

    Args:
        size: Updates that make a round, >= 1, at most the population: the public divisor.
        per_client: How often a client takes part in the whole run, at most, >= 1.
        concurrency: Clients at work at a time, >= 1.
        staleness: Weight of an update that is τ rounds old: 1, or (1 + τ)^−exponent.
        exponent: How fast that falls, in [0, 10].
        arrivals: `schedule`: in the order of the schedule, everywhere. `first_come`: on machines of their own, whoever
            is done; then every client pays for `per_client` updates, and only noise at the silo is offered. In one
            process the schedule stands in for it.
        durations: Law of the time a client takes, with mean 1.
        spread: Standard deviation of the logarithm of each client's own lasting pace, in [0, 10].
        paces: How long each client takes, over the mean, in the order of the plan's clients, > 0: where it is known,
            instead of `spread`. It is public, so it may come from machines and counts that are public, not from runs
            on private records.
        seed: Of the schedule.

    Guarantee:
        k updates of a client cost k unsampled releases, k its own number in the schedule; `per_client`, or the number
        of rounds if that is less, where whoever comes first is taken.

    Source:
        Nguyen et al. (2022), arXiv:2106.06639.
    """

    example: ClassVar = {"size": 10, "per_client": 1000, "concurrency": 30}
    public: ClassVar = True
    # Whom a place in the schedule belongs to is public: one client's data are there or zero, or another's.
    adjacency: ClassVar = (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
    size: int
    per_client: int
    concurrency: int
    staleness: Literal["constant", "polynomial"] = "polynomial"
    exponent: float = 0.5
    arrivals: Literal["schedule", "first_come"] = "schedule"
    durations: Literal["constant", "exponential", "half_normal"] = "exponential"
    spread: float = 0.0
    paces: tuple[float, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        where = "sampling.buffered"
        checks.count(where, size=self.size, per_client=self.per_client, concurrency=self.concurrency)
        checks.non_negative(where, seed=self.seed)
        for pace in self.paces:
            checks.positive(where, paces=pace)
        for name, value in (("exponent", self.exponent), ("spread", self.spread)):
            if not 0 <= value <= 10:  # further out, weights and paces are no numbers any more
                raise ConfigError.about(where, "must lie in [0, 10]", **{name: value})

    def draw(self, population: int, round: int, source: NoiseSource) -> NDArray[np.int64]:  # noqa: A002
        del source
        return self.flush(population, round).clients

    def event(self, noise: Event, population: int) -> Event:
        fits("buffered", self.size, population)
        return noise

    def expected(self, population: int) -> float:
        fits("buffered", self.size, population)
        return float(self.size)

    def participations(self, population: int, rounds: int) -> NDArray[np.int64]:
        if self.arrivals == "first_come":  # nobody knows before, and a buffer holds one update of a client at most
            return np.full(population, min(self.per_client, rounds), dtype=np.int64)
        places = [flush.clients for flush in self.flushes(population, rounds)]
        counts = np.bincount(np.concatenate(places), minlength=population).astype(np.int64)
        if counts.max() > self.per_client:
            raise PrivacyError.about("sampling.buffered", "is exceeded by the schedule", per_client=self.per_client)
        return counts

    def flush(self, population: int, round: int) -> Flush:  # noqa: A002
        """Who is in a round's buffer, and since when."""
        return self.flushes(population, round + 1)[round]

    def flushes(self, population: int, rounds: int) -> tuple[Flush, ...]:
        """The buffers of all rounds.

        Raises:
            ConfigError: The clients may not take part often enough to fill them.
        """
        fits("buffered", self.size, population)
        if self.paces and len(self.paces) != population:
            raise ConfigError.about(
                "sampling.buffered", f"are not one for each of the {population} clients", paces=list(self.paces)
            )
        law = (self.durations, self.spread, self.seed, self.paces)
        arrivals = Arrivals(self.size, self.concurrency, self.per_client, *law)
        found = arrivals.flushes(population, rounds)
        if len(found) < rounds:
            raise ConfigError.about(
                "sampling.buffered",
                f"lets {population} clients fill {len(found)} buffers of {self.size}, and there are {rounds} rounds",
                "raise it, or have fewer rounds or smaller buffers",
                per_client=self.per_client,
            )
        return found

    def sure(self, population: int) -> int:
        """How many buffers are filled whoever comes first, as long as nobody stays away.

        None is once fewer than `size` clients may go on. Each of the others was in `per_client` different buffers then,
        and no buffer holds more than `size` of them.

        >>> Buffered(size=2, per_client=5, concurrency=3).sure(3)
        5
        """
        done = population - self.size + 1
        return max(self.per_client, math.ceil(done * self.per_client / self.size))

    def discount(self, age: int) -> float:
        """Weight of an update whose model was `age` rounds old: public, in (0, 1], as it depends on rounds only.

        >>> Buffered(size=2, per_client=1, concurrency=2).discount(3)
        0.5
        """
        return 1.0 if self.staleness == "constant" else float((1 + age) ** -self.exponent)

    def ages(self, population: int, rounds: int) -> NDArray[np.int64]:
        """How many rounds old the model of each update is. Shape (rounds, size)."""
        flushes = self.flushes(population, rounds)
        return np.array([number - flush.versions for number, flush in enumerate(flushes)])

    def at_work(self, population: int, round: int, rounds: int) -> dict[int, dict[int, int]]:  # noqa: A002
        """Who has begun by a round, and is in a later buffer: by the buffer's round, each client's version."""
        found = {}
        for number, flush in enumerate(self.flushes(population, rounds)[round + 1 :], round + 1):
            begun = flush.versions <= round
            if begun.any():
                found[number] = dict(zip(flush.clients[begun].tolist(), flush.versions[begun].tolist(), strict=True))
        return found

    def needed(self, population: int, round: int, rounds: int) -> frozenset[int]:  # noqa: A002
        """The rounds up to this one whose models later rounds' updates start from."""
        last = _last_uses(self, population, rounds)
        return frozenset(version for version in range(round + 1) if last[version] > round)


@functools.lru_cache(maxsize=4)
def _last_uses(sampler: Buffered, population: int, rounds: int) -> list[int]:
    """Per round: the last round with an update that started from its model."""
    last = list(range(rounds))
    for number, flush in enumerate(sampler.flushes(population, rounds)):
        for version in flush.versions:
            last[int(version)] = max(last[int(version)], number)
    return last
