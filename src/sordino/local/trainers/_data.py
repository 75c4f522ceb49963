"""A silo's records as tensors, and which of them a step uses."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
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
    """

    def __init__(self, data: Data, unit: Unit) -> None:
        x, y, user = data
        if len(x) != len(y) or (user is not None and len(user) != len(x)):
            raise ConfigError.about("data", "inputs, labels and users differ in length", inputs=len(x), labels=len(y))
        if unit is Unit.USER and user is None:
            raise ConfigError.about(
                "data", "does not say whose each record is", "use a dataset with users", unit="user"
            )
        self._owner = np.arange(len(x)) if unit is Unit.RECORD else np.unique(np.asarray(user), return_inverse=True)[1]
        self._unit = unit
        self.size = int(self._owner.max(initial=-1)) + 1

    def draw(self, rate: float | str, source: NoiseSource | None) -> NDArray[np.int64]:
        """Rows of the units that join a step: all for `"full"`, else each unit with probability `rate`."""
        if rate == "full":
            return np.arange(len(self._owner))
        if source is None:
            raise ConfigError.about("sampling", "needs a noise source for its coins", rate=rate)
        joins = np.zeros(self.size, dtype=bool)
        joins[coins(source, float(rate), self.size)] = True
        return np.flatnonzero(joins[self._owner])

    def groups(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The person of each row, for the unit `user` only."""
        return self._owner[rows] if self._unit is Unit.USER else None
