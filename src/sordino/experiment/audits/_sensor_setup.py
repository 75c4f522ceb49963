"""A run's own moving parts over sensor rows instead of its model, and canaries instead of its data.

Kept: unit, place of noise, setting, clipping rule and engine, clip norm, stages, noise law, sampler, people and groups,
where noise comes from. Changed: model, records, and numbers that would hide what is looked for (`_changed`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.audit.sensor.world import Floats, World
from sordino.core.registry import single
from sordino.core.types import NoiseAt, RoundPlan, Unit, Vector
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.experiment import accounts as paying
from sordino.experiment import config, encrypting, summing
from sordino.experiment.build import source_of
from sordino.experiment.config import Experiment
from sordino.experiment.guarantee import AccountPlan
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.settings import Setup
from sordino.federation.engines import Summing
from sordino.federation.engines.inprocess import InProcess
from sordino.local.models import InputSpec

RATE = 0.2
"""Units join at least this often: who comes once in a thousand steps is not seen in twenty."""

SIZE = 2
"""Clients of a cohort of fixed size, and the cap of one that is cut."""

MANY = 10**6
"""How often a client of asynchronous rounds may take part: no run of the sensor is that long."""

SILOS = 2
"""Silos that protect records; with noise at the silo both hold all canaries, at the sum half of them each."""

FINE_BITS = 30
"""Of whole numbers in a secure sum: so fine that rounding does not show beside the noise."""

WEIGHTS_MOVE = 1e-9
"""How far models may move, times the clip: every canary's gradient stays what it is."""


@dataclass(frozen=True)
class Kind:
    """What a run protects, and where, as far as the sensor cares."""

    unit: Unit
    noise_at: NoiseAt
    records: int
    groups: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> Kind:
        """The kind of an experiment."""
        whole = experiment.privacy.unit is Unit.USER and experiment.local.records_per_person is None
        return cls(
            experiment.privacy.unit, experiment.privacy.noise_at, 2 if whole else 1, tuple(sorted(experiment.groups))
        )

    @property
    def clients(self) -> bool:
        """Whether canaries are whole clients."""
        return self.unit is Unit.CLIENT

    @property
    def halves(self) -> bool:
        """Whether each silo holds half of the canaries."""
        return not self.clients and self.noise_at is NoiseAt.SUM


def rate_of(experiment: Experiment, group: str | None = None) -> float:
    """At which rate a canary record joins."""
    rate = experiment.local.rate if group is None else paying.terms_of(experiment, group)[0]
    return max(rate, RATE)


def sampling_of(experiment: Experiment) -> dict[str, Any]:
    """The run's sampler at the sensor's size; all take part where noise is at the silo or the sum, and hides nobody."""
    if experiment.privacy.unit is not Unit.CLIENT or experiment.privacy.noise_at is NoiseAt.SILO:
        return {"all": {}}
    name, options = single("sampling", experiment.sampling)
    sized: dict[str, Any] = {key: value for key, value in (("size", SIZE), ("cap", SIZE)) if key in options}
    if "rate" in options:
        sized["rate"] = max(float(options["rate"]), RATE)
    if name == "buffered":  # all canaries come often enough to be seen, and count alike however old their model is
        return {name: options | sized | {"per_client": MANY, "staleness": "constant"}}
    return {name: sized}


def stages_of(experiment: Experiment) -> tuple[dict[str, Any], ...]:
    """The run's stages, where a client of one record has full weight."""
    return tuple({"weight": {"cap": 1}} if stage.keys() == {"weight"} else stage for stage in experiment.stages)


def changed(experiment: Experiment, noise_multiplier: float, units: float, rounds: int, steps: int) -> Experiment:
    """The run's experiment at the sensor's scale.

    Args:
        experiment: As planned.
        noise_multiplier: Of every account.
        units: Expected contributors of a step.
        rounds: Rounds.
        steps: Local steps, where they are releases.
    """
    groups = {
        name: replace(group, rate=rate_of(experiment, name), share=paying.terms_of(experiment, name)[1])
        for name, group in experiment.groups.items()
    }
    changes: dict[str, Any] = {
        "rounds": rounds,
        "average": 0.0,
        "sampling": sampling_of(experiment),
        "stages": stages_of(experiment),
        "groups": groups,
        "silos": {},
        "weights": "uniform",
    }
    local, clip = experiment.local, experiment.local.clip
    if experiment.privacy.unit is not Unit.CLIENT and clip is not None:
        lr = max(1e-12, WEIGHTS_MOVE * units / clip / (1 + noise_multiplier))
        changes |= {
            "local__steps": steps,
            "local__lr": lr,
            "local__noise_walk": None,
            "local__batch": rate_of(experiment),
        }
        changes["strategy"] = {"fedavg": {}}
    else:
        changes["strategy"] = {"fedavg": {"lr": server_lr(local.step_size, clip_of_clients(experiment))}}
        # How far a client trains has no part in how its update is bounded.
        changes |= {"local__epochs": None, "local__steps": min(local.steps, 2)}
    made = config.changed(experiment, **{key: value for key, value in changes.items() if "__" not in key})
    return replace(made, local=replace(local, **{k[7:]: v for k, v in changes.items() if k.startswith("local__")}))


def server_lr(local_lr: float, clip: float) -> float:
    """A server step so small that every client trains from the same model."""
    return 1e-13 * min(1.0, local_lr) / max(1.0, clip**2)


