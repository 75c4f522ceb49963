"""Public weights for silos with different noise.

Plain averaging lets the silo with the smallest ε, hence the most noise, dominate the error. The weights that
minimise Σ w_i² (s_i² d + v/n_i) under Σ w_i = 1 are inverse variances. All inputs are public: never estimate the
spread from raw data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError


def noise_aware(
    noise_std: Sequence[float], dimension: int, sizes: Sequence[float], spread: float
) -> NDArray[np.float64]:
    """Normalised weights w_i ∝ 1 / (s_i² d + v / n_i).

    Args:
        noise_std: Per silo, the public noise std of each coordinate of its message, >= 0.
        dimension: Length d of the message.
        sizes: Per silo, its public number of records n_i, > 0.
        spread: Public bound v on the summed variance of one record's contribution, > 0.

    Returns:
        Shape (silos,), summing to 1. Without noise: proportional to size. With much: to 1 / s_i².

    >>> noise_aware([0.0, 0.0], 10, [100, 300], 1.0).round(6).tolist()
    [0.25, 0.75]
    """
    if len(noise_std) != len(sizes) or not len(sizes):
        raise ConfigError.about("noise_aware", "must name the same silos", noise_std=noise_std, sizes=sizes)
    checks.count("noise_aware", dimension=dimension)
    checks.positive("noise_aware", spread=spread)
    for std, size in zip(noise_std, sizes, strict=True):
        checks.non_negative("noise_aware", noise_std=std)
        checks.positive("noise_aware", size=size)
    variance = np.square(np.asarray(noise_std, dtype=np.float64)) * dimension + spread / np.asarray(sizes, np.float64)
    # Relative to the smallest first, so that tiny variances do not overflow.
    inverse = variance.min() / variance
    return np.asarray(inverse / inverse.sum(), dtype=np.float64)
