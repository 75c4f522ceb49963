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


def _below_one(delta: float) -> float:
    if delta != 0:
        checks.fraction("laplace", delta=delta)
    return delta
