"""The Gaussian mechanism exactly: δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), with μ = sensitivity / σ.

Any number of unsampled Gaussian releases is one of μ² = Σ μ_i², so nothing here needs an approximation.

Source: Balle and Wang (2018), arXiv:1805.06530, theorem 8; Dong, Roth and Su (2022), arXiv:1905.02383.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr

from sordino.core import checks

_HALVINGS = 200


def delta_of(epsilon: float, mu: float) -> float:
    """The smallest δ at `epsilon` ≥ 0 of a Gaussian with signal-to-noise ratio `mu` ≥ 0.

    >>> round(delta_of(1.0, 1 / 3.7306), 8)
    1e-05
    """
    checks.non_negative("delta_of", epsilon=epsilon, mu=mu)
    if mu == 0:
        return 0.0
    # Both terms in log space: e^ε overflows, and Φ underflows, long before their product does.
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return max(0.0, -math.exp(first) * math.expm1(min(0.0, second - first)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε at `delta` of a Gaussian with ratio `mu` ≥ 0. Rounded up, never down.

    >>> round(epsilon_of(1.0, 1e-5), 4)
    4.3772
    """
    checks.fraction("epsilon_of", delta=delta)
    checks.non_negative("epsilon_of", mu=mu)
    if delta_of(0.0, mu) <= delta:
        return 0.0
    above = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # the zCDP bound
    return _last(lambda e: delta_of(e, mu) > delta, 0.0, above)[1]


def mu_of(epsilon: float, delta: float) -> float:
    """The largest ratio μ that is (ε, δ)-DP. Rounded down, never up.

    >>> round(1 / mu_of(1.0, 1e-5), 4)
    3.7306
    """
    checks.non_negative("mu_of", epsilon=epsilon)
    checks.fraction("mu_of", delta=delta)
    above = 1.0
    while delta_of(epsilon, above) <= delta:
        above *= 2
    return _last(lambda mu: delta_of(epsilon, mu) <= delta, 0.0, above)[0]


def sigma_exact(epsilon: float, delta: float) -> float:
    """The smallest noise multiplier σ/Δ of one Gaussian release that is (ε, δ)-DP.

    >>> round(sigma_exact(8.0, 1e-5), 4)
    0.6002
    """
    return 1 / mu_of(epsilon, delta)


def sigma_classic(epsilon: float, delta: float) -> float:
    """The textbook √(2 ln(1.25/δ))/ε. FOR COMPARISON ONLY: wasteful below `classic_breaks_at`, not private above.

    >>> round(sigma_classic(10.0, 1e-5), 4), round(sigma_exact(10.0, 1e-5), 4)
    (0.4845, 0.4999)
    """
    checks.positive("sigma_classic", epsilon=epsilon)
    checks.fraction("sigma_classic", delta=delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def classic_breaks_at(delta: float) -> float:
    """The ε above which the textbook formula violates the (ε, δ) it claims. Its proof ends at ε = 1 already.

    >>> round(classic_breaks_at(1e-5), 2)
    8.42
    """
    above = 1.0
    while delta_of(above, 1 / sigma_classic(above, delta)) <= delta:
        above *= 2
    return _last(lambda e: delta_of(e, 1 / sigma_classic(e, delta)) <= delta, above / 2, above)[0]


def true_positive_rate(mu: float, false_positive_rate: float) -> float:
    """The most any test of membership can find at a false positive rate: Φ(μ + Φ⁻¹(FPR))."""
    from scipy.special import ndtr, ndtri

    return float(ndtr(mu + ndtri(false_positive_rate)))


def _last(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The neighbouring floats between which `holds` turns from true (at `low`) to false (at `high`)."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, float(np.nextafter(high, math.inf))
