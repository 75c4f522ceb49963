"""Attributes of a table: columns that take few values together, and what other columns tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.privacy.renyi import Floats


@dataclass(frozen=True, eq=False)
class Attribute:
    """One thing that a table says of a person, such as a category in several columns.

    Args:
        name: Without the category.
        columns: Where it stands.
        values: All values that occur, shape (values, columns).
    """

    name: str
    columns: NDArray[np.int64]
    values: NDArray[Any]

    def of(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Which value each record has, shape (n,)."""
        return np.asarray((x[:, None, self.columns] == self.values[None]).all(axis=2).argmax(axis=1))

    def replaced(self, x: NDArray[Any]) -> NDArray[Any]:
        """Every record with every value in turn, shape (n · values, columns of the table)."""
        result = np.repeat(x, len(self.values), axis=0)
        result[:, self.columns] = np.tile(self.values, (len(x), 1))
        return result


def attributes(features: tuple[str, ...], x: NDArray[Any], most: int) -> list[Attribute]:
    """The attributes with two to `most` values; `a=1`, `a=2` and `a missing` are columns of one.

    >>> x = np.array([[0, 1, 0.5], [1, 0, 0.1], [1, 0, 0.7]])
    >>> [(found.name, len(found.values)) for found in attributes(("sex=m", "sex=f", "height"), x, most=2)]
    [('sex', 2)]
    """
    stems = [name.split("=")[0].removesuffix(" missing") for name in features]
    found = []
    for name in dict.fromkeys(stems):
        columns = np.flatnonzero([stem == name for stem in stems])
        values = np.unique(x[:, columns], axis=0)
        if 2 <= len(values) <= most:
            found.append(Attribute(name, columns, values))
    return found


def imputed(attribute: Attribute, x: NDArray[Any], known: NDArray[Any], neighbours: int) -> Floats:
    """How likely each value is by the nearest known records, without any model, shape (n, values).

    Args:
        attribute: What is to be told.
        x: Records, whose own value is not looked at. Shape (n, columns).
        known: Like records with all their values.
        neighbours: How many are asked; the values share out one vote more.

    >>> x = np.array([[0.0, 0.1], [1.0, 5.0], [1.0, 5.1]])
    >>> (sex,) = attributes(("sex", "height"), x, most=2)
    >>> imputed(sex, np.array([[0.0, 5.2]]), x, neighbours=2).tolist()
    [[0.16666666666666666, 0.8333333333333334]]
    """
    others = np.setdiff1d(np.arange(x.shape[1]), attribute.columns)
    mine, theirs = x[:, others].astype(np.float64), known[:, others].astype(np.float64)
    squares = np.square(mine).sum(1)[:, None] - 2 * mine @ theirs.T + np.square(theirs).sum(1)[None]
    nearest = np.argsort(squares, axis=1, kind="stable")[:, :neighbours]
    votes = attribute.of(known)[nearest][:, :, None] == np.arange(len(attribute.values))
    return np.asarray((votes.sum(axis=1) + 1 / len(attribute.values)) / (nearest.shape[1] + 1))
