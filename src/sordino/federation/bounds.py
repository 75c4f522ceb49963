"""How far one client can move a sum, and the one function that shortens a vector to such a length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MARGIN = 1 - 2.0**-22
"""A shortened vector ends this far inside its bound, so that rounding to float32 cannot carry it back out."""


@dataclass(frozen=True)
class Bound:
    """How far adding or removing one client can move the sum. `None` means without limit.

    Laplace noise is measured in L1 and Gaussian noise in L2, so both travel together. L1 is never below L2;
    where L1 is known, L2 is at most L1. No L1 bound is derived from L2: the factor √d is worth no mechanism.

    Args:
        l2: Bound on the L2 distance, > 0, or None.
        l1: Bound on the L1 distance, > 0, or None.
    """

    l2: float | None = None
    l1: float | None = None

    def capped(self, *, l2: float | None = None, l1: float | None = None) -> Bound:
        """Both bounds at once: this one and another.

        >>> Bound(l2=3.0).capped(l1=2.0)
        Bound(l2=2.0, l1=2.0)
        """
        l1 = _smallest(self.l1, l1)
        return Bound(_smallest(self.l2, l2, l1), l1)

    def joined(self, size: float) -> Bound:
        """The bound after one more coordinate of magnitude at most `size`.

        >>> Bound(l2=3.0, l1=5.0).joined(4.0)
        Bound(l2=5.0, l1=9.0)
        """
        return Bound(
            None if self.l2 is None else math.hypot(self.l2, size),
            None if self.l1 is None else self.l1 + size,
        )


def length(vector: NDArray[Any], order: int = 2) -> float:
    """The L1 or L2 norm in float64; infinite when an entry is not finite or the norm overflows."""
    largest, rest = _split(vector, order)
    return largest * rest if np.isfinite(largest) else math.inf


def shortened(vector: NDArray[Any], bound: float, order: int = 2) -> NDArray[Any]:
    """The vector itself if its norm is at most `bound`, else its direction at that length, less `MARGIN`.

    A vector with an entry that is not finite becomes zero. The largest entry is divided out first, so that
    no finite vector overflows. Idempotent to the bit, also after rounding the result to float32.

    Args:
        vector: Shape (d,), left as it is.
        bound: Largest norm, > 0.
        order: 1 for L1, 2 for L2.

    >>> shortened(np.array([3.0, 4.0]), 10.0)
    array([3., 4.])
    >>> shortened(np.array([1e300, 0.0]), 1.0).round(3)
    array([1., 0.])
    """
    largest, rest = _split(vector, order)
    if not np.isfinite(largest):
        return np.zeros_like(vector)
    if largest * rest <= bound:
        return vector
    return (vector.astype(np.float64) / largest) * (bound * MARGIN / rest)


def _split(vector: NDArray[Any], order: int) -> tuple[float, float]:
    """The norm as a product: the largest magnitude, and the norm of the vector over it (1 … d, or 0)."""
    values = np.asarray(vector, dtype=np.float64)
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest, 0.0
    return largest, float(np.linalg.norm(values / largest, ord=order))


def _smallest(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)