def clip_of_clients(experiment: Experiment) -> float:
    """How far a client can move the first round's sum, in L2."""
    from sordino.federation.pipeline import Pipeline

    bound = Pipeline.from_tables(stages_of(experiment)).bound()
    return float(bound.l2 or 1.0)


def setup_of(
    setup: Setup, experiment: Experiment, world: World, lengths: Floats, noise_multipliers: tuple[float, ...]
) -> Setup:
    """The run's setup over a world.

    Args:
        setup: The run's.
        experiment: At the sensor's scale.
        world: The canaries.
        lengths: Of each canary's gradient.
        noise_multipliers: Of the silos' accounts, in turns.
    """
    from sordino.audit.sensor.rows import SensorRows
    from sordino.local.clipping.auto import Auto
    from sordino.local.layout import Layout
    from sordino.local.losses import cross_entropy

    kind = Kind.of(experiment)
    population = population_of(kind, world, lengths)
    experiment = _summed(experiment, population, world.rows * world.groups)
    plan = replace(
        setup.plan,
        experiment=experiment,
        accounts=accounts_of(experiment, population, noise_multipliers),
        weights=(1 / len(population),) * len(population),
        parameters=world.rows * world.groups,
        clients=population.names,
    )
    module = SensorRows(world.rows, world.groups)
    if isinstance(setup.clipping, Auto):
        setup.clipping.serve_alike(setup.module, module)
    return replace(
        setup,
        plan=plan,
        population=population,
        module=module,
        layout=Layout.of(module),
        # A seeded run's own source must not be asked for coins that are the run's.
        source=source_of(experiment) if setup.source.test else setup.source,
        stack=None if setup.stack is None else type(setup.stack)(module, cross_entropy),  # type: ignore[call-arg]
        twin=None if setup.twin is None else type(setup.twin)(module, cross_entropy),
        description=None,
        engine=encrypting.bare(setup.engine) if experiment.secure_sum is None else Unmasked(),
    )


@dataclass(frozen=True)
class Unmasked(InProcess):
    """Sums without masks, which have no part in what is released: tests of the secure summation look at those."""

    def summed(self, plan: RoundPlan, sums: Summing, model: Vector) -> NDArray[np.uint64]:
        del plan
        total = np.zeros(sums.terms.size, np.uint64)

        def add(words: NDArray[np.uint64]) -> None:
            np.add(total, words, out=total)

        for client in sums.terms.members:
            sums.share(client, model.copy()).masked(add)
        return total & np.uint64(2**sums.terms.bits - 1)


def _summed(experiment: Experiment, population: Population, size: int) -> Experiment:
    """A secure sum at the sensor's size: nobody is lost, and numbers are so fine that rounding does not show."""
    if experiment.secure_sum is None:
        return experiment
    sized = replace(experiment.secure_sum, bits=FINE_BITS, minimum=None, colluding=0.0)
    return summing.found(replace(experiment, secure_sum=sized), population, size)


def population_of(kind: Kind, world: World, lengths: Floats) -> Population:
    """Canaries as records of silos, or as clients of one record."""
    from sordino.audit.sensor.rows import records

    x, y = records(world, lengths)
    # One record a canary, or two; in every silo, where silos do not share the canaries.
    times = 1 if kind.clients or kind.halves else SILOS
    canary = np.tile(np.repeat(np.arange(len(y)), kind.records), times)
    groups = np.resize(np.array(kind.groups), len(y))[canary] if kind.groups else None
    rows: tuple[NDArray[np.int64], ...]
    if kind.clients:
        rows = tuple(np.array([i]) for i in canary)
    elif kind.halves:
        rows = tuple(np.flatnonzero(canary % SILOS == i) for i in range(SILOS))
    else:
        rows = tuple(np.split(np.arange(len(canary)), SILOS))
    examples = Examples(x[canary], y[canary], classes=2, user=canary, group=groups, public=True, source="sensor rows")
    train = FederatedData(examples, tuple(f"sensor-{i}" for i in range(len(rows))), rows)
    units = tuple(1 if kind.clients else len(each) // kind.records for each in rows)
    return Population(train, train, units, InputSpec((world.rows,), classes=2), public=True, source="sensor rows")


def accounts_of(
    experiment: Experiment, population: Population, noise_multipliers: tuple[float, ...]
) -> tuple[AccountPlan, ...]:
    """Who pays in a rehearsal: nobody, under the names that the run's kind of accounts would have."""

    def one(name: str, client: int | None, group: str | None = None) -> AccountPlan:
        own = noise_multipliers[(client or 0) % len(noise_multipliers)]
        return AccountPlan(name, client, 1, math.inf, own, 0, (), None, group)

    if experiment.privacy.unit is Unit.CLIENT and not paying.sampler_of(experiment).public:
        return (one(paying.CLIENTS, None),)
    silos = list(enumerate(population.names))
    if experiment.groups:
        return tuple(one(f"{name}/{g}", i, g) for i, name in silos for g in sorted(experiment.groups))
    return tuple(one(name, i) for i, name in silos)


def releases_gradients(plan: Plan) -> bool:
    """Whether a plan's releases are sums of gradients or updates, in which sensor rows can be told apart."""
    return plan.private and plan.experiment.local.method == "gradient"
