"""Our protection of whole clients: stages, sum, door. As in `experiment.settings`, with updates that are given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sordino import __version__
from sordino.audit.conformance.adapters._exits import Exits
from sordino.audit.conformance.adapters._flat import flattened, module_of, named
from sordino.audit.conformance.protocol import Declared, Tensors
from sordino.core.types import Adjacency, RoundPlan, Unit, Update, Vector
from sordino.federation.mechanisms import mechanisms
from sordino.federation.pipeline import Pipeline
from sordino.local.layout import Layout
from sordino.privacy import calibration, events
from sordino.privacy.noise import NoiseSource


@dataclass(frozen=True)
class Clients:
    """A coordinator that noises the clipped sum, or a client that noises its own update.

    Args:
        name: In the table.
        stages: As in an experiment file.
        clip: The norm that they end in.
        noise_multiplier: Over the clip.
        mechanism: The law.
        local: Noise at the client, for one client: any two of its updates are alike.
        epsilon: Where the noise was set from a budget.
        delta: With it.
    """

    name: str
    stages: tuple[dict[str, Any], ...]
    clip: float = 1.0
    noise_multiplier: float = 1.0
    mechanism: str = "gaussian"
    local: bool = False
    cohort: int = 20
    epsilon: float | None = None
    delta: float | None = None
    exits: Exits = field(default_factory=Exits)

    def claim(self) -> Declared:
        return Declared(
            by=f"Sordino {__version__}, stages {[next(iter(stage)) for stage in self.stages]}",
            # Replacing an update moves it by twice the clip.
            noise_multiplier=self.noise_multiplier / (2 if self.local else 1),
            clip=self.clip,
            cohort=1 if self.local else self.cohort,
            adjacency=Adjacency.REPLACE_ONE if self.local else Adjacency.ADD_REMOVE,
            law="laplace" if self.mechanism == "laplace" else "gaussian",
            norm=1 if self.mechanism == "laplace" else 2,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        return self._round(model, updates, weights, self.exits.source(seed), self._pipeline())[0]

    def series(self, model: Tensors, updates: Sequence[Tensors], count: int, seed: int) -> list[Tensors]:
        source, weights = self.exits.source(seed), [1.0] * len(updates)
        return [self._round(model, updates, weights, source, self._pipeline())[0] for _ in range(count)]

    def _pipeline(self) -> Pipeline:
        return Pipeline.from_tables(self.stages)

    def _round(
        self,
        model: Tensors,
        updates: Sequence[Tensors],
        weights: Sequence[float],
        source: NoiseSource,
        pipeline: Pipeline,
    ) -> tuple[Tensors, Pipeline]:
        layout = Layout.of(module_of(model))
        plan = RoundPlan(0, 1, layout.groups, float(self.claim().cohort))
        sent = (
            pipeline.client(Update(flattened(layout, update), records=math.ceil(weight)), plan)
            for update, weight in zip(updates, weights, strict=True)
        )
        total = pipeline.total(sent, plan, layout.size, Unit.CLIENT)
        noise = mechanisms.build(self.mechanism, {"noise_multiplier": self.noise_multiplier})
        released: Vector = self.exits.door(noise, Unit.CLIENT, source)(total)
        mean, following = pipeline.settle(released, plan)
        return named(layout, mean / plan.expected), following


@dataclass(frozen=True)
class AdaptiveClients(Clients):
    """Clients whose clip follows their norms."""

    def with_cohort(self, count: int) -> AdaptiveClients:
        return replace(self, cohort=count)

    def norms(self, model: Tensors, updates: Sequence[Tensors], rounds: int, seed: int) -> list[float]:
        pipeline, source = self._pipeline(), self.exits.source(seed)
        norms = [self._norm(pipeline)]
        for _ in range(rounds):
            _, pipeline = self._round(model, updates, [1.0] * len(updates), source, pipeline)
            norms.append(self._norm(pipeline))
        return norms

    def _norm(self, pipeline: Pipeline) -> float:
        return float(pipeline.to_tables()[-1]["adaptive_clip"]["norm"])


@dataclass(frozen=True)
class LocalClients(Clients):
    """Clients that noise their own update, calibrated for one message."""

    def with_budget(self, epsilon: float, delta: float) -> LocalClients:
        z = calibration.calibrate_noise(
            lambda z: [(events.gaussian(z), 1)], epsilon, delta, adjacency=Adjacency.REPLACE_ONE
        )
        return replace(self, noise_multiplier=z, epsilon=epsilon, delta=delta, exits=Exits())
