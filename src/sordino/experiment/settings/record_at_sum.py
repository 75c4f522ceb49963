"""Records protected by one noise on the summed gradients of the cohort: needs secure summation (played here)."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.core.types import RoundPlan, Vector
from sordino.experiment.settings.record_at_silo import steps_of
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.local.trainers.gradient_sum import gradient_sum
from sordino.privacy.kernel import BoundedSum, total_of
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class RecordAtSum(Setting):
    """Each silo gives its clipped gradient sum; only the noised total is seen.

    Guarantee: as the plan says against whoever sees sums only. A record is in one silo, so the total moves by
    at most the clip norm, and one noise of that scale serves all silos.
    """

    setup: Setup

    def lines(self, cohort: Cohort) -> list[Line]:
        return self.setup.lines(cohort, 1)

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:  # noqa: ARG002 - the protocol's
        setup = self.setup
        total = total_of(self._sum(int(client), model) for client in cohort)
        released = setup.door(setup.payers(cohort), paid(reservation))(total)
        records = sum(steps_of(setup, int(client)).expected_batch for client in cohort)
        return (-setup.experiment.local.step_size / records) * released

    def _sum(self, client: int, model: Vector) -> BoundedSum:
        silo, setup = self.setup.population.train.silo(client), self.setup
        steps = steps_of(setup, client)
        return gradient_sum(
            setup.module,
            setup.layout,
            (silo.x, silo.y, silo.user),
            model,
            clip=steps.clip,
            unit=steps.unit,
            records_per_person=steps.records_per_person,
            rule=steps.clipping,
            batch=steps.batch,
            source=setup.source,
            engine=setup.clipping,
        )
