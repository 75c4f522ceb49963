"""Records protected by one noise on the summed gradients of the cohort: needs secure summation (played here)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.core.types import RoundPlan, Vector
from sordino.experiment.settings.record_at_silo import steps_of
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.experiment.settings.shared_sum import SharedSum
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
        return stepped(setup, released, cohort)

    def _sum(self, client: int, model: Vector) -> BoundedSum:
        return gradient_of(self.setup, client, model)


@dataclass(frozen=True)
class RecordAtSharedSum(SharedSum):
    """The same, with noise that the silos draw in shares and a sum that only all of them open: one step a round."""

    def total(self, client: int, start: Vector, plan: RoundPlan) -> BoundedSum:
        del plan
        return gradient_of(self.setup, client, start)

    def opened(self, total: Vector, cohort: Cohort) -> Vector:
        return stepped(self.setup, total, cohort)


def stepped(setup: Setup, released: Vector, cohort: Cohort) -> Vector:
    """The step along a released sum, over the expected records of all silos: also of those that were lost."""
    records = sum(steps_of(setup, int(client)).expected_batch for client in cohort)
    return np.asarray((-setup.experiment.local.step_size / records) * released, dtype=np.float32)


def gradient_of(setup: Setup, client: int, model: Vector) -> BoundedSum:
    """A silo's clipped gradient sum at a model."""
    silo, steps = setup.population.train.silo(client), steps_of(setup, client)
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
