"""Training without any protection: the line to compare with. Never silent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment.settings.setup import Cohort, Setting, Setup
from sordino.experiment.settings.training import plain_change, plain_changes
from sordino.federation.aggregators.sum import Sum
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class WithoutPrivacy(Setting):
    """The weighted mean of raw updates. No account, no charge, no claim."""

    setup: Setup

    def lines(self, cohort: Cohort) -> list[Line]:  # noqa: ARG002 - the protocol's
        return []

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:  # noqa: ARG002 - the protocol's
        setup, weights = self.setup, self.setup.plan.weights

        def work(client: int, start: Vector, announced: RoundPlan) -> Update:
            change = plain_change(setup, client, start, announced)
            return Update(vector=weights[client] * change.vector)

        def together(clients: Cohort, start: Vector, announced: RoundPlan) -> Iterator[Update]:
            for client, change in plain_changes(setup, clients, start, announced):
                yield Update(vector=weights[client] * change.vector)

        fits = setup.stack is not None and setup.stack.layout == setup.layout
        updates = setup.engine.run(plan, cohort, model, work, together if fits else None)
        total = Sum().reduce(updates, setup.layout.size)
        share = sum(weights[int(client)] for client in cohort)
        return (total.vector / max(share, 1e-12)).astype(np.float32)
