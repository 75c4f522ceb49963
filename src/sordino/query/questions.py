"""A question: statistics, groups, a condition. Checked against what is declared before anything is priced."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.query.declared import Declared
from sordino.query.measures import MOST_CELLS, Bins, Cells, Count, Measure, Rank, Total
from sordino.query.predicates import Predicate

Kind: TypeAlias = Literal["count", "sum", "avg", "quantile", "histogram"]
MOST_STATISTICS = 50


@dataclass(frozen=True)
class Statistic:
    """One column of an answer.

    Args:
        kind: What is asked for.
        column: Of which column; none for a count of all rows.
        level: Of a quantile, in [0, 1].
        bins: Of a histogram: how many equal parts of the range, or their edges; none for categories.
        name: What the answer calls it.
    """

    kind: Kind
    column: str | None = None
    level: float | None = None
    bins: int | tuple[float, ...] | None = None
    name: str = ""

    @property
    def title(self) -> str:
        """Its name, or what it is in SQL."""
        extra = "".join(f", {value:g}" for value in (self.level, self.bins) if isinstance(value, (int, float)))
        return self.name or f"{self.kind.upper()}({self.column or '*'}{extra})"

    def measures(self, declared: Declared) -> tuple[Measure | Rank, ...]:
        """What must be released for it.

        Raises:
            ConfigError: It asks for what is not declared, or for what has no meaning.
        """
        if self.kind == "count":
            return (self._count(declared),)
        if self.column is None:
            raise ConfigError.about("query", "needs a column", statistic=self.title)
        if self.kind == "histogram":
            return (Bins(self.column, self._edges(declared)),)
        numbers = declared.numbers(self.column)
        if self.kind == "sum":
            return (Total(self.column),)
        if self.kind == "avg":
            return Total(self.column, numbers.centre), self._count(declared)
        if self.level is None or not 0 <= self.level <= 1:
            raise ConfigError.about("query", "must lie in [0, 1]", "0.5 is the median", level=self.level)
        return (Rank(self.column, self.level),)

    def _count(self, declared: Declared) -> Count:
        if self.column is not None and self.column not in declared.categories:
            declared.numbers(self.column)
        # Where no row can lack the column the counts are one and the same release, paid once.
        return Count(self.column if declared.can_miss(self.column) else None)

    def _edges(self, declared: Declared) -> tuple[int, ...]:
        column, bins = self.column or "", self.bins
        if column in declared.categories:
            if bins is not None:
                raise ConfigError.about("query", "has a bin for each declared value", "leave bins out", column=column)
            return ()
        numbers = declared.numbers(column)
        if bins is None:
            raise ConfigError.about("query", "needs bins", "e.g. HISTOGRAM(age, 10)", column=column)
        if isinstance(bins, int):
            checks.count("query", bins=bins)
            edges = np.linspace(numbers.low, numbers.high, min(bins, MOST_CELLS + 1) + 1).round().astype(int).tolist()
        else:
            edges = [int(numbers.place(edge).to_integral_value()) for edge in bins]
        if len(edges) < 2 or sorted(set(edges)) != edges:
            raise ConfigError.about("query", "must rise, and be fewer than the column's steps", bins=bins)
        return tuple(edges)


@dataclass(frozen=True)
class Question:
    """Everything that is asked at once: one price, one charge, one answer.

    Args:
        statistics: At least one.
        by: Columns with declared values; every combination gets an answer.
        where: Which rows count; all where none.
    """

    statistics: tuple[Statistic, ...]
    by: tuple[str, ...] = ()
    where: Predicate | None = None

    def measures(self, declared: Declared) -> tuple[Measure | Rank, ...]:
        """What is released, each once; the price is split among them in equal parts.

        Raises:
            ConfigError: The question asks for what is not declared.
        """
        if not 1 <= len(self.statistics) <= MOST_STATISTICS:
            raise ConfigError.about("query", f"asks for 1 to {MOST_STATISTICS} statistics", "such as COUNT(*)")
        groups = len(Cells(self.by).labels(declared))
        if len(set(self.by)) < len(self.by):
            raise ConfigError.about("query", "names a column twice", by=self.by)
        if self.where is not None:
            self.where.check(declared)
        found = dict.fromkeys(measure for item in self.statistics for measure in item.measures(declared))
        for measure in found:
            if not isinstance(measure, Rank) and groups * measure.width(declared) > MOST_CELLS:
                raise ConfigError.about("query", f"has more than {MOST_CELLS} numbers in an answer", "ask for fewer")
        return tuple(sorted(found, key=repr))

    def digest(self, declared: Declared, *terms: str) -> str:
        """SHA-256 of what is asked of what, and on which terms: equal questions are one release.

        Names given with AS and the order of statistics do not matter. Nothing in it comes from the rows.
        """
        text = repr((declared, self.measures(declared), self.by, self.where, terms))
        return hashlib.sha256(text.encode()).hexdigest()
