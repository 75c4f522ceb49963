"""Local DP: every client noises its own clipped update. Nobody is trusted, and the price is utility."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.experiment.settings.training import plain_change, plain_changes
from sordino.federation.aggregators.sum import Sum
from sordino.federation.pipeline import Pipeline
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class ClientAtSilo(Setting):
    """clip → noise → send; the coordinator only averages.

    Guarantee: any two inputs of one client are hard to tell apart from its messages (replace-one), against everybody.
    """

    setup: Setup
    pipeline: Pipeline

    def lines(self, cohort: Cohort) -> list[Line]:
        return self.setup.lines(cohort, 1)

    def sent(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation | None) -> Update:
        return self._noised(client, plain_change(self.setup, client, start, plan), plan, paid(reservation))

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        setup = self.setup

        def work(client: int, start: Vector, announced: RoundPlan) -> Update:
            return self.sent(client, start, announced, reservation)

        def together(clients: Cohort, start: Vector, announced: RoundPlan) -> Iterator[Update]:
            for client, change in plain_changes(setup, clients, start, announced):
                yield self._noised(client, change, announced, paid(reservation))

        fits = setup.stack is not None and setup.stack.layout == setup.layout
        updates = setup.engine.run(plan, cohort, model, work, together if fits else None)
        total: Vector = Sum().reduce(updates, setup.layout.size).vector.astype("float32")
        return total

    def _noised(self, client: int, change: Update, plan: RoundPlan, charge: Reservation) -> Update:
        setup, update = self.setup, self.pipeline.client(change, plan)
        own = self.pipeline.total(iter([update]), plan, setup.layout.size, setup.unit)
        return Update(vector=setup.door([setup.account(client)], charge)(own))

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Setting]:
        return released / plan.expected, self
