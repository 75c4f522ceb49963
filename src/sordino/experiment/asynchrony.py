"""Asynchronous rounds in the loop: which models are kept for clients still at work, and what cannot run so.

round t ── who is in its buffer, and started in which round v ≤ t? (a public schedule)
        └─ each from its own model: train ──► clip ──► times s(t − v) ≤ 1 ──► sum, noise, divided by the buffer
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.registry import single
from sordino.core.types import NoiseAt, RoundPlan
from sordino.experiment import accounts as paying
from sordino.experiment.config import FIT, Experiment
from sordino.federation.engines import Engine
from sordino.federation.engines.delayed import Delayed, Starts
from sordino.federation.engines.first_come import FirstCome, Pace
from sordino.federation.engines.flower import Flower
from sordino.federation.engines.overlapping import Coming, Overlapping
from sordino.federation.pipeline import Pipeline
from sordino.federation.sampling.buffered import Buffered
from sordino.local.models import active_names, models

if TYPE_CHECKING:
    from sordino.core.types import Vector
    from sordino.experiment.plan import Plan
    from sordino.experiment.population import Population
    from sordino.experiment.rounds import State
    from sordino.experiment.settings import Setting, Setup


def schedule(experiment: Experiment) -> Buffered | None:
    """The schedule of an experiment's asynchronous rounds; None where rounds are not asynchronous."""
    sampler = paying.sampler_of(experiment)
    return sampler if isinstance(sampler, Buffered) else None


def check(experiment: Experiment, population: Population) -> None:
    """Refuse asynchronous rounds where something is bound to one round that all clients share.

    Raises:
        ConfigError: The sampling is `buffered`, and something else of the experiment is not offered with it.
    """
    if schedule(experiment) is None:
        return
    _check_first_come(experiment, len(population))
    if experiment.rounds == FIT:
        raise ConfigError.about("experiment", "cannot be found for asynchronous rounds", "give a number", rounds=FIT)
    if experiment.privacy.noise_at is NoiseAt.SUM:
        raise ConfigError.about(
            "privacy", "sums what all send at once", 'use noise_at = "silo" with asynchronous rounds', noise_at="sum"
        )
    if experiment.homomorphic is not None:
        raise ConfigError.about("homomorphic", "adds up what all send at once", "drop it with asynchronous rounds")
    if experiment.local.method == "zeroth_order":
        raise ConfigError.about(
            "local",
            "shares the directions of a round",
            'use "gradient" with asynchronous rounds',
            method="zeroth_order",
        )
    if Pipeline.from_tables(experiment.stages).wire_size(1) != 1:
        raise ConfigError.about(
            "stages",
            "learn from a round in which all clip alike",
            "use clip with asynchronous rounds",
            stages=[name for table in experiment.stages for name in table],
        )
    _check_adapter(experiment, population)


def _check_first_come(experiment: Experiment, population: int) -> None:
    sampler = schedule(experiment)
    if sampler is None or sampler.arrivals == "schedule":
        return
    if experiment.privacy.noise_at is not NoiseAt.SILO and not experiment.privacy.non_private:
        raise PrivacyError.about(
            "sampling.buffered",
            "lets the time that a client takes decide who shares its sum, and so its records move more than its update",
            'use noise_at = "silo", or a schedule',
            arrivals="first_come",
        )
    sure = sampler.sure(population)
    if experiment.rounds != FIT and experiment.count > sure:
        raise ConfigError.about(
            "sampling.buffered",
            f"may fill only {sure} buffers of {sampler.size}, if some clients are always first: "
            f"there are {experiment.count} rounds",
            "raise it, or have fewer rounds or smaller buffers",
            per_client=sampler.per_client,
        )


def first_come(experiment: Experiment) -> bool:
    """Whether, on machines of their own, whoever is done makes a round."""
    sampler = schedule(experiment)
    return sampler is not None and sampler.arrivals == "first_come"


def name_of(experiment: Experiment, run: str, silo: str, number: int) -> str:
    """A charge's name in ledgers: a round's, or, where whoever is done makes a round, that of a silo's own update."""
    return update_of(run, silo, number) if first_come(experiment) else f"{run}/{number}"


