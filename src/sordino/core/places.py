"""Exact places on a time column: numbers, or times to the microsecond in UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from sordino.core.errors import ConfigError

Point: TypeAlias = Decimal | datetime
"""A place on the time column: an exact number, or a time to the microsecond in UTC."""

EVERYTHING = ".."
"""Where a window begins that has no beginning."""

_TOO_FINE = re.compile(r"[.,]\d{7}")


def point(value: str | float | Decimal | date) -> Point:
    """An exact place on the time column. A time without a zone is UTC; a day begins at midnight.

    Raises:
        ConfigError: It is neither a number nor a time, or finer than a microsecond: rounding would move it over an
            edge.

    >>> point("2026-01-01") == point("2026-01-01T01:00:00+01:00")
    True
    """
    if isinstance(value, date):
        value = value.isoformat()
    try:
        number = Decimal(value)
    except InvalidOperation:
        return _time(str(value))
    if isinstance(value, bool) or not number.is_finite():
        raise ConfigError.about("blocks", "is no place on a time column", value=value)
    return number


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or _TOO_FINE.search(text):
        raise ConfigError.about("blocks", "must be a number or an ISO time to the microsecond", value=text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def written(place: Point | None) -> str:
    """The one text of a place, for an account's name."""
    if place is None:
        return EVERYTHING
    if isinstance(place, Decimal):
        text = format(place, "f") if place else "0"  # exact: `normalize` would round to 28 digits
        return text.rstrip("0").rstrip(".") if "." in text else text
    text = place.replace(tzinfo=None).isoformat()
    return text.removesuffix("T00:00:00")


def before(one: Point, other: Point) -> bool:
    """Whether one place lies before another; a number and a time have no order."""
    if isinstance(one, Decimal) != isinstance(other, Decimal):
        raise ConfigError.about("blocks", "is a number beside a time", one=written(one), other=written(other))
    return one < other  # type: ignore[operator]
