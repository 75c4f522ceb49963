"""Our federated aggregation as a black box: real stages, sum, sampler, door and noise; canaries are whole clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from sordino.audit.sensor.world import Declared, Floats, Sampling, World
from sordino.core.registry import single
from sordino.core.seeds import stream
from sordino.core.types import Group, NoiseAt, RoundPlan, Unit, Update
from sordino.federation.mechanisms import mechanisms
from sordino.federation.pipeline import Pipeline
from sordino.federation.sampling import Sampler, samplers
from sordino.ledger.rehearsal import rehearsal
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import NoiseSource, SystemNoise
from sordino.privacy.permits import Line

LAWS: Mapping[str, Sampling] = {
    "poisson": "poisson",
    "truncated_poisson": "truncated",
    "fixed_size": "fixed",
    "all": "all",
    "round_robin": "turns",
    "buffered": "arrivals",
}
"""What a sampler's cohorts look like to an observer."""

LARGE = 10**6
"""Records of a client with full weight."""


@dataclass(frozen=True)
class Rounds:
    """Clipped updates of canary clients, summed and noised.

    Args:
        stages: The `[[stages]]` tables.
        sampling: The `[sampling]` table, for as many clients as there are canaries.
        mechanism: The law of the noise. Whole-number noise is drawn in steps so fine that it passes for Gaussian.
        noise_at: `coordinator`, or `silo`: then every client's message is a release of its own.
        replies: Chance that a client of the cohort answers.
        source: Makes the noise source of a process, as a run would.
    """

    stages: tuple[dict[str, Any], ...] = ({"clip": {"norm": 1.0}},)
    sampling: dict[str, Any] = field(default_factory=lambda: {"poisson": {"rate": 0.2}})
    mechanism: Literal["gaussian", "laplace", "skellam", "discrete_gaussian"] = "gaussian"
    noise_at: NoiseAt = NoiseAt.COORDINATOR
    replies: float = 1.0
    source: Callable[[], NoiseSource] = SystemNoise

    @cached_property
    def declared(self) -> Declared:
        name, options = single("sampling", self.sampling)
        law: Literal["gaussian", "laplace"] = "laplace" if self.mechanism == "laplace" else "gaussian"
        if self.noise_at is NoiseAt.SILO:
            return Declared("each alone", (1.0,), noise=law)
        size = options.get("size", options.get("cap"))
        rate = options.get("rate", 1.0)
        return Declared(LAWS[name], (rate * self.replies,), noise=law, size=size)

    def iterates(self, world: World, steps: int, noise_multiplier: float, seed: int) -> Floats:
        return self._run(world, steps, noise_multiplier, f"{seed}/{noise_multiplier}", self.source())

    def relatives(
        self, world: World, steps: int, noise_multiplier: float, seed: int
    ) -> dict[str, tuple[Floats, Floats]]:
        source = self.source()
        first = self._run(world, steps, noise_multiplier, f"{seed}/0", source)
        return {"restart": (first, self._run(world, steps, noise_multiplier, f"{seed}/1", self.source()))}

    def _run(self, world: World, steps: int, noise_multiplier: float, txid: str, source: NoiseSource) -> Floats:
        pipeline, sampler = Pipeline.from_tables(self.stages), self._sampler()
        groups = tuple(Group(str(g), g * world.rows, (g + 1) * world.rows) for g in range(world.groups))
        door = self._door(steps, noise_multiplier, world, sampler, txid, source)
        found = np.zeros((steps, world.groups, world.rows))
        for t in range(steps):
            plan = RoundPlan(t, steps, groups, sampler.expected(world.canaries))
            cohort = self._cohort(sampler, world, t, source)
            bound = pipeline.bound()
            l2 = cast("float", bound.l2)
            size = cast("float", bound.l1) if self.mechanism == "laplace" else l2
            total = self._total(pipeline, plan, world, cohort, l2)
            released, pipeline = pipeline.settle(door(total), plan)
            found[t] = released.reshape(world.groups, world.rows) / size
        return found

    def _total(
        self, pipeline: Pipeline, plan: RoundPlan, world: World, cohort: NDArray[np.int64], bound: float
    ) -> BoundedSum:
        def updates() -> Iterator[Update]:
            for client in cohort:
                vector = np.zeros((world.groups, world.rows), np.float32)
                with np.errstate(over="ignore"):
                    vector[:, world.canary_rows[client]] = world.gains[client] * bound / world.groups**0.5
                records = self._records(int(client)) if world.loud[client] else LARGE
                yield pipeline.client(Update(vector.ravel(), records=records), plan)

        return pipeline.total(updates(), plan, world.groups * world.rows, Unit.CLIENT)

    def _cohort(self, sampler: Sampler, world: World, t: int, source: NoiseSource) -> NDArray[np.int64]:
        if self.noise_at is NoiseAt.SILO:
            return np.array([t % world.canaries])
        cohort = sampler.draw(world.canaries, t, source)
        answers = stream(t, "replies", world.canaries).random(cohort.size) < self.replies
        return cohort[answers] if self.replies < 1 else cohort

    def _records(self, client: int) -> int:
        """Clients of many sizes, where the clip comes after the weight: then all count alike."""
        return 25 * 4 ** (client % 4) if self.stages[0].keys() == {"weight"} else LARGE

    def _sampler(self) -> Sampler:
        name, options = single("sampling", self.sampling)
        return samplers.build(name, options, f"sampling.{name}")

    def _door(
        self, steps: int, noise_multiplier: float, world: World, sampler: Sampler, txid: str, source: NoiseSource
    ) -> Door:
        mechanism = mechanisms.build(self.mechanism, {"noise_multiplier": noise_multiplier})
        at_silo = self.noise_at is NoiseAt.SILO
        charged = mechanism.event() if at_silo else sampler.event(mechanism.event(), world.canaries)
        line = Line("sensor", Unit.CLIENT, events.key(charged), steps)
        return Door(mechanism, charged, ("sensor",), rehearsal(txid, [line]), source)
