"""Zeroth-order steps inside silos: a few noised numbers per step are all that a silo sends and receives."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.core.errors import PrivacyError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.local.trainers.plans import ZerothSteps
from sordino.local.trainers.zeroth import Directions, replay, train_zeroth
from sordino.privacy.noise import apart
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class ZerothAtSilo(Setting):
    """Every step is a release of K slopes along public directions; averaging and replaying them is post-processing.

    Each silo follows its own noised path through a round and sends steps × K numbers. Their weighted mean, expanded
    once, is the weighted mean of the silos' changes, because a change is linear in its slopes.

    Guarantee: each silo's account bounds what its own records risk against everybody else together.
    """

    setup: Setup

    def wire_size(self) -> int:
        return self.setup.experiment.local.steps * self.setup.experiment.local.directions

    def lines(self, cohort: Cohort) -> list[Line]:
        return self.setup.lines(cohort, self.setup.experiment.local.steps)

    def sent(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation | None) -> Update:
        return Update(vector=self.setup.plan.weights[client] * self._slopes(client, start, plan, paid(reservation)))

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        setup = self.setup
        local = setup.experiment.local

        def work(client: int, start: Vector, announced: RoundPlan) -> Update:
            return self.sent(client, start, announced, reservation)

        updates = setup.engine.run(plan, cohort, model, work)
        return setup.mean(updates, local.steps * local.directions, plan)

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Setting]:
        local = self.setup.experiment.local
        slopes = released.reshape(local.steps, local.directions)
        return replay(slopes, zeroth_steps_of(self.setup, 0), self._directions(plan)), self

    def _slopes(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation) -> Vector:
        setup, silo = self.setup, self.setup.population.train.silo(client)
        return train_zeroth(
            setup.module,
            setup.layout,
            (silo.x, silo.y, silo.user),
            start,
            zeroth_steps_of(setup, client),
            self._directions(plan),
            release=setup.door([setup.account(client)], reservation),
            source=apart(setup.source, f"{plan.round}/{client}"),
        ).ravel()

    def _directions(self, plan: RoundPlan) -> Directions:
        return Directions(self.setup.experiment.seed, plan.round, self.setup.layout.size)


def zeroth_steps_of(setup: Setup, client: int) -> ZerothSteps:
    """A client's local steps, with the public divisor: expected units per batch, never the realised number."""
    local = setup.experiment.local
    if local.clip is None:
        raise PrivacyError.about("local", "has no clip norm, so nothing bounds a record", "set local.clip")
    return ZerothSteps(
        steps=local.steps,
        lr=local.step_size,
        clip=local.clip,
        batch="full" if local.rate == 1 else local.rate,
        expected_batch=setup.population.units[client] * local.rate,
        directions=local.directions,
        radius=local.radius,
        norm="l1" if setup.experiment.privacy.mechanism == "laplace" else "l2",
        unit=setup.unit,
        momentum=local.momentum,
        micro_batch=local.micro_batch,
    )
