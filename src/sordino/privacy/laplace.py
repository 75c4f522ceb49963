"""One Laplace release exactly. `noise_multiplier` is the scale b over the L1 sensitivity.

The privacy loss is at most 1/b, so the guarantee is pure: δ = 0. Allowing a δ buys almost nothing.

Source: Dwork, McSherry, Nissim and Smith (2006) for ε = 1/b; the curve follows from the two densities directly.
"""

from __future__ import annotations

import math

from sordino.core import checks


def delta_of(epsilon: float, noise_multiplier: float) -> float:
    """The smallest δ at `epsilon` ≥ 0: 1 − e^((ε − 1/b)/2) below 1/b, and zero from there on.

    >>> delta_of(1.0, 1.0)
    0.0
    """
    checks.non_negative("delta_of", epsilon=epsilon)
    checks.positive("delta_of", noise_multiplier=noise_multiplier)
    return max(0.0, -math.expm1((epsilon - 1 / noise_multiplier) / 2))


def epsilon_of(noise_multiplier: float, delta: float = 0.0) -> float:
    """The smallest ε at `delta` in [0, 1).

    >>> epsilon_of(2.0)
    0.5
    """
    checks.positive("epsilon_of", noise_multiplier=noise_multiplier)
    return max(0.0, 1 / noise_multiplier + 2 * math.log1p(-_below_one(delta)))


def scale_for(epsilon: float, delta: float = 0.0) -> float:
    """The smallest noise multiplier that is (ε, δ)-DP.

    >>> scale_for(0.5)
    2.0
    """
    checks.positive("scale_for", epsilon=epsilon)
    return 1 / (epsilon - 2 * math.log1p(-_below_one(delta)))


def pure_epsilon(noise_multiplier: float, releases: int = 1, rate: float = 1.0) -> float:
    """The ε at δ = 0 of several releases to which each unit joins with probability `rate`, under add/remove.

    The only price that holds without any δ: T · ln(1 + q(e^{1/b} − 1)). Allowing a δ composes far better.

    Source: Balle, Barthe and Gaboardi (2018), arXiv:1807.01647, for the part that sampling plays.

    >>> pure_epsilon(2.0, releases=4), round(pure_epsilon(2.0, releases=4, rate=0.1), 3)
    (2.0, 0.251)
    """
    checks.positive("pure_epsilon", noise_multiplier=noise_multiplier)
    checks.rate("pure_epsilon", rate=rate)
    checks.count("pure_epsilon", releases=releases)
    return releases * math.log1p(rate * math.expm1(1 / noise_multiplier))


def _below_one(delta: float) -> float:
    if delta != 0:
        checks.fraction("laplace", delta=delta)
    return delta
