"""The sum, streaming."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.core.errors import EngineError
from sordino.core.types import Update
from sordino.federation.aggregators import Aggregator, aggregators
from sordino.federation.bounds import Bound


@aggregators.register("sum")
@dataclass(frozen=True)
class Sum(Aggregator):
    """Add the updates up in float64, holding one at a time.

    A sum, never a mean over who came: the number of contributors is private, so the divisor is a public
    constant and comes after the noise.
    """

    example: ClassVar = {}

    def bound(self, incoming: Bound) -> Bound:
        return incoming

    def reduce(self, updates: Iterable[Update], size: int) -> Update:
        total, count, records = np.zeros(size, np.float64), 0, 0
        for update in updates:
            if update.vector.shape != (size,):
                raise EngineError.about(
                    "aggregator.sum",
                    f"must be ({size},)",
                    "do all clients run the same stages on the same model?",
                    shape=update.vector.shape,
                )
            total += update.vector
            count, records = count + update.count, records + update.records
        return Update(total, count, records)
