"""What is public about a table: its name, ranges, categories, who a row is about. Everything asked must be declared.

[data.table]  the same keys as in an experiment file      [query]  what only questions need
      └────────────────────► Declared ◄────────────────────────┘
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks, tables
from sordino.core.errors import ConfigError

DIGITS = 6
"""A column is rounded to so many decimal digits below the first one of its largest bound."""
LEAST = 100
"""A range of fewer steps is lost in the size of its bounds."""
CANDIDATES = 101
"""Evenly spaced answers that a quantile chooses from, where nothing else is declared."""


@dataclass(frozen=True)
class Numbers:
    """A numeric column as whole numbers of steps: sums of them are exact, so no rounding error gives anything away.

    Args:
        name: The column.
        low: Its public lowest value, in steps.
        high: Its public highest value, in steps.
        places: A step is 10^-places.
    """

    name: str
    low: int
    high: int
    places: int

    @classmethod
    def of(cls, name: str, bounds: tuple[float, ...]) -> Numbers:
        """The column of a public range.

        >>> Numbers.of("age", (0, 100))
        Numbers(name='age', low=0, high=1000000, places=4)
        """
        if len(bounds) != 2 or not -math.inf < bounds[0] < bounds[1] < math.inf:
            raise ConfigError.about(f"query.ranges.{name}", f"{list(bounds)} is no range", "give [lowest, highest]")
        places = DIGITS - math.floor(math.log10(max(map(abs, bounds))))
        low, high = (Decimal(repr(float(bound))).scaleb(places) for bound in bounds)
        found = cls(name, int(low.to_integral_value(ROUND_FLOOR)), int(high.to_integral_value(ROUND_CEILING)), places)
        if found.high - found.low < LEAST:
            rule = f"{list(bounds)} is narrow for the size of its bounds"
            raise ConfigError.about(f"query.ranges.{name}", rule, "shift the column, such as years since 1900")
        return found

    @property
    def centre(self) -> int:
        """The middle of the range, in steps."""
        return (self.low + self.high) // 2

    @property
    def largest(self) -> int:
        """How far one row can move a sum, in steps."""
        return max(abs(self.low), abs(self.high))

    def steps(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Values clamped to the range and rounded, each by itself. NaN must have been replaced."""
        scaled = np.rint(values * 10.0**self.places)
        return np.clip(scaled, self.low, self.high).astype(np.int64)

    def place(self, value: float) -> Decimal:
        """A number of a question on the scale of steps, exactly."""
        return Decimal(repr(float(value))).scaleb(self.places)

    def value(self, steps: int) -> float:
        """So many steps as a number."""
        return float(Decimal(int(steps)).scaleb(-self.places))

    def spaced(self, count: int) -> tuple[int, ...]:
        """So many different points from the lowest value to the highest, in steps."""
        checks.count(f"query.candidates.{self.name}", candidates=count)
        return tuple(sorted({int(point) for point in np.linspace(self.low, self.high, max(count, 2)).round()}))


@dataclass(frozen=True)
class Options:
    """The [query] table.

    Args:
        name: What a question calls the table; default the data file's name without its ending.
        rows_per_person: Unit `user`: how many of a person's rows count, the first ones in the file.
        edition: Change it when the rows change: questions asked before are then new ones.
        candidates: By column: between how many evenly spaced values a quantile chooses.
    """

    name: str | None = None
    rows_per_person: int | None = None
    edition: str = ""
    candidates: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Declared:
    """Public knowledge about a table. Columns that are not declared cannot be asked about.

    Args:
        name: What a question calls the table.
        ranges: Lowest and highest value of numeric columns; what lies outside is clamped.
        categories: Values of the other columns; any other value is a missing one.
        person: Column that names the person behind a row. It can never be asked about.
        rows_per_person: How many of a person's rows count, for the unit `user`.
        missing: "refuse" a row that lacks a declared value: it counts nowhere. Or "indicator": a missing value is
            SQL's NULL.
        edition: Which state of the rows, in the owner's words.
        candidates: Between how many values a quantile chooses, by column.
    """

    name: str
    ranges: dict[str, tuple[float, ...]] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    person: str | None = None
    rows_per_person: int | None = None
    missing: Literal["refuse", "indicator"] = "refuse"
    edition: str = ""
    candidates: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows_per_person is not None:
            checks.count("query", rows_per_person=self.rows_per_person)
        if self.person in self.known():
            raise ConfigError.about("query", "names persons, so it has no range or categories", user=self.person)
        for column in self.candidates:
            self.numbers(column)
        for column in self.ranges:
            self.numbers(column)

    def known(self) -> list[str]:
        """Every column that can be asked about."""
        return [*self.ranges, *self.categories]

    def numbers(self, column: str) -> Numbers:
        """A numeric column.

        Raises:
            ConfigError: It has no declared range.
        """
        if column not in self.ranges:
            self._require(column)
            raise ConfigError.about("query", "has categories, not numbers", "count or group it", column=column)
        return Numbers.of(column, self.ranges[column])

    def values(self, column: str) -> tuple[str, ...]:
        """The declared values of a column of names.

        Raises:
            ConfigError: It has none.
        """
        if column not in self.categories:
            self._require(column)
            raise ConfigError.about("query", "has numbers, not categories", "use HISTOGRAM", column=column)
        return self.categories[column]

    def points(self, column: str) -> tuple[int, ...]:
        """The candidates of a quantile, in steps."""
        return self.numbers(column).spaced(self.candidates.get(column, CANDIDATES))

    def can_miss(self, column: str | None) -> bool:
        """Whether a row may lack the column."""
        return column is not None and self.missing == "indicator"

    def _require(self, column: str) -> None:
        if column not in self.known():
            raise ConfigError.about(
                "query", "has no declared range or categories", checks.nearest(column, self.known()), column=column
            )


@dataclass(frozen=True)
class Source:
    """A table: what is public about it, and the file that holds its rows."""

    declared: Declared
    path: Path


def read(file: Path) -> Source:
    """The table that a TOML file declares in [data.table] (and [query]); an experiment file serves.

    Raises:
        ConfigError: The file cannot be read, or declares no table.
    """
    from sordino.data.datasets.table import Table
    from sordino.data.fetch import located

    content = _toml(file)
    where = f"{file.name}: data.table"
    data = content.get("data")
    table = data.get("table") if isinstance(data, dict) else None
    if not isinstance(table, dict):
        raise ConfigError.about(file.name, "declares no table", "write [data.table] with path, ranges, categories")
    owner = tables.build(Table, {"label": "", **table}, where)
    options = tables.build(Options, content.get("query", {}), f"{file.name}: query")
    path = located("table", owner.path)
    label = {owner.label: owner.classes} if owner.label and owner.classes and owner.label not in owner.ranges else {}
    declared = Declared(
        name=options.name or path.stem,
        ranges=owner.ranges,
        categories={**label, **owner.categories},
        person=owner.user,
        rows_per_person=options.rows_per_person,
        missing=owner.missing,
        edition=options.edition,
        candidates=options.candidates,
    )
    if not declared.known():
        raise ConfigError.about(where, "declares no ranges and no categories", "then nothing can be asked")
    return Source(declared, path)


def listed(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(names) or "none"


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError.about("query", "does not exist", "give a TOML file", file=str(file)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError.about("query", f"cannot be read: {problem}", file=str(file)) from None
