"""A CSV or Parquet file of your own, with a column that names the client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.core.places import Point, before, point
from sordino.data.datasets import datasets
from sordino.data.encoding import Block, Bounds, categorical, joined, measured
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located

WHERE = "dataset.table"


@datasets.register("table")
@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file of your own: a label, features, and columns that name the client and the person.

    Nothing is learnt from the values: ranges and categories are public knowledge that you state.

    Args:
        label: Column to predict.
        path: The file: .parquet or .pq, anything else is read as CSV with a header.
        client: Column that names the client, for the natural partition.
        user: Column that names the person behind a record, for the unit `user`.
        group: Column of a public label that sets a record's budget, e.g. its tier of consent.
        features: Columns to predict from; all others where None.
        ranges: Public lowest and highest value by column: scaled to [-1, 1], clamped outside. A numeric
            column without a range is taken as it is.
        categories: Public values by column: one 0/1 column each.
        classes: Public values of the label, in order. May be left out for public data only, where they are the
            label's sorted values: which labels occur is private.
        when: Column of the time, or the number, by which records came in; read with `since` and `until`.
        since: Public: records from here on are read; left out, all before `until`.
        until: Public: records from here on are not read, nor those without a time.
        missing: "refuse" a missing value, or "indicator": every numeric feature gets a second column that
            says so, and the value becomes 0; a missing category is all 0.
        public: Published research data, whose plain metrics may be shown.
    """

    example: ClassVar[dict[str, Any]] = {
        "path": "patients.csv",
        "label": "ill",
        "client": "hospital",
        "ranges": {"age": [0, 100]},
        "categories": {"sex": ["female", "male"]},
    }
    source: ClassVar[str] = "a table of your own"
    licence: ClassVar[str] = "yours"
    fetch: ClassVar[Archive | None] = None
    label: str
    path: str | None = None
    client: str | None = None
    user: str | None = None
    group: str | None = None
    features: tuple[str, ...] | None = None
    ranges: dict[str, tuple[float, ...]] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    when: str | None = None
    since: str | None = None
    until: str | None = None
    missing: Literal["refuse", "indicator"] = "refuse"
    public: bool = False

    def __post_init__(self) -> None:
        if (self.when is None) != (self.until is None) or (self.since is not None and self.when is None):
            raise ConfigError.about(
                WHERE, "go together", 'e.g. when = "admitted", until = "2026-04-01"', when=self.when
            )
        _ = self._window  # mistyped places are found now
        for column, bounds in self.ranges.items():
            if len(bounds) != 2 or not -math.inf < bounds[0] < bounds[1] < math.inf:
                rule = f"{list(bounds)} is no range"
                raise ConfigError.about(f"{WHERE}.ranges.{column}", rule, "give [lowest, highest]")
        for column, values in self.categories.items():
            if column in self.ranges:
                raise ConfigError.about(WHERE, f"column {column!r} has a range and categories", "give it one of them")
            if not values or len(set(values)) < len(values):
                rule = f"{list(values)} must be different values, at least one"
                raise ConfigError.about(f"{WHERE}.categories.{column}", rule)

    def load(self) -> Examples:
        """The rows in the file's order."""
        # Names as they are written: a type guessed from all rows would let one record rename every person.
        named = [name for name in (self.client, self.user, self.group, self.when) if name is not None]
        frame = frame_of(located("table", self.path), names=named)
        columns = self._columns([str(name) for name in frame.columns])
        if self.when is not None:  # before anything else, so that a record outside changes nothing at all
            frame = frame[np.array([self._came_in(text) for text in names_of(frame[self.when])], bool)]
        if not len(frame):
            raise ConfigError.about(WHERE, "holds no records", "check the file", path=self.path)
        names, x = joined([self._encoded(name, frame[name]) for name in columns])
        y, classes = self._labels(_texts(frame, self.label))
        return Examples(
            x=x,
            y=y,
            classes=classes,
            client=None if self.client is None else np.array(_texts(frame, self.client)),
            user=None if self.user is None else np.array(_texts(frame, self.user)),
            group=None if self.group is None else np.array(_texts(frame, self.group)),
            public=self.public,
            source=self.source,
            licence=self.licence,
            features=names,
        ).validated(WHERE)

    def stand_in(self) -> Examples:
        """One made-up record of the declared form, for whoever has no file.

        Raises:
            ConfigError: The form is not all declared.
        """
        if self.features is None or self.classes is None:
            rule = "needs features and classes where no file is at hand"
            raise ConfigError.about(WHERE, rule, "list both: columns to predict from, and values of the label")
        nothing = np.zeros(1) if self.missing == "refuse" else np.full(1, np.nan)
        names, x = joined([self._block(name, [None], nothing) for name in self._chosen(self.features)])
        y = np.zeros(1, np.int64)
        return Examples(x, y, len(self.classes), source=self.source, licence=self.licence, features=names)

    @property
    def _window(self) -> tuple[Point | None, Point] | None:
        if self.until is None:
            return None
        start, end = None if self.since is None else point(self.since), point(self.until)
        if start is not None and not before(start, end):
            raise ConfigError.about(WHERE, "must lie before until", since=self.since, until=self.until)
        return start, end

    def _came_in(self, text: str | None) -> bool:
        """Whether a record is one of those that are read. It depends on no other record."""
        window = self._window
        if text is None or window is None:
            return False
        start, end = window
        try:
            at = point(text.strip())
            return (start is None or not before(at, start)) and before(at, end)
        except ConfigError:  # what is no time on this column came in at none
            return False

    def _columns(self, present: list[str]) -> list[str]:
        """The feature columns, after every column named anywhere was found."""
        roles = [n for n in (self.label, self.client, self.user, self.group, self.when) if n is not None]
        for name in (*roles, *(self.features or ()), *self.ranges, *self.categories):
            if name not in present:
                raise ConfigError.about(WHERE, f"has no column {name!r}", nearest(name, present))
        return self._chosen([name for name in present if name not in roles] if self.features is None else self.features)

    def _chosen(self, chosen: Sequence[str]) -> list[str]:
        if not chosen:
            raise ConfigError.about(WHERE, "has no feature columns", "name some in features = […]")
        if self.label in chosen:
            raise ConfigError.about(WHERE, "is the label and a feature", "remove it from features", label=self.label)
        return list(chosen)

    def _encoded(self, name: str, column: Any) -> Block:
        if self.missing == "refuse" and column.isna().any():
            rule = f"column {name!r} lacks {int(column.isna().sum())} values"
            raise ConfigError.about(WHERE, rule, "fill them, or set missing = 'indicator'")
        if name in self.categories:
            return self._block(name, names_of(column), np.zeros(0))
        try:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (ValueError, TypeError):
            remedy = (
                f"list its public values in categories.{name}, leave it out of features, or name it as client or user"
            )
            raise ConfigError.about(WHERE, f"column {name!r} is not numeric", remedy) from None
        return self._block(name, (), values)

    def _block(self, name: str, texts: Sequence[str | None], values: NDArray[np.float64]) -> Block:
        """A column by its categories, else by its range."""
        if name in self.categories:
            return categorical(WHERE, name, texts, self.categories[name])
        bounds = cast(Bounds | None, self.ranges.get(name))
        return measured(name, values, bounds, indicator=self.missing == "indicator")

    def _labels(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], int]:
        if self.classes is None and not self.public:
            remedy = 'write e.g. classes = ["0", "1"]; which labels occur is private'
            raise ConfigError.about(WHERE, "needs classes, unless the data are public", remedy, label=self.label)
        known = self.classes or tuple(sorted(set(texts), key=_order))
        if len(known) < 2:
            raise ConfigError.about(WHERE, "has a single value", "a model needs two classes", label=self.label)
        place = {text: i for i, text in enumerate(known)}
        for text in texts:
            if text not in place:
                rule = "a label is none of the classes"
                raise ConfigError.about(WHERE, rule, f"known: {', '.join(known)}", label=self.label)
        return np.array([place[text] for text in texts], np.int64), len(known)


