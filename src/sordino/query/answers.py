"""From released whole numbers to statistics with the error of their noise. Nothing here sees a private row.

Released ─ bytes ─► ledger, shelf        Released + Question ─► Answer, however often it is read
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sordino.query.declared import Declared, Numbers
from sordino.query.measures import Bins, Cells, Count, Measure, Rank, Total
from sordino.query.noise import Spread
from sordino.query.prices import Law, Price
from sordino.query.questions import Question, Statistic

HALF = 0.975
"""Where two noises meet in one number, each keeps within its interval with this probability, so both do with 95 %."""


@dataclass(frozen=True)
class Part:
    """One measure's released numbers.

    Args:
        values: Noised numbers, or chosen candidates, cell by cell.
        law: Which noise.
        scale: Of it, in steps; 0 for chosen candidates.
        rank_error: Of chosen candidates, in rows.
    """

    values: tuple[int, ...]
    law: Law
    scale: float
    rank_error: float | None = None

    @property
    def spread(self) -> Spread:
        """How far its noise scatters."""
        return Spread(self.law, self.scale)


@dataclass(frozen=True)
class Released:
    """What a charge released: the bytes that the ledger commits."""

    parts: tuple[Part, ...]

    def __bytes__(self) -> bytes:
        parts = [[list(p.values), p.law, p.scale, p.rank_error] for p in self.parts]
        return json.dumps({"format": 1, "parts": parts}, separators=(",", ":")).encode()

    @classmethod
    def of(cls, content: bytes) -> Released:
        """The inverse of `bytes`."""
        parts = json.loads(content)["parts"]
        return cls(tuple(Part(tuple(values), law, scale, error) for values, law, scale, error in parts))


@dataclass(frozen=True)
class Figure:
    """One number of an answer.

    Args:
        group: The declared value of each column of GROUP BY.
        name: Which statistic.
        value: The noisy value; of a quantile, one of its candidates.
        standard_error: Of the noise alone, in the value's unit; none for a quantile.
        low: With 95 % probability over the noise, the value without noise lies between `low` and `high`.
        high: See `low`; none for a quantile.
        rank_error: Of a quantile: with 95 % probability its rank is off by at most so many rows more than that of
            the best candidate.
        bin: Of a histogram: which part of the range, or which category.
    """

    group: tuple[str, ...]
    name: str
    value: float
    standard_error: float | None
    low: float | None
    high: float | None
    rank_error: float | None = None
    bin: str | None = None


@dataclass(frozen=True)
class Answer:
    """All figures of a question.

    Args:
        txid: The charge that paid for it.
        by: The columns of GROUP BY.
        figures: Group by group, statistic by statistic.
        price: What this asking cost.
        test: Charged to a TEST account.
    """

    txid: str
    by: tuple[str, ...]
    figures: tuple[Figure, ...]
    price: Price
    test: bool

    @property
    def value(self) -> float:
        """The only figure's value.

        Raises:
            ValueError: There are several.
        """
        (figure,) = self.figures
        return figure.value


def figures(question: Question, declared: Declared, released: Released) -> tuple[Figure, ...]:
    """The statistics of a question, in its order."""
    parts = dict(zip(question.measures(declared), released.parts, strict=True))
    labels = Cells(question.by).labels(declared)
    return tuple(
        figure
        for cell, label in enumerate(labels)
        for statistic in question.statistics
        for figure in _figures(statistic, parts, cell, label, declared)
    )


def _figures(
    item: Statistic, parts: dict[Measure | Rank, Part], cell: int, label: tuple[str, ...], declared: Declared
) -> list[Figure]:
    measures = item.measures(declared)
    part = parts[measures[0]]
    match measures:
        case (Total(column=column), Count()):
            return [_mean(item, declared.numbers(column), (part, parts[measures[1]]), cell, label)]
        case (Total(column=column),):
            return [_sum(item, declared.numbers(column), part, cell, label)]
        case (Rank(column=column),):
            point = declared.points(column)[part.values[cell]]
            value = declared.numbers(column).value(point)
            return [Figure(label, item.title, value, None, None, None, rank_error=part.rank_error)]
        case (Bins() as bins,):
            names = _bins(bins, declared)
            start = cell * len(names)
            return [_count(item, part, start + i, label, bin_=name) for i, name in enumerate(names)]
        case _:
            return [_count(item, part, cell, label)]


def _count(item: Statistic, part: Part, at: int, label: tuple[str, ...], *, bin_: str | None = None) -> Figure:
    """A count is never negative, so neither end of its interval is; the value itself is left as drawn, unbiased."""
    value, width = part.values[at], part.spread.width()
    low, high = max(0, value - width), max(0, value + width)
    return Figure(label, item.title, value, part.spread.deviation, low, high, bin=bin_)


def _sum(item: Statistic, numbers: Numbers, part: Part, cell: int, label: tuple[str, ...]) -> Figure:
    value, width = part.values[cell], part.spread.width()
    low, high = numbers.value(value - width), numbers.value(value + width)
    return Figure(label, item.title, numbers.value(value), _scaled(part.spread.deviation, numbers), low, high)


def _mean(item: Statistic, numbers: Numbers, parts: tuple[Part, Part], cell: int, label: tuple[str, ...]) -> Figure:
    """Centre + noisy sum of differences / noisy count, kept in the declared range.

    The interval holds every ratio of a sum and a count within their own intervals; it is the whole range where the
    count may be 0.
    """
    (total, count), (sums, rows) = (part.values[cell] for part in parts), (part.spread for part in parts)
    ratio = total / max(count, 1)
    error = _scaled((sums.deviation**2 + (ratio * rows.deviation) ** 2) ** 0.5 / max(count, 1), numbers)
    low, high = float(numbers.low), float(numbers.high)
    fewest, most = count - rows.width(HALF), count + rows.width(HALF)
    if fewest > 0:
        ends = [total - sums.width(HALF), total + sums.width(HALF)]
        ratios = [end / divisor for end in ends for divisor in (fewest, most)]
        low, high = max(low, numbers.centre + min(ratios)), min(high, numbers.centre + max(ratios))
    value = min(max(numbers.centre + ratio, numbers.low), numbers.high)
    scaled = [_scaled(steps, numbers) for steps in (value, min(low, high), max(low, high))]
    return Figure(label, item.title, scaled[0], error, scaled[1], scaled[2])


def _bins(bins: Bins, declared: Declared) -> Sequence[str]:
    if not bins.edges:
        return declared.values(bins.column)
    edges = [f"{declared.numbers(bins.column).value(edge):g}" for edge in bins.edges]
    ends = [*[")"] * (len(edges) - 2), "]"]
    return [f"[{low}, {high}{end}" for low, high, end in zip(edges[:-1], edges[1:], ends, strict=True)]


def _scaled(steps: float, numbers: Numbers) -> float:
    return steps / 10.0**numbers.places


def plain(answer: Answer) -> dict[str, Any]:
    """An answer as JSON-able values."""
    from sordino.core import tables

    found: dict[str, Any] = tables.plain(answer)
    for figure, row in zip(answer.figures, found["figures"], strict=True):
        row["group"] = dict(zip(answer.by, figure.group, strict=True))
    return found
