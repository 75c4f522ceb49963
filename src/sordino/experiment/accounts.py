"""Who pays for what: the accounts of a run and the events that each is charged.

unit     noise at      an account is            one round charges it
record   silo          a silo's records         `steps` × sampled noise          (user: the silo's persons, sampled
                                                                                  whole or record by record)
record   sum           a silo's records         1 × sampled noise, shared
client   coordinator   all clients, or each one where the cohort is public       1 × noise under cohort sampling
client   silo          one client               1 × noise, no amplification: the coordinator sees who sends

Figures on held-out records that are to leave a silo are one more event of its account: `released_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from sordino.core.errors import PrivacyError
from sordino.core.registry import single
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.experiment import released_metrics, soundness, summing
from sordino.experiment.config import Experiment
from sordino.experiment.groups import Tiers
from sordino.federation.mechanisms import mechanisms
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
        group: The public group of its records, where groups have accounts of their own.
    """

    name: str
    client: int | None
    units: int
    epsilon: float | None
    group: str | None = None


def sampler_of(experiment: Experiment) -> Sampler:
    """The experiment's cohort sampling."""
    name, options = single("sampling", experiment.sampling)
    return samplers.build(name, options, f"sampling.{name}")


def mechanism_of(experiment: Experiment, noise_multiplier: float) -> Any:
    """The experiment's noise law at a multiplier over the clip norm. K records of a person move a sum K clip norms."""
    if experiment.secure_sum is not None:
        return summing.mechanism(experiment, noise_multiplier)
    clips = experiment.local.records_per_person or 1
    return mechanisms.build(experiment.privacy.mechanism, {"noise_multiplier": noise_multiplier / clips})


def accounts(
    experiment: Experiment, names: Sequence[str], units: Sequence[int], tiers: Sequence[Tiers] = ()
) -> tuple[Account, ...]:
    """The accounts of an experiment over the named clients; one per silo and group, where there are `tiers`.

    Raises:
        ConfigError: A combination of unit, place of noise and sampling that is not offered.
        PrivacyError: One that has no sound guarantee.
    """
    privacy, sampler = experiment.privacy, sampler_of(experiment)
    soundness.check(experiment, sampler)
    if privacy.unit is Unit.CLIENT and not sampler.public:
        return (Account(CLIENTS, None, len(names), privacy.epsilon),)
    if tiers:
        return tuple(
            Account(f"{name}/{group}", client, count, experiment.groups[group].epsilon, group)
            for client, (name, silo) in enumerate(zip(names, tiers, strict=True))
            for group, count in silo.items()
        )

    def limit(name: str) -> float | None:
        own = experiment.silos.get(name)
        return own.epsilon if own is not None and own.epsilon is not None else privacy.epsilon

    return tuple(Account(name, i, n, limit(name)) for i, (name, n) in enumerate(zip(names, units, strict=True)))


def charged_event(experiment: Experiment, noise_multiplier: float, population: int, group: str | None = None) -> Event:
    """What one release costs one account: the noise under the sampling that really runs; `group` as in `Account`."""
    privacy = experiment.privacy
    if experiment.local.records_per_person is not None:
        return events.records_of_person(experiment.local.records_per_person, experiment.local.rate, noise_multiplier)
    if group is not None:
        rate, share = terms_of(experiment, group)
        return events.poisson(rate, events.gaussian(noise_multiplier / share))
    noise: Event = mechanism_of(experiment, noise_multiplier).event()
    if privacy.unit is not Unit.CLIENT:
        return events.poisson(experiment.local.rate, noise)
    if privacy.noise_at is NoiseAt.SILO:
        return noise
    return sampler_of(experiment).event(noise, population)


def charged_events(
    experiment: Experiment, client: int | None, noise_multiplier: float, population: int, group: str | None = None
) -> Events:
    """Everything the run charges one account, as (event, count); `client` and `group` as in `Account`."""
    count = releases(experiment, client, population, experiment.count)
    trained = ((charged_event(experiment, noise_multiplier, population, group), count),) if count else ()
    return (*trained, *released_metrics.charged(experiment, adjacency_of(experiment)))


def terms_of(experiment: Experiment, group: str) -> tuple[float, float]:
    """At which rate a group's records join, and which share of the clip they may reach."""
    own = experiment.groups[group]
    return own.rate or experiment.local.rate, own.share or 1.0


def releases(experiment: Experiment, client: int | None, population: int, rounds: int) -> int:
    """How many releases the first `rounds` rounds charge an account, at worst; `client` as in `Account`."""
    if client is not None:
        rounds = int(_participations(cast("Hashable", sampler_of(experiment)), population, rounds)[client])
    return rounds * (experiment.local.steps if experiment.privacy.unit is not Unit.CLIENT else 1)


@lru_cache(maxsize=8)
def _participations(sampler: Any, population: int, rounds: int) -> Any:
    """Everybody's at once: asked for each of very many clients, it would take their square."""
    found = sampler.participations(population, rounds)
    found.setflags(write=False)
    return found


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
    elif experiment.local.records_per_person is not None:  # one person's records for another's: nobody has priced it
        allowed = (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)
    else:
        allowed = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)
    wanted = privacy.adjacency or allowed[0]
    if wanted not in allowed:
        raise PrivacyError.about(
            "privacy", f"has no sound price here; this plan allows {', '.join(allowed)}", adjacency=str(wanted)
        )
    return wanted