def frame_of(path: Path, *, texts: bool = False, names: Sequence[str] = ()) -> Any:
    """The rows of a CSV or Parquet file, as pandas reads them.

    Args:
        path: The file.
        texts: Take what a CSV holds without guessing any type.
        names: Of a CSV, columns that hold names, however they look.
    """
    try:
        import pandas as pd

        if path.suffix in (".parquet", ".pq"):
            return _parquet(path)
        if not texts:
            return pd.read_csv(path, dtype=dict.fromkeys(names, str))
        width = len(pd.read_csv(path, nrows=0, dtype=str, index_col=False).columns)
        # So many columns, and no index: what a row has beyond them is cut, whichever row it is, and refuses no file.
        return pd.read_csv(path, dtype=str, index_col=False, usecols=range(width))
    except ImportError:
        remedy = "pip install 'sordino[tables]'"
        raise ConfigError.about(WHERE, "needs pandas and pyarrow", remedy) from None
    except (ValueError, OSError) as problem:
        first = str(problem).splitlines()[0]
        raise ConfigError.about(
            WHERE, f"cannot be read ({first})", "give a CSV or Parquet file", path=path.name
        ) from None


def _parquet(path: Path) -> Any:
    """The rows of a Parquet file. Whole numbers stay whole: as floats, beside a gap, two persons could become one."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet

    whole = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    return pa.parquet.read_table(path).to_pandas(types_mapper=whole.get)


def _texts(frame: Any, name: str) -> list[str]:
    """A column of names without gaps."""
    texts = names_of(frame[name])
    for row, text in enumerate(texts):
        if text is None or not text.strip():
            raise ConfigError.about(WHERE, f"row {row} has nothing in column {name!r}", "every record needs one")
    return cast(list[str], texts)


def names_of(column: Any) -> list[str | None]:
    """Values as texts, None where missing; a whole number has no decimal point, whatever type holds it."""
    return [None if gone else _name(value) for value, gone in zip(column, column.isna(), strict=True)]


def _name(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(cast(float, value))) if whole else str(value)


def _order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, then names by letter."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text
