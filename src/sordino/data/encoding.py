"""Columns of a table as numbers, by public ranges and public categories: nothing is learnt from the data.

A scaler fitted to private records would be a release that nobody pays for. Here a range comes
from general knowledge, so that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError

Block: TypeAlias = tuple[tuple[str, ...], NDArray[np.float32]]
"""Names of k columns and their values, shape (n, k)."""

Bounds: TypeAlias = tuple[float, float]


def measured(name: str, values: NDArray[np.float64], bounds: Bounds | None, *, indicator: bool = False) -> Block:
    """A numeric column, scaled so that its public range becomes [-1, 1].

    Args:
        name: The column's name.
        values: Shape (n,); NaN where missing.
        bounds: Public lowest and highest value; what lies outside is clamped. None: no scaling.
        indicator: Missing values become 0, the middle of the range, and a second column says 1 there.

    >>> measured("age", np.array([20.0, 55.0, np.nan]), (20, 90), indicator=True)[1].tolist()
    [[-1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    """
    column = values
    if bounds is not None:
        low, high = bounds
        column = (np.clip(values, low, high) - low) * (2 / (high - low)) - 1
    if not indicator:
        return (name,), column[:, None].astype(np.float32)
    missing = np.isnan(values)
    return (name, f"{name} missing"), np.stack([np.where(missing, 0, column), missing], axis=1).astype(np.float32)


def categorical(where: str, name: str, values: Sequence[str | None], known: Sequence[str]) -> Block:
    """A column of names, one 0/1 column per public category; all 0 where missing.

    Raises:
        ConfigError: A value is none of the categories.

    >>> categorical("mine", "sex", ["female", None], ("female", "male"))[1].tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    place = {category: i for i, category in enumerate(known)}
    matrix = np.zeros((len(values), len(known)), np.float32)
    for row, value in enumerate(values):
        if value is None:
            continue
        if value not in place:
            rule = f"row {row} has {value!r}, which is none of the categories of column {name!r}"
            raise ConfigError.about(where, rule, nearest(value, known))
        matrix[row, place[value]] = 1
    return tuple(f"{name}={category}" for category in known), matrix


def joined(blocks: Sequence[Block]) -> Block:
    """Several blocks side by side.

    >>> joined([measured("a", np.ones(2), None), measured("b", np.zeros(2), None)])[0]
    ('a', 'b')
    """
    names = tuple(name for block in blocks for name in block[0])
    return names, np.concatenate([block[1] for block in blocks], axis=1)
