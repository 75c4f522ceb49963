"""How much noise one released embedding needs. Without torch, so that a price needs none."""

from __future__ import annotations

from sordino.privacy import gaussian


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Noise std over the clip norm C that makes one released row (ε, δ)-DP for its text. Exact.

    Another text in its place moves the row by up to 2C, hence the factor.

    Source: Balle and Wang (2018), arXiv:1805.06530, theorem 8.

    >>> round(noise_multiplier(8.0, 1e-5), 3)
    1.2
    """
    return 2 * gaussian.sigma_exact(epsilon, delta)
