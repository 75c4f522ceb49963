"""Many copies of one federation at once: the same training, with other records in one silo of each copy.

The loop's vector is the copies' models end to end: strategies and averages work coordinate by coordinate, so the loop
is the run's own. Silo by silo all copies train side by side, each through doors and accounts of its own, marked TEST.
What cannot train side by side is trained one copy after another, by the run's own setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Progress
from sordino.core import seeds
from sordino.core.types import NoiseAt, RoundPlan, Unit, Vector
from sordino.experiment import asynchrony, config
from sordino.experiment.audits._again import again
from sordino.experiment.build import Built
from sordino.experiment.settings import setting_of
from sordino.experiment.settings.record_at_silo import steps_of
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.experiment.settings.training import plain_steps
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, Reservation

if TYPE_CHECKING:
    from sordino.local.cohort.buckets import Member
    from sordino.local.cohort.twin import Twin

ENTRIES = 2**24
"""Parameters of all copies of a loop: 64 MiB for each copy of them in float32."""


def trained(
    built: Built, client: int, rows: Sequence[NDArray[np.int64]], units: int, seed: int, progress: Progress
) -> NDArray[np.float32]:
    """The final models of the run's own training, repeated on other records of one silo.

    Args:
        built: The run's parts; its population may hold any records of the silo.
        client: The silo.
        rows: Which records it has in each copy, as rows of the examples.
        units: How many it is said to have in every copy: the public divisor.
        seed: Of noise, batches and shuffles.
        progress: Told after every round, or every copy.

    Returns:
        Shape (copies, d).
    """
    population = built.setup.population
    said = (*population.units[:client], units, *population.units[client + 1 :])
    setup = replace(built.setup, population=replace(population, units=said))
    twin = _twin(setup)
    models: list[NDArray[np.float32]] = []
    if twin is not None:
        room, built = max(1, ENTRIES // setup.layout.size), replace(built, setup=setup)
        for k in range(0, len(rows), room):
            models.extend(_side_by_side(built, twin, client, rows[k : k + room], seed + k, progress))
        return np.stack(models)
    for k, own in enumerate(rows):
        progress(f"training {k + 1} of {len(rows)}")
        models.append(_alone(replace(built, setup=_holding(setup, client, own)), seed + k))
    return np.stack(models)


def _twin(setup: Setup) -> Twin | None:
    """The model for many copies at once, for the settings that have one."""
    from sordino.local.clipping._engine import Unsupported
    from sordino.local.cohort.twin import Twin
    from sordino.local.losses import cross_entropy

    privacy, local = setup.experiment.privacy, setup.experiment.local
    steps = privacy.unit is Unit.RECORD and privacy.noise_at is NoiseAt.SILO and local.method == "gradient"
    if setup.description is not None or not (steps or privacy.non_private):
        return None
    if asynchrony.schedule(setup.experiment) is not None:  # clients start from models of different rounds
        return None
    try:
        return Twin(setup.module, cross_entropy)
    except Unsupported:
        return None


def _holding(setup: Setup, client: int, rows: NDArray[np.int64]) -> Setup:
    train = setup.population.train
    held = replace(train, rows=(*train.rows[:client], rows, *train.rows[client + 1 :]))
    return replace(setup, population=replace(setup.population, train=held))


def _alone(built: Built, seed: int) -> Vector:
    """One copy, by the run's own setting."""
    plan = replace(built.setup.plan, experiment=config.changed(built.setup.experiment, seed=seed))
    setup = replace(built.setup, plan=plan, source=SeededNoise(seed))
    return again(replace(built, setup=setup), built.start, setting_of(setup), plan)


def _side_by_side(
    built: Built, twin: Twin, client: int, rows: Sequence[NDArray[np.int64]], seed: int, progress: Progress
) -> NDArray[np.float32]:
    """All copies in one loop."""
    plan, copies = built.setup.plan, len(rows)
    setup = replace(built.setup, source=SeededNoise(seed))
    members = tuple(_holding(setup, client, own).members([client])[0] for own in rows)
    accounts = tuple(replace(a, name=_name(a.name, k)) for k in range(copies) for a in plan.accounts)
    setting = Copies(setup, twin, client, members, seed)
    start = np.tile(built.start, copies)
    models = again(
        replace(built, setup=setup),
        start,
        setting,
        replace(plan, accounts=accounts),
        lambda state: progress(f"{copies} trainings side by side: round {state.round} of {plan.experiment.count}"),
    )
    return models.reshape(copies, -1)


def _name(account: str, copy: int) -> str:
    return f"{account}, copy {copy}"


@dataclass(frozen=True)
class Copies(Setting):
    """Records at silos, or nobody, protected in every copy as in the run; a round's vector is all copies' in a row.

    Args:
        setup: Of one copy.
        twin: The model for many copies.
        client: The silo whose records differ.
        members: Its records in each copy.
        seed: Of the shuffles.
    """

    setup: Setup
    twin: Twin
    client: int
    members: tuple[Member, ...]
    seed: int

    def lines(self, cohort: Cohort) -> list[Line]:
        lines = self.setup.lines(cohort, self.setup.experiment.local.steps) if self.setup.plan.private else []
        return [replace(line, account=_name(line.account, k)) for k in range(len(self.members)) for line in lines]

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        setup, starts, private = self.setup, model.reshape(len(self.members), -1), self.setup.plan.private
        totals = np.zeros_like(starts)
        for client in map(int, cohort):
            weight = np.float32(setup.plan.weights[client])
            changes = self._private(client, starts, paid(reservation)) if private else self._plain(client, starts, plan)
            for k, change in changes:
                totals[k] += weight * change
        share = plan.expected / len(setup.population)
        if not private:
            share = max(sum(setup.plan.weights[int(client)] for client in cohort), 1e-12)
        return (totals / np.float32(share)).ravel()

    def _members(self, client: int) -> Sequence[Member]:
        if client == self.client:
            return self.members
        return self.setup.members([client]) * len(self.members)

    def _private(self, client: int, starts: Vector, reservation: Reservation) -> Iterator[tuple[int, Vector]]:
        from sordino.local.cohort.private import Silo, train_private_many

        setup, steps, account = self.setup, steps_of(self.setup, client), self.setup.account(client)
        silos = []
        for k, member in enumerate(self._members(client)):
            door = setup.door([replace(account, name=_name(account.name, k))], reservation)
            silos.append(Silo(member, steps, door.ahead(steps.steps)))
        return train_private_many(self.twin, silos, starts, setup.objective, setup.source)

    def _plain(self, client: int, starts: Vector, plan: RoundPlan) -> Iterator[tuple[int, Vector]]:
        from sordino.local.cohort.plain import train_plain_many

        members = self._members(client)
        steps = plain_steps(self.setup, round(float(np.mean([member.records for member in members]))))

        def rng(copy: int) -> np.random.Generator:
            return seeds.stream(self.seed, "copies' batches", plan.round, client, copy)

        return train_plain_many(self.twin, members, starts, steps, rng, self.setup.objective)
