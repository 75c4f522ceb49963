"""Single messages of a silo over chosen records, by the run's own trainer, clip and exit.

records ──one step of the run's training──► the vector that leaves the silo          under a TEST rehearsal
          without any protection · clipped only · with noise
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, cast

from sordino.audit.subjects._books import ACCOUNT, reserved
from sordino.core import seeds
from sordino.core.types import RoundPlan, Unit, Update, Vector
from sordino.experiment import accounts as paying
from sordino.experiment import config
from sordino.experiment.guarantee import AccountPlan
from sordino.experiment.settings import Setup
from sordino.experiment.settings.record_at_silo import steps_of
from sordino.local.trainers.plans import PlainSteps
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise

if TYPE_CHECKING:
    from sordino.local.trainers._data import Data

CLEAR = 0.01
"""Noise multiplier of the two messages whose difference is one without noise."""


@dataclass(frozen=True, eq=False)
class Wire:
    """One silo's side of one round of a single step, over whatever records it is given.

    Args:
        setup: The run's parts; its layout is of the parameters that the silo trains in that round.
        client: The silo.
        at: Those parameters. Shape (d,).
        seed: Of the noise.
    """

    setup: Setup
    client: int
    at: Vector
    seed: int

    @property
    def clip(self) -> float:
        """The most that a unit moves what is noised, in units of the noise multiplier."""
        if self._whole:
            bound = self.setup.pipeline().bound()
            return cast("float", bound.l1 if self._laplace else bound.l2)
        return steps_of(self.setup, self.client).clip

    def scale(self, records: int, *, private: bool) -> float:
        """What a message is multiplied by to estimate the mean gradient."""
        lr = self.setup.experiment.local.step_size
        if self._whole or not private:
            return -1.0 / lr
        return -steps_of(self.setup, self.client).expected_batch / (lr * records)

    def std(self, noise_multiplier: float, records: int) -> float:
        """Standard deviation of the noise on each number of that estimate."""
        spread = 2.0**0.5 if self._laplace else 1.0
        unit = self.setup.experiment.local.step_size if self._whole else records
        return spread * noise_multiplier * self.clip / unit

    def plain(self, data: Data) -> Vector:
        """What is sent without any protection."""
        from sordino.local.trainers.sgd import train_plain

        setup, rng = self.setup, seeds.stream(self.seed, "message")
        steps = PlainSteps(lr=setup.experiment.local.step_size, steps=1)
        return train_plain(setup.module, setup.layout, data, self.at, steps, rng, setup.objective)

    def clipped(self, batches: Sequence[Data]) -> list[Vector]:
        """What is sent with clipping and no noise.

        No exit lets that pass. Here the noise is seeded: sent once more over no records, it can be subtracted.
        """
        nothing = [(x[:0], y[:0], None if user is None else user[:0]) for x, y, user in batches]
        pairs = zip(self.noised(batches, CLEAR), self.noised(nothing, CLEAR), strict=True)
        return [sent - noise for sent, noise in pairs]

    def noised(self, batches: Sequence[Data], noise_multiplier: float) -> list[Vector]:
        """What is sent with clipping and noise, for each batch in a round of its own."""
        setup = self.setup
        mechanism, source = paying.mechanism_of(setup.experiment, noise_multiplier), SeededNoise(self.seed)
        charged = mechanism.event()  # everybody joins, so nothing is amplified
        door = Door(mechanism, charged, (ACCOUNT,), reserved(charged, len(batches), setup.unit), source)
        return [self._update(data, door) if self._whole else self._step(data, door, source) for data in batches]

    def sent(self, data: Data) -> Vector:
        """What a client sends whose noise is added by a trusted coordinator."""
        announced = self._announced()
        return self.setup.pipeline().client(self._raw(data), announced).vector[: self.setup.layout.size]

    def _step(self, data: Data, door: Door, source: SeededNoise) -> Vector:
        from sordino.local.trainers.dpsgd import train_private

        setup = self.setup
        return train_private(
            setup.module,
            setup.layout,
            data,
            self.at,
            steps_of(setup, self.client),
            release=door,
            source=source,
            objective=setup.objective,
            engine=setup.clipping,
        )

    def _update(self, data: Data, door: Door) -> Vector:
        setup, announced, pipeline = self.setup, self._announced(), self.setup.pipeline()
        update = pipeline.client(self._raw(data), announced)
        total = pipeline.total(iter([update]), announced, setup.layout.size, setup.unit)
        return door(total)[: setup.layout.size]

    def _raw(self, data: Data) -> Update:
        return Update(vector=self.plain(data), records=len(data[1]))

    def _announced(self) -> RoundPlan:
        return RoundPlan(0, self.setup.experiment.count, self.setup.layout.groups, 1.0)

    @property
    def _laplace(self) -> bool:
        return self.setup.experiment.privacy.mechanism == "laplace"

    @property
    def _whole(self) -> bool:
        return self.setup.unit is Unit.CLIENT


def single_step(setup: Setup) -> Setup:
    """The run's parts with rounds of one step, which every record of the silo joins."""
    experiment = config.changed(
        setup.experiment, groups={}, local__steps=1, local__batch="full", local__momentum=0.0, local__epochs=None
    )
    if experiment.local.clip is None and experiment.privacy.unit is not Unit.CLIENT:
        experiment = config.changed(experiment, local__clip=1.0)
    payer = AccountPlan(ACCOUNT, None, 1, inf, 1.0, 1, (), None)
    return replace(setup, plan=replace(setup.plan, experiment=experiment, accounts=(payer,)))
