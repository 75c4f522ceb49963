"""Whole-number noise on a sum of real numbers: drawn on a lattice at least as fine as the kernel's grid."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import PrivacyError
from sordino.privacy.kernel import GRID_BITS


def on_lattice(
    draw: Callable[[float], NDArray[np.int64]],
    scale: float,
    noise_multiplier: float,
    bound: tuple[float, float],
    size: int,
) -> NDArray[np.float64]:
    """Noise of std `scale` in steps of a power of two.

    The kernel's grid is a whole number of these steps, and a unit moves the sum by more steps than are charged for.
    More steps under as much noise cost less.

    Args:
        draw: Whole numbers of a std.
        scale: Standard deviation, as the kernel asks for it.
        noise_multiplier: Standard deviation over how far a unit moves the sum in L2.
        bound: How many steps in L2 and L1 are charged for.
        size: Number of coordinates.

    Raises:
        PrivacyError: The charge is for fewer coordinates: a unit may move the sum further in L1.
    """
    l2, l1 = bound
    bits = max(GRID_BITS + 1, math.ceil(math.log2(noise_multiplier * l2)))
    step = 2.0 ** (math.floor(math.log2(scale)) - bits)
    steps = scale / noise_multiplier / step
    if min(math.sqrt(size) * steps, steps**2) / steps**4 > l1 / l2**4 * (1 + 1e-9):
        raise PrivacyError.about("mechanism", "is too small for so many coordinates", l1=l1, size=size)
    return np.asarray(draw(scale / step) * step)
