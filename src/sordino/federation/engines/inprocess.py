"""All clients in this process, one after another or, where the work can be shared, together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Engine, Together, Work, engines


@engines.register("inprocess")
@dataclass(frozen=True)
class InProcess(Engine):
    """Run the clients here, each when its update is asked for, or several at once where the work is offered so.

    Memory does not grow with the cohort: those who work together come in groups of limited size. A client's error is
    this program's error, so it is raised, not skipped.
    """

    example: ClassVar = {}

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        if together is not None:
            yield from together(cohort, model.copy(), plan)
            return
        for client in cohort:
            yield work(int(client), model.copy(), plan)
