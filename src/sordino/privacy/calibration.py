"""The one free number of a plan, found from its ε: noise, steps or sampling rate.

Each function takes `events_of`, which maps the unknown to the events it would cause, so that any plan can be
calibrated: several mechanisms, schedules, extra releases. The result is always on the safe side: its own price,
on the reporting grid, is at most the target. The search runs on a coarse grid and is confirmed on the fine one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy.accounting import COARSE, GRID, best_epsilon

if TYPE_CHECKING:
    from sordino.privacy.events import Events

TOLERANCE = 1e-3
"""Relative width of the bracket in which noise and rate end."""

NOISE_RANGE = (0.05, 1e6)
"""Noise multipliers searched. Below the lower end a release protects nobody."""

STEPS_LIMIT = 2**30
RATE_LIMIT = 1e-7


def calibrate_noise(
    events_of: Callable[[float], Events], epsilon: float, delta: float, *, adjacency: Adjacency, rough: bool = False
) -> float:
    """The smallest noise multiplier whose plan costs at most `epsilon`.

    Args:
        events_of: The plan's events at a noise multiplier; more noise must not cost more.
        epsilon: Target, > 0.
        delta: In (0, 1).
        adjacency: The neighbouring relation.
        rough: Within 1 % and on the coarse grid only: for outlooks, or to be confirmed, in a third of the time.

    Returns:
        A noise multiplier priced at most `epsilon`, within 0.1 % of the smallest such.

    Raises:
        PrivacyError: Even extreme noise costs more (a part of the plan does not depend on it); says what it costs.

    >>> from sordino.privacy import events
    >>> z = calibrate_noise(lambda z: [(events.gaussian(z), 10)], 2.0, 1e-3, adjacency=Adjacency.ADD_REMOVE)
    >>> 4.5702 < z < 4.5702 * 1.001
    True
    """
    checks.positive("calibrate_noise", epsilon=epsilon)
    price = _pricing(events_of, delta, adjacency)
    least, most = NOISE_RANGE
    high = 1.0
    while price(high, COARSE) > epsilon:
        if high >= most:
            raise _impossible("noise multiplier", most, price(high, COARSE), epsilon)
        high = min(2 * high, most)
    low = high
    # Downwards in small steps: a loss distribution is the wider, hence the dearer, the smaller the noise.
    while price(low, COARSE) <= epsilon:
        if low <= least:
            return low
        high, low = low, max(low / math.sqrt(2), least)
    if rough:
        return _closed(lambda z: price(z, COARSE), epsilon, high, low, 1e-2)[0]
    return _bisected(price, epsilon, safe=high, unsafe=low)


def calibrate_rate(
    events_of: Callable[[float], Events], epsilon: float, delta: float, *, adjacency: Adjacency
) -> float:
    """The largest sampling rate in (0, 1] whose plan costs at most `epsilon`, within 0.1 %.

    Raises:
        PrivacyError: Even a vanishing rate costs more; says what it costs.
    """
    checks.positive("calibrate_rate", epsilon=epsilon)
    price = _pricing(events_of, delta, adjacency)
    rate = 1e-3
    while price(rate, COARSE) > epsilon:
        if rate <= RATE_LIMIT:
            raise _impossible("sampling rate", RATE_LIMIT, price(rate, COARSE), epsilon)
        rate = max(rate / 4, RATE_LIMIT)
    safe = rate
    while price(rate, COARSE) <= epsilon:
        if rate == 1:
            return 1.0
        safe, rate = rate, min(1.0, rate * 2)
    return _bisected(price, epsilon, safe=safe, unsafe=rate)


def calibrate_steps(events_of: Callable[[int], Events], epsilon: float, delta: float, *, adjacency: Adjacency) -> int:
    """The largest number of steps (or rounds) whose plan costs at most `epsilon`.

    Raises:
        PrivacyError: A single step costs more already; says what it costs.
    """
    checks.positive("calibrate_steps", epsilon=epsilon)
    price = functools.cache(lambda steps: best_epsilon(events_of(steps), delta, adjacency=adjacency).epsilon)
    if price(1) > epsilon:
        raise _impossible("number of steps", 1, price(1), epsilon)
    safe, unsafe = 1, 2
    while price(unsafe) <= epsilon:
        if unsafe >= STEPS_LIMIT:
            return unsafe
        safe, unsafe = unsafe, 2 * unsafe
    while unsafe - safe > 1:
        guess = round(_crossing(safe, price(safe), unsafe, price(unsafe), epsilon))
        # Aim on the near side of the crossing and never in the outer sixteenths: both ends close in.
        margin = (unsafe - safe) // 16
        middle = min(max(guess, safe + 1 + margin), unsafe - 1 - margin)
        safe, unsafe = (middle, unsafe) if price(middle) <= epsilon else (safe, middle)
    return safe


def _pricing(
    events_of: Callable[[float], Events], delta: float, adjacency: Adjacency
) -> Callable[[float, float], float]:
    checks.fraction("calibrate", delta=delta)

    @functools.cache
    def price(unknown: float, grid: float) -> float:
        return best_epsilon(events_of(unknown), delta, adjacency=adjacency, grid=grid).epsilon

    return price


def _bisected(price: Callable[[float, float], float], epsilon: float, *, safe: float, unsafe: float) -> float:
    """Close the bracket on the coarse grid, then move its ends to where the fine grid agrees."""
    safe, unsafe = _closed(lambda x: price(x, COARSE), epsilon, safe, unsafe, 2 * TOLERANCE)
    step = (unsafe / safe) ** 2
    while price(safe, GRID) > epsilon:  # a coarse grid costs more almost always, but nothing proves it
        safe, unsafe = safe / step, safe
    unsafe = safe * step
    while price(unsafe, GRID) <= epsilon:
        safe, unsafe = unsafe, unsafe * step
    return _closed(lambda x: price(x, GRID), epsilon, safe, unsafe, TOLERANCE)[0]


def _closed(
    price: Callable[[float], float], epsilon: float, safe: float, unsafe: float, tolerance: float
) -> tuple[float, float]:
    """A bracket of relative width below `tolerance`: interpolation that alternates with safeguards."""
    while abs(math.log(unsafe / safe)) > tolerance:
        width = math.log(unsafe / safe)
        guess = math.log(_crossing(safe, price(safe), unsafe, price(unsafe), epsilon) / safe) / width
        # Probe just beyond the guess, on the side of the wider rest, so that both ends close in.
        nudge = 0.4 * tolerance / abs(width)
        share = guess + nudge if guess < 1 / 2 else guess - nudge
        middle = safe * math.exp(min(max(share, nudge), 1 - nudge) * width)
        safe, unsafe = (middle, unsafe) if price(middle) <= epsilon else (safe, middle)
    return safe, unsafe


def _crossing(low: float, at_low: float, high: float, at_high: float, target: float) -> float:
    """Where a power law through two points meets the target; their middle where there is none."""
    if not (0 < at_low < math.inf and 0 < at_high < math.inf and at_low != at_high):
        return math.sqrt(low * high)
    share = math.log(target / at_low) / math.log(at_high / at_low)
    return float(low * (high / low) ** min(max(share, 0.0), 1.0))


def _impossible(name: str, extreme: float, cost: float, epsilon: float) -> PrivacyError:
    return PrivacyError.about(
        "calibration",
        f"cannot be reached by any {name}",
        f"the nearest possible is epsilon={cost:.4g} at {extreme:g}; raise epsilon or shrink the rest of the plan",
        epsilon=epsilon,
    )
