"""Budgets as whole numbers: 1e-12 of epsilon (or of an RDP value), 1e-18 of delta. Charges round up, limits down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from sordino.core.errors import ConfigError, PrivacyError

EPSILON = 12
"""Decimal places of epsilon and of RDP values."""
DELTA = 18
"""Decimal places of delta."""
LARGEST = 2**61
"""No limit lies above it, so a sum of balances and a charge never overflows 64 bits."""

_UP, _DOWN = Context(prec=400, rounding=ROUND_CEILING), Context(prec=400, rounding=ROUND_FLOOR)


def charge(where: str, value: float, places: int, times: int = 1) -> int:
    """Units of `times` × `value`, rounded up; at least one, so that no charge vanishes.

    Raises:
        PrivacyError: The value is negative, infinite or not a number.

    >>> charge("doctest", 0.1, EPSILON, 3)
    300000000000
    """
    if not (math.isfinite(value) and value >= 0 and times >= 1):
        raise PrivacyError.about(where, "is not a price that can be charged", value=value, times=times)
    exact = _UP.multiply(_decimal(value).scaleb(places, _UP), Decimal(times))
    return max(1, min(int(exact.to_integral_value(ROUND_CEILING)), LARGEST + 1))


def limit(where: str, value: float, places: int) -> int:
    """Units of a limit, rounded down.

    Raises:
        ConfigError: It is not a positive number, or so small or large that no units can hold it.

    >>> limit("doctest", 1e-5, DELTA)
    10000000000000
    """
    units = -1
    if not isinstance(value, bool) and math.isfinite(value) and value > 0:
        units = int(_decimal(value).scaleb(places, _DOWN).to_integral_value(ROUND_FLOOR))
    if not 1 <= units <= LARGEST:
        raise ConfigError.about(where, f"must be a number from 1e-{places} to {LARGEST // 10**places}", limit=value)
    return units


def number(units: int, places: int) -> float:
    """The float nearest to so many units."""
    return float(Decimal(units).scaleb(-places, _UP))


def _decimal(value: float) -> Decimal:
    # The shortest decimal of a float is the number its author wrote: a charge of 1e-5 fits a limit of 1e-5.
    return Decimal(repr(float(value)))
