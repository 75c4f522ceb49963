"""Private selection: run a mechanism a random number of times, show the best outcome only, and pay for less than all.

    K trials ──► each is scored by what it released itself ──► the best one is shown; the others, and K, never

K must be random: the best of a fixed number of trials can cost as much as all of them together. What is bought holds
against whoever sees the outcome that was selected, and nobody who sees the trials.

shape η    law of K                       K ≥
0          logarithmic                    1
1          geometric                      1
0 < η < ∞  truncated negative binomial    1
∞          Poisson                        0

Source: Papernot and Steinke (2022), arXiv:2110.03620, theorem 2 (truncated negative binomial), 6 (Poisson).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError

Floats = NDArray[np.float64]

LARGEST_MEAN = 10_000.0
"""More trials than anybody runs; beyond it the numbers of a price lose their digits."""


def check(mean: float, shape: float) -> None:
    """Refuse a law of the number of trials that no theorem prices.

    Raises:
        ConfigError: The mean is not in (1, 10000], or the shape is negative.
    """
    if not 1 < mean <= LARGEST_MEAN:
        raise ConfigError.about("selection", f"must lie in (1, {LARGEST_MEAN:g}]", "4 is a start", mean=mean)
    if math.isnan(shape) or shape < 0:
        raise ConfigError.about("selection", "must be at least 0", "1 is geometric, inf is Poisson", shape=shape)


def divergences(orders: Floats, trial: Floats, mean: float, shape: float) -> Floats:
    """The Rényi divergence of the selected outcome at each order.

    Args:
        orders: Increasing, each > 1.
        trial: The divergence of one trial, its score included, at each order; infinite where it is not known.
        mean: Expected number of trials, in (1, 10000].
        shape: As in the table above.

    Returns:
        Shape of `orders`; an upper bound.

    Source:
        Papernot and Steinke (2022), theorem 2: ε + (1+η)(1 − 1/λ̂) ε̂ + (1+η) log(1/γ)/λ̂ + log E[K]/(λ − 1), and
        theorem 6: ε + μ δ̂ + log μ/(λ − 1) where one trial is (log(1 + 1/(λ − 1)), δ̂)-DP.
    """
    check(mean, shape)
    several = trial + math.log(mean) / (orders - 1)
    if math.isinf(shape):
        from sordino.privacy import renyi

        # A scalar shape of order and ε: every order asks for the δ of its own ε.
        return np.asarray(several + mean * renyi.deltas(orders, trial, np.log1p(1 / (orders - 1))), dtype=np.float64)
    _, gamma_log = _decay(float(mean), float(shape))
    found = several + (1 + shape) * np.min((1 - 1 / orders) * trial + gamma_log / orders)
    # A divergence grows with its order, so that of a higher order bounds that of a lower one.
    return np.minimum.accumulate(found[::-1])[::-1]


def trials(mean: float, shape: float, coin: float) -> int:
    """How many trials to run, for a number drawn uniformly from (0, 1) by a secure source.

    >>> [trials(2.0, 1.0, coin) for coin in (0.1, 0.6, 0.9)]
    [1, 2, 4]
    """
    check(mean, shape)
    checks.fraction("trials", coin=coin)
    if math.isinf(shape):
        number, chance = 0, math.exp(-mean)
    else:
        log, _ = _decay(float(mean), float(shape))
        falls = -math.expm1(-log)
        number, chance = 1, falls * (shape / math.expm1(shape * log) if shape > 0 else 1 / log)
    below = chance
    while coin > below:
        chance *= mean / (number + 1) if math.isinf(shape) else falls * (number + shape) / (number + 1)
        if below + chance == below and number > mean:  # what is left is less than the last bit of a float
            break
        number, below = number + 1, below + chance
    return number


@functools.lru_cache(maxsize=64)
def _decay(mean: float, shape: float) -> tuple[float, float]:
    """log(1/γ) of the law with this mean, from below (to draw) and from above (to price)."""
    low, high = 0.0, 1.0
    while _mean(high, shape) < mean:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _mean(middle, shape) < mean else (low, middle)
    return low, high


def _mean(log: float, shape: float) -> float:
    """E[K] at log(1/γ) > 0: η(1 − γ) / (γ(1 − γ^η)), and its limit at η = 0."""
    return math.expm1(log) * (shape / -math.expm1(-shape * log) if shape > 0 else 1 / log)
