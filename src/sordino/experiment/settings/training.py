"""Plain local training of clients, for settings that protect the client as a whole (or nobody)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from sordino.core import seeds
from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment.settings.setup import Cohort, Setup
from sordino.local.trainers.plans import PlainSteps
from sordino.local.trainers.sgd import train_plain

if TYPE_CHECKING:
    from sordino.local.cohort.plain import Stack


def plain_change(setup: Setup, client: int, start: Vector, plan: RoundPlan) -> Update:
    """A client's raw change after its local steps. Private: it may leave only through a door."""
    silo = setup.population.train.silo(client)
    rng = seeds.stream(setup.experiment.seed, "local batches", plan.round, client)
    data = (silo.x, silo.y, silo.user)
    vector = train_plain(setup.module, setup.layout, data, start, plain_steps(setup, len(silo)), rng, setup.objective)
    return Update(vector=vector, records=len(silo.y))


def plain_changes(setup: Setup, cohort: Cohort, start: Vector, plan: RoundPlan) -> Iterator[tuple[int, Update]]:
    """The same for several clients, side by side, in any order."""
    clients = [int(client) for client in cohort]
    from sordino.local.cohort.plain import train_plain_many

    members = setup.members(clients)

    def rng(i: int) -> np.random.Generator:
        return seeds.stream(setup.experiment.seed, "local batches", plan.round, clients[i])

    for i, change in train_plain_many(
        cast("Stack", setup.stack), members, start, plain_steps(setup, 0), rng, setup.objective
    ):
        yield clients[i], Update(vector=change, records=members[i].records)


def plain_steps(setup: Setup, records: int) -> PlainSteps:
    """A client's steps. Without privacy a rate means batches of the size that a private run expects."""
    local = setup.experiment.local
    expected = None if local.batch == "full" else max(1, round(local.rate * records))
    return PlainSteps(
        lr=local.step_size,
        epochs=local.epochs,
        steps=None if local.epochs else local.steps,
        batch_size=local.batch_size or expected,
        momentum=local.momentum,
    )
