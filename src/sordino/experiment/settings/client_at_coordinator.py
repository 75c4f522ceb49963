"""Whole clients protected by noise that a trusted coordinator adds to the clipped sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.experiment.settings.training import plain_change, plain_changes
from sordino.federation.pipeline import Pipeline
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class ClientAtCoordinator(Setting):
    """Local training of any kind; then weight → clip → sum → noise, divided by the expected cohort.

    Guarantee: against whoever sees released models. The coordinator itself sees raw updates.
    """

    setup: Setup
    pipeline: Pipeline

    def wire_size(self) -> int:
        return self.pipeline.wire_size(self.setup.layout.size)

    def lines(self, cohort: Cohort) -> list[Line]:
        return self.setup.lines(cohort, 1)

    def sent(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation | None) -> Update:
        del reservation  # the coordinator draws the noise
        return self.pipeline.client(plain_change(self.setup, client, start, plan), plan)

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        setup = self.setup

        def work(client: int, start: Vector, announced: RoundPlan) -> Update:
            return self.sent(client, start, announced, None)

        def together(clients: Cohort, start: Vector, announced: RoundPlan) -> Iterator[Update]:
            for _, change in plain_changes(setup, clients, start, announced):
                yield self.pipeline.client(change, announced)

        fits = setup.stack is not None and setup.stack.layout == setup.layout
        updates = setup.engine.run(plan, cohort, model, work, together if fits else None)
        total = self.pipeline.total(updates, plan, setup.layout.size, setup.unit)
        return setup.door(setup.payers(cohort), paid(reservation))(total)

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Setting]:
        vector, pipeline = self.pipeline.settle(released, plan)
        return vector / plan.expected, replace(self, pipeline=pipeline)

    def memory(self) -> dict[str, Any]:
        return {"stages": self.pipeline.to_tables()}

    def restored(self, memory: dict[str, Any]) -> Setting:
        return replace(self, pipeline=Pipeline.from_tables(memory["stages"]))
