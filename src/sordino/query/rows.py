"""The private rows as whole numbers. Every step looks at one row, or at one person's rows, and at nothing else.

file ──► values clamped, rounded, looked up (row by row) ──► a person's first K rows (person by person) ──► Rows
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
from sordino.query.declared import Declared, Source

Mask = NDArray[np.bool_]
Steps = NDArray[np.int64]

MISSING = -1
"""The place of a category that a row lacks."""


class Rows:
    """Private: whoever holds it stands inside the silo. Nothing of it is shown, not even how many rows there are.

    Args:
        size: How many rows.
        numbers: By numeric column: steps, 0 where missing. Shape (size,).
        places: By other column: which category, `MISSING` where missing. Shape (size,).
        present: By numeric column: where a row has it. Shape (size,).
    """

    __slots__ = ("numbers", "places", "present", "size")

    def __init__(
        self, size: int, numbers: dict[str, Steps], places: dict[str, Steps], present: dict[str, Mask]
    ) -> None:
        self.size, self.numbers, self.places, self.present = size, numbers, places, present

    def __repr__(self) -> str:
        return "Rows(private)"

    def whole(self, columns: list[str]) -> Rows:
        """The rows that have a value in every column. Refusing the file instead would tell that some row has not."""
        keep = np.ones(self.size, bool)
        for column in columns:
            keep &= self.has(column)
        parts = [{name: part[keep] for name, part in of.items()} for of in (self.numbers, self.places, self.present)]
        return Rows(int(keep.sum()), *parts)  # type: ignore[arg-type]

    def has(self, column: str) -> Mask:
        """Which rows have a value in a column."""
        return self.present[column] if column in self.present else self.places[column] != MISSING


def load(source: Source, unit: Unit) -> Rows:
    """Read a table's file.

    Raises:
        ConfigError: It cannot be read, or lacks a column. That is checked before any question.
    """
    from sordino.data.datasets.table import frame_of

    # As texts: pandas takes a column's type from all rows, so that one row would change how the others are read.
    return encoded(frame_of(source.path, texts=True), source.declared, unit)


def encoded(frame: Any, declared: Declared, unit: Unit) -> Rows:
    """The rows of a data frame that count; see `load`."""
    person = _person(declared, unit)
    present = [str(name) for name in frame.columns]
    for name in (*declared.known(), *([person] if person else [])):
        if name not in present:
            raise ConfigError.about("query", "is declared, and the file has no such column", column=name)
    if person is not None:
        frame = frame[_first(_people(frame[person]), declared.rows_per_person or 1)]
    numbers, places, has = {}, {}, {}
    for name in declared.ranges:
        numbers[name], has[name] = _numbers(frame[name], declared, name)
    for name, values in declared.categories.items():
        places[name] = _places(frame[name], values)
    rows = Rows(len(frame), numbers, places, has)
    return rows.whole(declared.known()) if declared.missing == "refuse" else rows


def _person(declared: Declared, unit: Unit) -> str | None:
    if unit is Unit.RECORD:
        return None
    if unit is Unit.CLIENT:
        raise ConfigError.about("query", "is asked of records or persons, not of whole clients", unit=str(unit))
    if declared.person is None:
        raise ConfigError.about("query", "needs a column that names persons", "write user = … in [data.table]")
    if declared.rows_per_person is None:
        raise ConfigError.about("query", "needs a bound on their rows", "write rows_per_person = … in [query]")
    return declared.person


def _people(column: Any) -> list[str | None]:
    from sordino.data.datasets.table import names_of

    return [None if name is None or not name.strip() else name for name in names_of(column)]


def _first(people: list[str | None], cap: int) -> Mask:
    """A person's first rows in the file's order: which ones depends on nobody else. Rows of nobody never count.

    Rows without a name stand for many people; kept as one person's, one of them would decide over the others' rows.
    """
    seen: dict[str, int] = {}
    keep = np.zeros(len(people), bool)
    for row, person in enumerate(people):
        if person is not None:
            seen[person] = seen.get(person, 0) + 1
            keep[row] = seen[person] <= cap
    return keep


def _numbers(column: Any, declared: Declared, name: str) -> tuple[Steps, Mask]:
    """Steps and where they are; a text that is no number is a missing one, an infinity is clamped."""
    values = np.array([_number(value) for value in column], np.float64)
    present = ~np.isnan(values)
    with np.errstate(over="ignore"):  # what overflows is clamped
        steps = declared.numbers(name).steps(np.where(present, values, 0.0))
    return np.where(present, steps, 0), present


def _places(column: Any, values: tuple[str, ...]) -> Steps:
    from sordino.data.datasets.table import names_of

    place: dict[str | None, int] = {value: i for i, value in enumerate(values)}
    return np.array([place.get(name, place.get(_whole(name), MISSING)) for name in names_of(column)], np.int64)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _whole(name: str | None) -> str | None:
    """A whole number without its decimal point or leading zeros; None if the text is none."""
    number = _number(name)
    return str(int(number)) if number.is_integer() else None
