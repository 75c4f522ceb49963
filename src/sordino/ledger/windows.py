"""Windows on a silo's time column, closed on the left and open on the right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sordino.core.errors import ConfigError
from sordino.core.places import EVERYTHING, Point, before, point, written

_NAME = re.compile(r"^(?P<silo>.+)/(?P<column>[^/\[\]=]+)\[(?P<start>[^,]+),(?P<end>[^,]+)\)$")


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
        start = None if found["start"] == EVERYTHING else point(found["start"])
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
