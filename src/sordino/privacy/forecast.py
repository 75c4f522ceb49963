"""Whether a plan can learn at all, known before any budget is spent. Arithmetic on public numbers only.

One release is a mean over B̄ expected contributors. Its signal has norm at most C, reached when all updates agree;
its noise has norm about z·C·√d / B̄. Averaging T releases with the same signal gains another √T.
"""

from __future__ import annotations

import math

from sordino.core import checks
from sordino.privacy import gaussian


def signal_to_noise(
    *, clip: float, noise_multiplier: float, dimension: int, expected: float, releases: int = 1
) -> float:
    """Largest possible signal norm over typical noise norm of the mean of `releases` releases: √T · B̄ / (z √d).

    Args:
        clip: L2 norm C of one contributor, > 0. It cancels: raising it raises both.
        noise_multiplier: z, > 0.
        dimension: Length d of the released vector.
        expected: Expected contributors B̄ of one release, > 0.
        releases: How many releases T are averaged, silos or rounds.

    >>> signal_to_noise(clip=1.0, noise_multiplier=1.0, dimension=10_000, expected=100)
    1.0
    """
    checks.positive("signal_to_noise", clip=clip, noise_multiplier=noise_multiplier, expected=expected)
    checks.count("signal_to_noise", dimension=dimension, releases=releases)
    noise = noise_multiplier * clip * math.sqrt(dimension) / expected
    return clip * math.sqrt(releases) / noise


def contributors_needed(noise_multiplier: float, dimension: int, *, releases: int = 1, threshold: float = 1.0) -> int:
    """The smallest expected cohort whose releases reach the threshold: ⌈threshold · z √(d/T)⌉.

    >>> contributors_needed(4.57, 1000)
    145
    """
    checks.positive("contributors_needed", noise_multiplier=noise_multiplier, threshold=threshold)
    checks.count("contributors_needed", dimension=dimension, releases=releases)
    return math.ceil(threshold * noise_multiplier * math.sqrt(dimension / releases))


def unsampled_noise(epsilon: float, delta: float, rounds: int) -> float:
    """The noise multiplier when everybody takes part in every round: √T / μ(ε, δ). Exact, add/remove.

    >>> round(unsampled_noise(2.0, 1e-3, 10), 2)
    4.57
    """
    checks.count("unsampled_noise", rounds=rounds)
    return math.sqrt(rounds) / gaussian.mu_of(epsilon, delta)
