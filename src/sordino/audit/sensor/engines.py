"""Our DP-SGD as a black box: the real trainer, clipping engine, door and noise, on sensor rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sordino.audit.sensor.rows import SensorRows, records
from sordino.audit.sensor.watching import Watching, sums
from sordino.audit.sensor.world import Declared, Floats, World
from sordino.core.types import Unit
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.ledger.rehearsal import rehearsal
from sordino.local.clipping import Rule, engines
from sordino.local.layout import Layout
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import NoiseSource, SystemNoise
from sordino.privacy.permits import Line

LR = 1e-9
"""Times the bound this moves weights so little that every canary's gradient stays as it is."""


@dataclass(frozen=True)
class Training:
    """`train_private` with one of our clipping engines.

    Args:
        engine: Its registered name.
        rule: How gradients are brought within the clip.
        rate: At which a unit joins a step.
        unit: `record`, or `user`: then each canary is a person with two records.
        clip: The bound.
        momentum: Of released gradients.
        source: Makes the noise source of a process, as a run would.
    """

    engine: str = "auto"
    rule: Rule = "flat"
    rate: float = 0.2
    unit: Unit = Unit.RECORD
    clip: float = 1.0
    momentum: float = 0.0
    source: Callable[[], NoiseSource] = SystemNoise

    @cached_property
    def declared(self) -> Declared:
        return Declared("all" if self.rate == 1 else "poisson", (self.rate,), costly=self.engine == "oracle")

    def iterates(self, world: World, steps: int, noise_multiplier: float, seed: int) -> Floats:
        return self._run(world, steps, noise_multiplier, f"{seed}/{noise_multiplier}", self.source())

    def relatives(
        self, world: World, steps: int, noise_multiplier: float, seed: int
    ) -> dict[str, tuple[Floats, Floats]]:
        source = self.source()
        first, other = (self._run(world, steps, noise_multiplier, f"{seed}/{i}", source) for i in range(2))
        later = self._run(world, steps, noise_multiplier, f"{seed}/2", self.source())
        return {"silos": (first, other), "restart": (first, later)}

    def _run(self, world: World, steps: int, noise_multiplier: float, txid: str, source: NoiseSource) -> Floats:
        model = SensorRows(world.rows, world.groups)
        layout, watching = Layout.of(model), Watching()
        start = layout.flatten(model)
        plan = PrivateSteps(
            steps=steps,
            lr=LR * max(1.0, world.canaries * self.rate) / self.clip,
            clip=self.clip,
            batch="full" if self.rate == 1 else self.rate,
            expected_batch=max(1.0, world.canaries * self.rate),
            clipping=self.rule,
            unit=self.unit,
            momentum=self.momentum,
        )
        x, y = records(world, world.lengths(self.clip))
        people = np.arange(len(y))
        if self.unit is Unit.USER:
            x, y, people = x.repeat(2, 0), y.repeat(2), people.repeat(2)
        change = train_private(
            model,
            layout,
            (x, y, people),
            start,
            plan,
            release=self._door(steps, noise_multiplier, txid, source),
            source=source,
            objective=watching,
            engine=engines.build(self.engine, {}),
        )
        path = sums([*watching.seen, start + change], plan.lr, plan.expected_batch, self.momentum)
        return path.reshape(steps, world.groups, world.rows) / self.clip

    def _door(self, steps: int, noise_multiplier: float, txid: str, source: NoiseSource) -> Door:
        mechanism = Gaussian(noise_multiplier)
        charged = events.poisson(self.rate, mechanism.event())
        line = Line("sensor", self.unit, events.key(charged), steps)
        return Door(mechanism, charged, ("sensor",), rehearsal(txid, [line]), source)
