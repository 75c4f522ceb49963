"""Whole-number noise of many parties as data, and the Rényi divergence of one release.

event                        noise of the sum                                  one unit moves the sum by at most
Skellam                      variance (noise_multiplier · l2)²                 l2 and l1, in whole steps
sum of discrete Gaussians    `shares` draws, together of that variance         likewise, over `size` coordinates

Skellam's bound is known for whole orders only. Between two of them the divergence of the next one is charged, which is
more: hardly for an ε below 10, about 4 % of one near 20. No theorem says what sampling earns, so these events are never
put inside a sampled one.

Source:
    Agarwal, Kairouz and Liu (2021), arXiv:2110.04995, for Skellam; Kairouz, Liu and Steinke (2021), arXiv:2102.06387,
    for sums of discrete Gaussians.
"""

from __future__ import annotations

import math
from typing import Any

import attr
import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import PrivacyError


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamDpEvent:
    """Skellam noise of variance (noise_multiplier · l2)² on whole numbers that a unit moves by l2 in L2, l1 in L1."""

    noise_multiplier: float
    l2: float
    l1: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianSumDpEvent:
    """The sum of `shares` discrete Gaussians whose squared parameters add up to (noise_multiplier · l2)²."""

    noise_multiplier: float
    l2: float
    l1: float
    shares: int
    size: int


CLASSES: dict[str, type] = {cls.__name__: cls for cls in (SkellamDpEvent, DiscreteGaussianSumDpEvent)}


def is_whole(event: Any) -> bool:
    """Whether an event is of noise in whole numbers."""
    return type(event).__name__ in CLASSES


def check(event: Any) -> Any:
    """The event, if its numbers make sense."""
    checks.positive("events", noise_multiplier=event.noise_multiplier, l2=event.l2, l1=event.l1)
    if hasattr(event, "shares"):
        checks.count("events", shares=event.shares, size=event.size)
    return event


def refuse_sampling(event: Any) -> None:
    """Refuse an event of whole-number noise inside a sampled one.

    Raises:
        PrivacyError: It is one.
    """
    if is_whole(event):
        raise PrivacyError.about(
            "sampling",
            "earns nothing with noise in whole numbers: no theorem prices it",
            "use sampling `all` or `round_robin`, or the mechanism gaussian",
            event=type(event).__name__,
        )


def divergence(event: Any, orders: NDArray[np.float64], moves: int) -> NDArray[np.float64]:
    """The Rényi divergence of one release at each order > 1. Shape of `orders`.

    Args:
        event: One of the two above.
        orders: Any orders; for Skellam, each is priced as the next whole one.
        moves: How many bounds one unit moves the sum: 2 where it is replaced.
    """
    if isinstance(event, SkellamDpEvent):
        whole = np.ceil(orders)
        return _skellam(whole, moves * event.l2, moves * event.l1, (event.noise_multiplier * event.l2) ** 2)
    own = event.noise_multiplier * event.l2 / math.sqrt(event.shares)
    return _gaussians(orders, moves * event.l2, moves * event.l1, own, event.shares, event.size)


def _skellam(order: NDArray[np.float64], l2: float, l1: float, variance: float) -> NDArray[np.float64]:
    exact = ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2)
    simple = 3 * l1 / (2 * variance)
    return np.asarray(order * l2**2 / (2 * variance) + np.minimum(exact, simple))


def _gaussians(
    order: NDArray[np.float64], l2: float, l1: float, own: float, shares: int, size: int
) -> NDArray[np.float64]:
    if own < 1 / 2:  # the theorem asks for more
        return np.full_like(order, np.inf)
    off, spread = gap(own, shares), own * math.sqrt(shares)
    l2, l1 = l2 / spread, l1 / spread
    one = order / 2 * l2**2 + off * size
    two = order / 2 * (l2**2 + 2 * l1 * off + off**2 * size)
    three = order / 2 * (l2 + math.sqrt(size) * off) ** 2
    return np.asarray(np.minimum(np.minimum(one, two), three))


def gap(sigma: float, shares: int) -> float:
    """τ: how far a coordinate of the sum of `shares` discrete Gaussians is from being one. Nothing for one share.

    >>> gap(1.0, 1), gap(2.0, 20) < 1e-15, 0 < gap(1.0, 20) < 0.01
    (0.0, True, True)
    """
    terms = (math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, shares))
    return 10 * math.fsum(terms)
