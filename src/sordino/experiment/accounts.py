"""Who pays for what: the accounts of a run and the events that each is charged.

unit     noise at      an account is            one round charges it
record   silo          a silo's records         `steps` × sampled noise          (user: the silo's persons)
record   sum           a silo's records         1 × sampled noise, shared
client   coordinator   all clients, or each one where the cohort is public       1 × noise under cohort sampling
client   silo          one client               1 × noise, no amplification: the coordinator sees who sends
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.registry import single
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.experiment.config import Experiment
from sordino.federation.mechanisms import mechanisms
from sordino.federation.pipeline import Pipeline
from sordino.federation.sampling import Sampler, samplers
from sordino.privacy import events

if TYPE_CHECKING:
    from sordino.privacy.events import Event, Events

CLIENTS = "clients"
"""The one account of all clients, where each may be in any cohort."""


@dataclass(frozen=True)
class Account:
    """One account's terms, before noise is known.

    Args:
        name: The silo's or client's name, or `clients`.
        client: Its position among the clients; None when it stands for all.
        units: Protected units behind it: the n of δ < 1/n.
        epsilon: Its limit, if epsilon is given.
    """

    name: str
    client: int | None
    units: int
    epsilon: float | None


def sampler_of(experiment: Experiment) -> Sampler:
    """The experiment's cohort sampling."""
    name, options = single("sampling", experiment.sampling)
    return samplers.build(name, options, f"sampling.{name}")


def mechanism_of(experiment: Experiment, noise_multiplier: float) -> Any:
    """The experiment's noise law at a multiplier."""
    return mechanisms.build(experiment.privacy.mechanism, {"noise_multiplier": noise_multiplier})


def accounts(experiment: Experiment, names: Sequence[str], units: Sequence[int]) -> tuple[Account, ...]:
    """The accounts of an experiment over the named clients.

    Raises:
        ConfigError: A combination of unit, place of noise and sampling that is not offered.
        PrivacyError: One that has no sound guarantee.
    """
    privacy, sampler = experiment.privacy, sampler_of(experiment)
    _refuse_unsound(experiment, sampler)
    if privacy.unit is Unit.CLIENT and not sampler.public:
        return (Account(CLIENTS, None, len(names), privacy.epsilon),)

    def limit(name: str) -> float | None:
        own = experiment.silos.get(name)
        return own.epsilon if own is not None and own.epsilon is not None else privacy.epsilon

    protected = [len(names)] * len(names) if privacy.unit is Unit.CLIENT else units
    return tuple(Account(name, i, n, limit(name)) for i, (name, n) in enumerate(zip(names, protected, strict=True)))


def charged_event(experiment: Experiment, noise_multiplier: float, population: int) -> Event:
    """What one release costs one account: the noise under the sampling that really runs."""
    privacy = experiment.privacy
    noise: Event = mechanism_of(experiment, noise_multiplier).event()
    if privacy.unit is not Unit.CLIENT:
        return events.poisson(experiment.local.rate, noise)
    if privacy.noise_at is NoiseAt.SILO:
        return noise
    return sampler_of(experiment).event(noise, population)


def charged_events(experiment: Experiment, account: Account, noise_multiplier: float, population: int) -> Events:
    """Everything the run charges one account, as (event, count)."""
    count = releases(experiment, account.client, population, experiment.count)
    return ((charged_event(experiment, noise_multiplier, population), count),) if count else ()


def releases(experiment: Experiment, client: int | None, population: int, rounds: int) -> int:
    """How many releases the first `rounds` rounds charge an account, at worst; `client` as in `Account`."""
    if client is not None:
        rounds = int(sampler_of(experiment).participations(population, rounds)[client])
    return rounds * (experiment.local.steps if experiment.privacy.unit is not Unit.CLIENT else 1)


def adjacency_of(experiment: Experiment) -> Adjacency:
    """The neighbouring relation: the one asked for, or the one that fits the sampling.

    Raises:
        PrivacyError: The sampling has no guarantee under the relation asked for.
    """
    privacy, sampler = experiment.privacy, sampler_of(experiment)
    if privacy.unit is Unit.CLIENT and privacy.noise_at is NoiseAt.SILO:
        allowed: tuple[Adjacency, ...] = (Adjacency.REPLACE_ONE,)
    elif privacy.unit is Unit.CLIENT:
        allowed = tuple(sampler.adjacency)
    else:
        allowed = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)
    wanted = privacy.adjacency or allowed[0]
    if wanted not in allowed:
        raise PrivacyError.about(
            "privacy", f"has no sound price here; this plan allows {', '.join(allowed)}", adjacency=str(wanted)
        )
    return wanted


