"""What is really released: whole numbers, one row of which is moved by at most `bound`. Statistics are read off them.

COUNT(c) ─ Count(c)      SUM(c) ─ Total(c, 0)      AVG(c) ─ Total(c, centre) / Count(c)      HISTOGRAM ─ Bins
QUANTILE(c, q) ─ Scores: how far each candidate is from the rank that is asked for

A person has at most K rows, each in one cell of the GROUP BY, so K · bound bounds the whole vector, in L1 and in L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sordino.core.errors import ConfigError
from sordino.query.declared import Declared
from sordino.query.rows import Mask, Rows, Steps


class Measure(Protocol):
    """A vector of whole numbers over the cells of a question."""

    def width(self, declared: Declared) -> int:
        """How many numbers a cell has."""
        ...

    def bound(self, declared: Declared) -> int:
        """How far one row can move the numbers of its cell, in L1; rows in no cell move nothing."""
        ...

    def exact(self, rows: Rows, cells: Steps, count: int, declared: Declared) -> Steps:
        """The numbers before noise, cell by cell. `cells` says which cell a row is in, -1 for none.

        Shape (count · width,). Private.
        """
        ...


@dataclass(frozen=True)
class Count:
    """Rows, or rows that have a column."""

    column: str | None = None

    def width(self, declared: Declared) -> int:  # noqa: ARG002 - the protocol's
        return 1

    def bound(self, declared: Declared) -> int:  # noqa: ARG002 - the protocol's
        return 1

    def exact(self, rows: Rows, cells: Steps, count: int, declared: Declared) -> Steps:  # noqa: ARG002 - as above
        has = cells >= 0 if self.column is None else (cells >= 0) & rows.has(self.column)
        return np.bincount(cells[has], minlength=count).astype(np.int64)


@dataclass(frozen=True)
class Total:
    """The sum of a numeric column over the rows that have it, less `centre` for each, in steps."""

    column: str
    centre: int = 0

    def width(self, declared: Declared) -> int:  # noqa: ARG002 - the protocol's
        return 1

    def bound(self, declared: Declared) -> int:
        numbers = declared.numbers(self.column)
        return max(abs(numbers.low - self.centre), abs(numbers.high - self.centre))

    def exact(self, rows: Rows, cells: Steps, count: int, declared: Declared) -> Steps:  # noqa: ARG002 - as above
        has = (cells >= 0) & rows.has(self.column)
        sums = np.zeros(count, np.int64)
        np.add.at(sums, cells[has], rows.numbers[self.column][has] - self.centre)
        return sums


@dataclass(frozen=True)
class Bins:
    """Rows by which part of a numeric column's range they lie in, or by category.

    Args:
        column: What is counted by.
        edges: In steps: bin i holds edges[i] ≤ value < edges[i + 1], the last one its upper edge too. What lies
            outside counts at the ends. Empty for categories.
    """

    column: str
    edges: tuple[int, ...] = ()

    def width(self, declared: Declared) -> int:
        return len(self.edges) - 1 if self.edges else len(declared.values(self.column))

    def bound(self, declared: Declared) -> int:  # noqa: ARG002 - the protocol's
        return 1

    def exact(self, rows: Rows, cells: Steps, count: int, declared: Declared) -> Steps:
        width = self.width(declared)
        has = (cells >= 0) & rows.has(self.column)
        if self.edges:
            bins = np.searchsorted(self.edges[1:-1], rows.numbers[self.column][has], side="right")
        else:
            bins = rows.places[self.column][has]
        return np.bincount(cells[has] * width + bins, minlength=count * width).astype(np.int64)


@dataclass(frozen=True)
class Rank:
    """The value below which a share of a numeric column's rows lies, chosen among the declared candidates."""

    column: str
    level: float

    def values(self, rows: Rows, cells: Steps, cell: int) -> Steps:
        """The values of one cell's rows, in steps. Private."""
        found: Steps = rows.numbers[self.column][(cells == cell) & rows.has(self.column)]
        return found


MOST_CELLS = 10_000
"""Numbers of one answer."""


@dataclass(frozen=True)
class Cells:
    """The groups of a question: every combination of declared values, whether or not a row has it."""

    by: tuple[str, ...]

    def labels(self, declared: Declared) -> list[tuple[str, ...]]:
        """The groups' keys, in the declarations' order.

        Raises:
            ConfigError: A column has no categories, or there are too many groups.
        """
        found: list[tuple[str, ...]] = [()]
        for column in self.by:
            values = declared.values(column)
            if len(found) * len(values) > MOST_CELLS:
                raise ConfigError.about("query", f"has more than {MOST_CELLS} groups", "group by fewer columns")
            found = [(*label, value) for label in found for value in values]
        return found

    def of(self, rows: Rows, where: Mask, declared: Declared) -> Steps:
        """Which group each row is in; -1 where it does not count or lacks a key."""
        cells = np.zeros(rows.size, np.int64)
        for column in self.by:
            cells = cells * len(declared.values(column)) + rows.places[column]
            where = where & rows.has(column)
        return np.where(where, cells, -1)
