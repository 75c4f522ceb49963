"""All clients in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Engine, Work, engines


@engines.register("inprocess")
@dataclass(frozen=True)
class InProcess(Engine):
    """Run the clients here, one at a time, each when its update is asked for.

    Memory does not grow with the cohort. A client's error is this program's error, so it is raised, not skipped.
    """

    example: ClassVar = {}

    def run(self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work) -> Iterator[Update]:
        for client in cohort:
            yield work(int(client), model.copy(), plan)