def _refuse_unsound(experiment: Experiment, sampler: Sampler) -> None:
    privacy, local = experiment.privacy, experiment.local
    if (privacy.unit is Unit.CLIENT) and privacy.noise_at is NoiseAt.SUM:
        raise ConfigError.about("privacy", "is not offered yet for clients", "use coordinator", noise_at="sum")
    if (privacy.unit is not Unit.CLIENT) and privacy.noise_at is NoiseAt.COORDINATOR:
        raise PrivacyError.about(
            "privacy", "would send un-noised record gradients", 'use noise_at = "silo"', noise_at="coordinator"
        )
    if privacy.noise_at is NoiseAt.SILO and not sampler.public:
        raise PrivacyError.about(
            "sampling",
            "earns nothing with noise at the silo: the coordinator sees who sends",
            "use `all` or `round_robin`",
            sampling=next(iter(experiment.sampling)),
        )
    if privacy.unit is not Unit.CLIENT and local.clip is None:
        raise ConfigError.about("local", "lacks the key 'clip'", "write e.g. `clip = 0.5`")
    if privacy.unit is not Unit.CLIENT and (local.epochs or local.batch_size):
        raise ConfigError.about(
            "local",
            "serve clients as a whole; records are sampled by rate",
            "use steps and batch",
            epochs=local.epochs,
            batch_size=local.batch_size,
        )
    if privacy.unit is not Unit.CLIENT and experiment.stages:
        raise ConfigError.about("stages", "act on client updates; records are clipped by local.clip", "drop the stages")
    if privacy.noise_at is NoiseAt.SUM:
        _refuse_unsummed(experiment, sampler)
    if privacy.unit is Unit.CLIENT:
        _refuse_for_clients(experiment)
    elif privacy.mechanism == "laplace":
        raise ConfigError.about(
            "privacy",
            "would need L1-clipped gradients, useless in many dimensions",
            'use "gaussian"',
            mechanism="laplace",
        )


def _refuse_for_clients(experiment: Experiment) -> None:
    """Refuse what would be ignored where whole clients are protected, and updates that nothing bounds."""
    privacy, local = experiment.privacy, experiment.local
    bound = Pipeline.from_tables(experiment.stages).bound()
    if privacy.mechanism == "laplace" and bound.l1 is None:
        raise ConfigError.about("privacy", "needs an L1 bound", "use the stage clip_l1", mechanism="laplace")
    if privacy.noise_at is NoiseAt.SILO and any("adaptive_clip" in table for table in experiment.stages):
        raise ConfigError.about(
            "stages", "needs a sum over clients", "use clip with noise at the silo", stage="adaptive_clip"
        )
    require_step_size(experiment)
    if local.batch != "full":
        raise ConfigError.about("local", "samples records, not clients", "use batch_size", batch=local.batch)
    if local.clip is not None:
        raise ConfigError.about("local", "clips records, not clients", "use a 'clip' stage", clip=local.clip)
    if experiment.weights == "noise_aware":
        raise ConfigError.about(
            "experiment", "weighs silos by their noise, not clients", "drop it", weights="noise_aware"
        )


def require_step_size(experiment: Experiment) -> None:
    """Plain training has no noise for `noise_walk` to take its step size from."""
    if experiment.local.lr is None:
        raise ConfigError.about("local", "lacks the key 'lr'", "noise_walk serves only noise at silo or sum")


def _refuse_unsummed(experiment: Experiment, sampler: Sampler) -> None:
    if not experiment.simulation.secure_sum:
        raise ConfigError.about(
            "privacy",
            "needs secure summation, which this engine only plays",
            "set simulation.secure_sum = true",
            noise_at="sum",
        )
    if not sampler.public or experiment.local.steps != 1:
        raise PrivacyError.about(
            "local", "must be 1 with a public cohort: one noised sum a round", steps=experiment.local.steps
        )
    if experiment.privacy.silos_per_person != 1:
        raise PrivacyError.about(
            "privacy",
            "is needed for one noise on the sum: a person in m silos moves it m times as far",
            "set silos_per_person = 1 if nobody is in two silos, or use noise_at = 'silo'",
            silos_per_person=experiment.privacy.silos_per_person,
        )
    if any(silo.epsilon is not None for silo in experiment.silos.values()):
        raise ConfigError.about("silos", "cannot differ when one noise serves the sum", "drop the silos' epsilon")
