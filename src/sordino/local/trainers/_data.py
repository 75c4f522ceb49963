"""A silo's records as tensors, and which of them a step uses."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import NoiseSource, coins

Data: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
"""Inputs, labels and, where known, the person behind each record; one row per record."""


def tensor(model: nn.Module, values: NDArray[Any]) -> Tensor:
    """An array on the model's device: real numbers as float32, whole numbers as int64."""
    real = np.issubdtype(values.dtype, np.floating)
    kind = np.float32 if real else np.int64
    return torch.from_numpy(np.array(values, dtype=kind, order="C")).to(next(model.parameters()).device)


class Units:
    """The protected units of a silo's records, and Poisson batches of them.

    Args:
        data: The records.
        unit: `record`, or `user` to draw people with all their records.
        records: For the unit `user`: draw records instead, of which at most so many of a person's ever count.
    """

    def __init__(self, data: Data, unit: Unit, records: int | None = None) -> None:
        x, y, user = data
        if len(x) != len(y) or (user is not None and len(user) != len(x)):
            raise ConfigError.about("data", "inputs, labels and users differ in length", inputs=len(x), labels=len(y))
        if unit is Unit.USER and user is None:
            raise ConfigError.about(
                "data", "does not say whose each record is", "use a dataset with users", unit="user"
            )
        rows = np.arange(len(x))
        self._person = None if unit is Unit.RECORD else np.unique(np.asarray(user), return_inverse=True)[1]
        self._records = records
        self._rows = rows if records is None or self._person is None else _first(x, y, self._person, records)
        apart = self._person is None or records is not None
        self._joint = np.arange(len(self._rows)) if apart or self._person is None else self._person
        self.clipped = Unit.RECORD if apart else Unit.USER
        self.size = int(self._joint.max(initial=-1)) + 1

    def draw(self, rate: float | str, source: NoiseSource | None) -> NDArray[np.int64]:
        """Rows of the units that join a step: all for `"full"`, else each unit with probability `rate`."""
        if rate == "full":
            return self._rows
        if source is None:
            raise ConfigError.about("sampling", "needs a noise source for its coins", rate=rate)
        joins = np.zeros(self.size, dtype=bool)
        joins[coins(source, float(rate), self.size)] = True
        return self._rows[joins[self._joint]]

    def groups(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The person of each row, where people are clipped as a whole."""
        return self._person[rows] if self._person is not None and self.clipped is Unit.USER else None

    def bounded(self, total: BoundedSum) -> BoundedSum:
        """A clipped sum of drawn rows, with the bound that holds for the protected unit."""
        if self._person is None or self._records is None:
            return total
        return total.per_person(self._person[self._rows], at_most=self._records)


def _first(x: NDArray[Any], y: NDArray[Any], person: NDArray[np.int64], records: int) -> NDArray[np.int64]:
    """Rows of each person's first `records` records, in an order that a hash of the record alone decides.

    The same ones in every step and round, whoever else is there: so a person has never more than that many in play.
    """
    kept = np.ones(len(x), dtype=bool)
    by_person = np.argsort(person, kind="stable")
    for own in np.split(by_person, np.cumsum(np.bincount(person))[:-1]):
        if len(own) <= records:
            continue
        order = sorted(own, key=lambda row: hashlib.blake2b(x[row].tobytes() + y[row].tobytes()).digest())
        kept[order[records:]] = False
    return np.flatnonzero(kept)
