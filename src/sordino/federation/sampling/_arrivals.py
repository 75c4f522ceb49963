"""When clients would arrive: a public schedule, played from a seed and declared durations, never from data.

    idle ──starts from the newest model──► training ──after its duration──► buffer ──full──► flush: one round
      ▲                                                                                        │
      └────────────────── again, while it may: at most `participations` times ◄───────────────┘

Who waits in a buffer is not asked again before it is flushed, so no buffer holds two updates of one client. Of those
who are idle, one of them who took part least is asked: the busiest client sets the noise.

Source:
    Nguyen et al. (2022), arXiv:2106.06639.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.seeds import stream

Law: TypeAlias = Literal["constant", "exponential", "half_normal"]


@dataclass(frozen=True, eq=False)
class Flush:
    """A full buffer: one round.

    Args:
        clients: Positions of the clients, in the order of their arrival, all different. Shape (buffer,).
        versions: The round whose model each of them started from, at most this one. Shape (buffer,).
        time: When it was full, in mean durations of a client.
    """

    clients: NDArray[np.int64]
    versions: NDArray[np.int64]
    time: float


@dataclass(frozen=True)
class Arrivals:
    """The declared model of a federation whose clients work at their own pace.

    Args:
        buffer: Updates that make a round.
        concurrency: Clients that work at a time, at most.
        participations: How often a client may start, at most.
        durations: Law of the time from start to arrival, with mean 1.
        spread: Standard deviation of the logarithm of each client's own lasting pace; 0 makes all alike.
        seed: Of paces, durations and who is asked.
        paces: Each client's own, if they are known.
    """

    buffer: int
    concurrency: int
    participations: int
    durations: Law
    spread: float
    seed: int
    paces: tuple[float, ...] = ()

    def flushes(self, population: int, count: int) -> tuple[Flush, ...]:
        """The first `count` full buffers; fewer where clients run out of participations."""
        # The next power of two, so that asking round by round plays the schedule a few times only.
        return _played(self, population, 1 << max(0, count - 1).bit_length())[:count]

    def play(self, population: int) -> Iterator[Flush]:
        """Full buffers, one after another, until too few clients are left to fill one."""
        draws = stream(self.seed, "arrivals")
        pace = np.exp(self.spread * stream(self.seed, "paces").standard_normal(population))
        if self.paces:
            pace = np.array(self.paces)
        idle = [(0, draws.random(), client) for client in range(population)]
        heapq.heapify(idle)
        times = [0] * population
        training: list[tuple[float, int, int, int]] = []
        waiting: list[tuple[int, int]] = []
        order, now, version = itertools.count(), 0.0, 0
        while True:
            while idle and len(training) < self.concurrency:
                client = _asked(idle)
                times[client] += 1
                arrives = now + float(pace[client]) * self._duration(draws)
                heapq.heappush(training, (arrives, next(order), client, version))
            if not training:
                return
            now, _, client, started = heapq.heappop(training)
            waiting.append((client, started))
            if len(waiting) == self.buffer:
                clients, versions = np.array(waiting, dtype=np.int64).T
                yield Flush(clients, versions, now)
                for client, _ in waiting:
                    if times[client] < self.participations:
                        heapq.heappush(idle, (times[client], draws.random(), client))
                waiting, version = [], version + 1

    def _duration(self, draws: np.random.Generator) -> float:
        if self.durations == "constant":
            return 1.0
        if self.durations == "exponential":
            return float(draws.exponential())
        return abs(float(draws.standard_normal())) * math.sqrt(math.pi / 2)


@functools.lru_cache(maxsize=16)
def _played(arrivals: Arrivals, population: int, count: int) -> tuple[Flush, ...]:
    return tuple(itertools.islice(arrivals.play(population), count))


def _asked(idle: list[tuple[int, float, int]]) -> int:
    """One of those who took part least, by lot. No longer idle."""
    return heapq.heappop(idle)[2]
