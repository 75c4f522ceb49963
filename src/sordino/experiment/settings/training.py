"""Plain local training of one client, for settings that protect the client as a whole (or nobody)."""

from __future__ import annotations

from sordino.core import seeds
from sordino.core.types import RoundPlan, Update, Vector
from sordino.experiment.settings.setup import Setup
from sordino.local.trainers.plans import PlainSteps
from sordino.local.trainers.sgd import train_plain


def plain_change(setup: Setup, client: int, start: Vector, plan: RoundPlan) -> Update:
    """A client's raw change after its local steps. Private: it may leave only through a door."""
    silo, local = setup.population.train.silo(client), setup.experiment.local
    rng = seeds.stream(setup.experiment.seed, "local batches", plan.round, client)
    vector = train_plain(
        setup.module,
        setup.layout,
        (silo.x, silo.y, silo.user),
        start,
        PlainSteps(
            lr=local.step_size,
            epochs=local.epochs,
            steps=None if local.epochs else local.steps,
            batch_size=local.batch_size,
            momentum=local.momentum,
        ),
        rng,
        setup.objective,
    )
    return Update(vector=vector, records=len(silo.y))
