"""An ESTIMATE of ε from canary clients' cosines with what was released. It is not a bound and refutes nothing.

A random direction that nobody sent has a cosine of law N(0, 1/d) with the release. The observed canaries' cosines are
fitted by N(m, v), and ε̂ is what would tell the two normals apart at δ. It exceeded the true ε of correct mechanisms
in our tests (5.2 where ε is 4.4): show it, never gate on it.

Source: Andrew et al. (2023), arXiv:2302.03098.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from sordino.audit.findings import Figure
from sordino.audit.stats.proportions import bootstrap
from sordino.privacy.renyi import Floats

LARGEST_EPSILON = 1e4
_HALVINGS = 60


def estimate(
    cosines: Floats, dimension: int, *, delta: float, confidence: float = 0.95, repeats: int = 200, seed: int = 0
) -> Figure:
    """An estimate of ε from the cosines of the canaries that were sent, with a bootstrap interval.

    Args:
        cosines: Of each canary with the released change. Shape (k,), k well below `dimension`; fewer than two estimate
            nothing. What is not a number counts as 0.
        dimension: d, of the released vector.
        delta: In (0, 1).
        confidence: Nominal, of the interval.
        repeats: Resamples.
        seed: Of the resampling.

    >>> estimate(np.array([0.01, -0.01] * 50), 10_000, delta=1e-5, repeats=10).value < 0.1
    True
    """

    def fitted(values: Floats) -> float:
        return between_normals(float(np.mean(values)), float(np.var(values)), 1 / dimension, delta)

    if len(cosines) < 2:
        return Figure(0.0)
    within = np.clip(np.nan_to_num(np.asarray(cosines, dtype=np.float64)), -1.0, 1.0)
    return bootstrap(fitted, within, confidence=confidence, repeats=repeats, seed=seed)


def between_normals(mean: float, variance: float, null_variance: float, delta: float) -> float:
    """The smallest ε at which N(mean, variance) and N(0, null_variance) are (ε, δ)-indistinguishable, both ways.

    >>> round(between_normals(1.0, 1.0, 1.0, 1e-5), 2)
    4.38
    """
    # In units of the null; a spread that is all but zero is as good as a thousandth of a thousandth of it.
    unit = math.sqrt(null_variance)
    shift, spread = mean / unit, max(math.sqrt(variance) / unit, 1e-6)

    def far(epsilon: float) -> bool:
        return (
            max(_hockey_stick(shift, spread, 0.0, 1.0, epsilon), _hockey_stick(0.0, 1.0, shift, spread, epsilon))
            > delta
        )

    if not far(0.0):
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if far(middle) else (low, middle)
    return high


def _hockey_stick(m1: float, s1: float, m0: float, s0: float, epsilon: float) -> float:
    """P − e^ε Q of the event where log P/Q > ε, for P = N(m1, s1²) and Q = N(m0, s0²)."""
    # log P/Q is a quadratic in x: a x² + b x + c.
    a = 1 / (2 * s0**2) - 1 / (2 * s1**2)
    b = m1 / s1**2 - m0 / s0**2
    c = m0**2 / (2 * s0**2) - m1**2 / (2 * s1**2) + math.log(s0 / s1) - epsilon
    if abs(a) * s0**2 < 1e-12:
        if b == 0:
            return max(0.0, -math.expm1(epsilon)) if c > 0 else 0.0
        edge = -c / b
        intervals = [(edge, math.inf)] if b > 0 else [(-math.inf, edge)]
    else:
        inside = b**2 - 4 * a * c
        if inside <= 0:
            return 0.0 if a < 0 else max(0.0, -math.expm1(epsilon))
        left, right = sorted(((-b - math.sqrt(inside)) / (2 * a), (-b + math.sqrt(inside)) / (2 * a)))
        intervals = [(left, right)] if a < 0 else [(-math.inf, left), (right, math.inf)]
    return max(0.0, sum(_mass(m1, s1, *ends) - _scaled_mass(m0, s0, *ends, epsilon) for ends in intervals))


def _mass(mean: float, std: float, left: float, right: float) -> float:
    low, high = (left - mean) / std, (right - mean) / std
    return float(ndtr(high) - ndtr(low)) if low < 0 else float(ndtr(-low) - ndtr(-high))


def _scaled_mass(mean: float, std: float, left: float, right: float, epsilon: float) -> float:
    """e^ε times the mass of an interval, in log space: the mass underflows long before the product does."""
    low, high = (left - mean) / std, (right - mean) / std
    if low > 0:
        low, high = -high, -low
    top = float(log_ndtr(high))
    rest = float(log_ndtr(low)) - top if low > -math.inf else -math.inf
    return math.exp(min(epsilon + top, 700.0)) * -math.expm1(min(rest, 0.0))
