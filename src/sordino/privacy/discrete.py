"""Whole-number noise from the keystream: Skellam and discrete Gaussian draws, many at once.

    words ──► proposal (a whole number) ──► kept with the exact ratio of probabilities ──► draw

Rejection sampling in double precision, not in exact rationals as the papers have it, which is fifty times as slow. A
proposal is the floor of a number with 53 significant bits; a decision compares logarithms with an exponential draw of
126 bits. Within ten standard deviations each probability is off by a relative std · 2^-46 at most: 5e-10 at a std of
2^15. That error is the same in every run, so a release of d coordinates is off by at most d · std · 2^-45 in ε. A std
above 2^36 is refused.

Source:
    Hörmann (1993), "The transformed rejection method for generating Poisson random variables", without its shortcuts
    and with its curve raised;
    Canonne, Kamath and Steinke (2020), arXiv:2004.00010, for the discrete Gaussian from a discrete Laplace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import PrivacyError

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

LARGEST_STD = 2.0**36
FEW = 10.0
"""Below this mean, arrivals are counted one by one."""

_BLOCK = 2**13
"""Proposals made at once: they stay in the processor's cache."""
_MARGIN = 0.01
"""The published curve lies up to 0.6 % too low in places, which would cut probabilities there: it is raised by 1 %."""
_STIRLING = 16
"""From here on, four terms of Stirling's series are exact to the last bits."""
_WORD, _SIGNED = np.dtype("<u8"), np.dtype("<i8")


class Stream(Protocol):
    """Random words."""

    def fill(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """64 random bits for each, in place."""
        ...


def skellam(stream: Stream, variance: float, size: int) -> Integers:
    """Differences of two Poisson draws of mean variance/2 each: sums of such draws are Skellam again."""
    _fits(math.sqrt(variance))
    mean = variance / 2
    return centred_poisson(stream, mean, size) - centred_poisson(stream, mean, size)


def discrete_gaussian(stream: Stream, sigma: float, size: int) -> Integers:
    """Whole numbers y with probability proportional to exp(-y² / 2σ²). A sum of them is not such a law."""
    _fits(sigma)
    spread = math.floor(sigma) + 1

    def attempt(count: int) -> Integers:
        one, two, chance = _exponentials(stream, 3 * count).reshape(3, count)
        proposed = np.floor(one * spread) - np.floor(two * spread)  # discrete Laplace
        off = (np.abs(proposed) - sigma**2 / spread) / sigma
        return np.asarray(proposed[chance >= off * off / 2], dtype=np.int64)

    return _kept(attempt, size)


def centred_poisson(stream: Stream, mean: float, size: int) -> Integers:
    """Poisson draws less the whole part of their mean: small numbers, whatever the mean."""
    if mean < FEW:
        return _arrivals(stream, mean, size) - math.floor(mean)
    hat = Hat(mean)

    def attempt(count: int) -> Integers:
        words = stream.fill(np.empty(count, dtype=_WORD))
        # The distance from the edge, with all its bits near zero, where the tail is; the side is the last bit.
        edge = np.asarray(((words >> np.uint64(1)).view(_SIGNED) + 0.5) * 2.0**-64, dtype=np.float64)
        side = (words & np.uint64(1)).astype(np.float64) * 2 - 1
        proposed = hat.proposal(edge, side)
        kept = _exponentials(stream, count) >= -hat.log_ratio(proposed, edge)
        return np.asarray(proposed[kept], dtype=np.int64)

    return _kept(attempt, size)


class Hat:
    """The curve above the Poisson probabilities from which proposals come, for means of at least 10."""

    def __init__(self, mean: float) -> None:
        self.mean, self.whole = mean, math.floor(mean)
        self._rest = mean - self.whole
        self._b = 0.931 + 2.53 * math.sqrt(mean)
        self._a = -0.059 + 0.02483 * self._b
        self._log_area = math.log(1.1239 + 1.1328 / (self._b - 3.4)) + _MARGIN

    def proposal(self, edge: Floats, side: Floats) -> Floats:
        """A whole number, centred, for a distance from the edge in (0, 1/2] and a side -1 or 1."""
        reach = (2 * self._a / edge + self._b) * (0.5 - edge)
        return np.asarray(np.floor(side * reach + self._rest + 0.43))

    def log_ratio(self, proposed: Floats, edge: Floats) -> Floats:
        """Logarithm of the chance to keep a proposal; minus infinity below zero arrivals."""
        ratio = self.log_probability(proposed) + np.log(self._a / (edge * edge) + self._b) - self._log_area
        return np.where(proposed < -self.whole, -np.inf, ratio)

    def log_probability(self, centred: Floats) -> Floats:
        """Logarithm of the Poisson probability, by how far a number is from the mean: no large terms cancel."""
        from scipy.special import gammaln, xlog1py

        count = np.maximum(self.whole + centred, 0.0)
        off = np.maximum((centred - self._rest) / self.mean, -1.0)
        k = np.maximum(count, _STIRLING)
        series = (1 / 12 - (1 / 360 - 1 / (1260 * k * k)) / (k * k)) / k
        many = -self.mean * (xlog1py(1 + off, off) - off) - np.log(2 * math.pi * k) / 2 - series
        few = np.minimum(count, _STIRLING)
        return np.where(count < _STIRLING, few * math.log(self.mean) - self.mean - gammaln(few + 1), np.asarray(many))


def _arrivals(stream: Stream, mean: float, size: int) -> Integers:
    """How many unit-rate arrivals come before the mean."""
    counts, left, waiting = np.zeros(size, dtype=np.int64), np.full(size, float(mean)), np.arange(size)
    while waiting.size:
        left[waiting] -= _exponentials(stream, waiting.size)
        waiting = waiting[left[waiting] > 0]
        counts[waiting] += 1
    return counts


def _exponentials(stream: Stream, size: int) -> Floats:
    """Exponential draws from two words each: the rarest of 2^126 is not a few values, nor infinite."""
    first, rest = (stream.fill(np.empty(2 * size, dtype=_WORD)) >> np.uint64(1)).view(_SIGNED).reshape(2, size)
    return np.asarray(-np.log(((rest + 0.5) * 2.0**-63 + first) * 2.0**-63))


def _kept(attempt: Callable[[int], Integers], size: int) -> Integers:
    drawn, done = np.empty(size, dtype=np.int64), 0
    while done < size:
        found = attempt(min(_BLOCK, (size - done) * 5 // 4 + 16))[: size - done]
        drawn[done : done + found.size] = found
        done += found.size
    return drawn


def _fits(std: float) -> None:
    if std > LARGEST_STD:
        raise PrivacyError.about("noise", "is wider than whole numbers are drawn for", "use fewer bits", std=std)
