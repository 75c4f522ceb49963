"""Records (or persons) protected by noise inside their silo: nobody outside needs to be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sordino.core.errors import PrivacyError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment import accounts as paying
from sordino.experiment.config import Experiment
from sordino.experiment.people import contributors
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import GroupSteps, PrivateSteps
from sordino.privacy.noise import NoiseSource, apart
from sordino.privacy.permits import Line, Reservation

if TYPE_CHECKING:
    from sordino.local.cohort.twin import Twin


@dataclass(frozen=True)
class RecordAtSilo(Setting):
    """Every DP-SGD step is a release of the silo; weighting, summing and stepping are post-processing.

    Guarantee: each silo's account bounds what its own records risk against everybody else together.
    """

    setup: Setup

    def lines(self, cohort: Cohort) -> list[Line]:
        return self.setup.lines(cohort, self.setup.experiment.local.steps)

    def sent(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation | None) -> Update:
        change = _change(self.setup, client, start, plan, paid(reservation))
        return Update(vector=self.setup.plan.weights[client] * change)

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        setup = self.setup

        def work(client: int, start: Vector, announced: RoundPlan) -> Update:
            return self.sent(client, start, announced, reservation)

        def together(clients: Cohort, start: Vector, announced: RoundPlan) -> Iterator[Update]:
            charge = paid(reservation)
            for client, change in _side_by_side(setup, [int(client) for client in clients], start, announced, charge):
                yield Update(vector=setup.plan.weights[client] * change)

        fits = setup.twin is not None and not setup.experiment.groups and setup.twin.layout == setup.layout
        updates = setup.engine.run(plan, cohort, model, work, together if fits else None)
        return setup.mean(updates, setup.layout.size, plan)


def _change(setup: Setup, client: int, start: Vector, plan: RoundPlan, reservation: Reservation) -> Vector:
    """A client's released change, of the parameters that are its to train."""
    silo, part = setup.population.train.silo(client), setup.part(plan.round, client)
    with setup.training(part, start) as (own, begin):
        change = train_private(
            own.module,
            own.layout,
            (silo.x, silo.y, silo.user),
            begin,
            steps_of(setup, client),
            release=setup.exit(client, reservation),
            source=coins_of(setup, client, plan),
            objective=setup.objective,
            engine=setup.clipping,
            labels=silo.group,
        )
    return part.spread(change)


def _side_by_side(
    setup: Setup, clients: Sequence[int], start: Vector, plan: RoundPlan, reservation: Reservation
) -> Iterator[tuple[int, Vector]]:
    """Every client's released change, in any order."""
    from sordino.local.cohort.private import Silo, train_private_many

    plans = [steps_of(setup, client) for client in clients]
    doors = [setup.door([setup.account(client)], reservation) for client in clients]
    # Permits are taken silo by silo, as if one trained after another: seeded noise is then the same.
    releases = [door.ahead(steps.steps) for door, steps in zip(doors, plans, strict=True)]
    coins = [coins_of(setup, client, plan) for client in clients]
    silos = [Silo(*parts) for parts in zip(setup.members(clients), plans, releases, coins, strict=True)]
    for i, change in train_private_many(cast("Twin", setup.twin), silos, start, setup.objective, setup.source):
        yield clients[i], change


def coins_of(setup: Setup, client: int, plan: RoundPlan) -> NoiseSource:
    """Where the coins of a client's batches come from: seeded ones are the client's and the round's own."""
    return apart(setup.source, f"{plan.round}/{client}")


def steps_of(setup: Setup, client: int) -> PrivateSteps:
    """A client's local steps, with the public divisor: expected parts of a batch, never the realised number."""
    local = setup.experiment.local
    if local.clip is None:
        raise PrivacyError.about("local", "has no clip norm, so nothing bounds a record", "set local.clip")
    return PrivateSteps(
        steps=local.steps,
        lr=local.step_size,
        clip=local.clip,
        batch="full" if local.rate == 1 else local.rate,
        expected_batch=contributors(setup.experiment, setup.population, client) * local.rate,
        engine=local.engine,
        clipping=local.clipping,
        unit=setup.unit,
        momentum=local.momentum,
        records_per_person=local.records_per_person,
        groups=tuple(_group(setup.experiment, account.group) for account in setup.accounts(client) if account.group),
    )


def _group(experiment: Experiment, name: str) -> GroupSteps:
    rate, share = paying.terms_of(experiment, name)
    return GroupSteps(name, "full" if rate == 1 else rate, share)