def update_of(run: str, silo: str, version: int) -> str:
    """The name of the charge of a silo's own update, from the model of a round."""
    return f"{run}/{silo}/{version}"


def _check_adapter(experiment: Experiment, population: Population) -> None:
    """Whoever started rounds ago trains the same parameters as all others."""
    name, options = single("model", experiment.model)
    model, n = models.build(name, options, f"model.{name}"), len(population)
    if not hasattr(model, "trained"):
        return
    everything = tuple(name for name, _ in model.shapes(population.spec))
    if any(active_names(model, everything, r, c, n) != everything for r in (0, 1) for c in range(n)):
        raise ConfigError.about(
            "model.adapter", "takes turns in what it trains", "use one that always trains all, as rounds overlap"
        )


def delayed(setting: Setting, plan: RoundPlan, state: State) -> Setting:
    """The setting of a round, whose engine gives every client the model that it started from."""
    setup, sampler = setting.setup, schedule(setting.setup.experiment)
    if sampler is None:
        return setting
    if isinstance(setup.engine, FirstCome):
        pace = Pace(state.versions, sampler.size, sampler.discount, lambda client: setting.lines(np.array([client])))
        return setting.at(replace(setup, engine=setup.engine.at(pace)))
    versions, inner = sampler.flush(len(setup.population), state.round).versions, setup.engine
    starts = Starts(versions, state.versions, sampler.discount)
    engine: Engine = Delayed(inner, starts)
    if isinstance(inner, Flower):
        engine = Overlapping(inner, starts, _coming(setting, plan, sampler))
    return setting.at(replace(setup, engine=engine))


def _coming(setting: Setting, plan: RoundPlan, sampler: Buffered) -> list[Coming]:
    n, rounds = len(setting.setup.population), plan.rounds
    return [
        Coming(replace(plan, round=number), begun, setting.lines(sampler.flush(n, number).clients))
        for number, begun in sampler.at_work(n, plan.round, rounds).items()
    ]


def started(experiment: Experiment, population: int, client: int, round: int) -> int:  # noqa: A002 - the noun
    """The round whose model a client's update of this round starts from: this one, or an earlier one.

    Raises:
        PrivacyError: Rounds are asynchronous, and the client is not in this one's buffer.
    """
    sampler = schedule(experiment)
    if sampler is None or sampler.arrivals == "first_come":
        return round
    flush = sampler.flush(population, round)
    place = np.flatnonzero(flush.clients == client)
    if not place.size:
        raise PrivacyError.about("round", "is not one that this client takes part in", round=round, client=client)
    return int(flush.versions[place[0]])


def kept(setup: Setup, state: State) -> dict[int, Vector]:
    """The models, by round up to the state's, that clients still at work started from: no more are remembered."""
    sampler = schedule(setup.experiment)
    if sampler is None:
        return {}
    if isinstance(setup.engine, FirstCome):
        needed = setup.engine.at_work()
    else:
        needed = sampler.needed(len(setup.population), state.round, setup.experiment.count)
    known = {**state.versions, state.round: state.server.model}
    return {version: model for version, model in known.items() if version in needed}


def facts(plan: Plan) -> dict[str, Any] | None:
    """What a plan says of its asynchronous rounds, all public: for `plan_json`."""
    experiment, n = plan.experiment, len(plan.clients)
    sampler = schedule(experiment)
    if sampler is None:
        return None
    ages = sampler.ages(n, experiment.count)
    counts = sampler.participations(n, experiment.count)
    return {
        "arrivals": sampler.arrivals,
        "buffer": sampler.size,
        "concurrency": sampler.concurrency,
        "participations": {"cap": sampler.per_client, "most": int(counts.max()), "mean": float(counts.mean())},
        "age": {"mean": float(ages.mean()), "most": int(ages.max())},
        "weight": float(np.mean([sampler.discount(int(age)) for age in ages.ravel()])),
        "duration": sampler.flush(n, experiment.count - 1).time,
    }
