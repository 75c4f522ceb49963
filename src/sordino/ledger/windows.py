"""Windows on a silo's time column: exact places, closed on the left and open on the right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from sordino.core.errors import ConfigError

Point: TypeAlias = Decimal | datetime
"""A place on the time column: an exact number, or a time to the microsecond in UTC."""

_NAME = re.compile(r"^(?P<silo>.+)/(?P<column>[^/\[\]=]+)\[(?P<start>[^,]+),(?P<end>[^,]+)\)$")
_TOO_FINE = re.compile(r"[.,]\d{7}")
_FIRST = ".."


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
        return _FIRST
    if isinstance(place, Decimal):
        text = format(place, "f") if place else "0"  # exact: `normalize` would round to 28 digits
        return text.rstrip("0").rstrip(".") if "." in text else text
    text = place.replace(tzinfo=None).isoformat()
    return text.removesuffix("T00:00:00")


@dataclass(frozen=True)
class Window:
    """The records of one block.

    Args:
        silo: The account that contains the block.
        column: The time column.
        start: The first moment that belongs to it; none: everything before `end`.
        end: The first moment that does not.
    """

    silo: str
    column: str
    start: Point | None
    end: Point

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^/\[\]=]+", self.column):
            raise ConfigError.about("blocks", "must be the name of a column", column=self.column)
        if self.start is not None and not before(self.start, self.end):
            raise ConfigError.about("blocks", "ends before it starts", block=self.name)

    @property
    def name(self) -> str:
        """The block's account."""
        return f"{self.silo}/{self.column}[{written(self.start)},{written(self.end)})"

    @classmethod
    def parse(cls, name: str) -> Window | None:
        """The window that an account's name tells; None if it tells none."""
        found = _NAME.match(name)
        if found is None:
            return None
        start = None if found["start"] == _FIRST else point(found["start"])
        return cls(found["silo"], found["column"], start, point(found["end"]))


def length(value: str | float, like: Point) -> Decimal | timedelta:
    """A length on the time column: days where it holds times."""
    number = point(value)
    if not isinstance(number, Decimal) or number <= 0:
        raise ConfigError.about("blocks", "must be a number above 0", length=value)
    return timedelta(days=float(number)) if isinstance(like, datetime) else number


def shifted(place: Point, length: Decimal | timedelta, times: int = 1) -> Point:
    """A place so many lengths later."""
    return place + times * length  # type: ignore[operator]


def distance(one: Point, other: Point) -> Decimal | timedelta:
    """How far the second lies after the first."""
    return other - one  # type: ignore[operator]


def before(one: Point, other: Point) -> bool:
    """Whether one place lies before another; a number and a time have no order."""
    if isinstance(one, Decimal) != isinstance(other, Decimal):
        raise ConfigError.about("blocks", "is a number beside a time", one=written(one), other=written(other))
    return one < other  # type: ignore[operator]
