"""What each account is charged, and what that guarantees against each observer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.experiment import accounts as paying
from sordino.experiment.config import Experiment
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.silos import federation_epsilon

if TYPE_CHECKING:
    from sordino.privacy.events import Events


@dataclass(frozen=True)
class AccountPlan:
    """What one account will be charged, and the guarantee that gives its people.

    Args:
        name: The silo, the client, or `clients`.
        client: Position among the clients, or None for all.
        units: Protected units behind it.
        epsilon: Guarantee for those units over the whole run, in nats.
        noise_multiplier: Noise scale over the clip norm.
        releases: Noised releases that touch it.
        charges: Event keys with counts.
        limit: The epsilon asked for, if any.
    """

    name: str
    client: int | None
    units: int
    epsilon: float
    noise_multiplier: float
    releases: int
    charges: tuple[tuple[str, int], ...]
    limit: float | None

    @property
    def events(self) -> Events:
        """The charges as events."""
        return tuple((events.from_key(key), count) for key, count in self.charges)


def account_plans(
    experiment: Experiment,
    terms: Sequence[paying.Account],
    multipliers: Sequence[float],
    delta: float,
    adjacency: Adjacency,
    population: int,
) -> tuple[AccountPlan, ...]:
    """Every account with its charges and their price."""
    result = []
    for account, z in zip(terms, multipliers, strict=True):
        charged = paying.charged_events(experiment, account, z, population)
        price = best_epsilon(charged, delta, adjacency=adjacency).epsilon if charged else 0.0
        result.append(
            AccountPlan(
                name=account.name,
                client=account.client,
                units=account.units,
                epsilon=price,
                noise_multiplier=z,
                releases=sum(count for _, count in charged),
                charges=tuple((events.key(event), count) for event, count in charged),
                limit=account.epsilon,
            )
        )
    return tuple(result)


def views(
    experiment: Experiment,
    charged: tuple[AccountPlan, ...],
    delta: float,
    adjacency: Adjacency,
    population: int,
) -> dict[str, float]:
    """Epsilon for each observer. `inf` is said, never hidden."""
    privacy = experiment.privacy
    if privacy.unit is Unit.CLIENT:
        epsilon = max(a.epsilon for a in charged)
        coordinator = epsilon if privacy.noise_at is NoiseAt.SILO else math.inf
        return {"final model": epsilon, "another client": epsilon, "coordinator": coordinator}
    per_silo = {a.name: a.events for a in charged}
    epsilon = federation_epsilon(per_silo, delta, adjacency=adjacency, silos_per_person=privacy.silos_per_person)
    if privacy.noise_at is NoiseAt.SILO:
        return {"final model": epsilon, "another silo": epsilon, "coordinator": epsilon, "all others together": epsilon}
    cohort = paying.sampler_of(experiment).expected(population)
    worst = max(charged, key=lambda a: a.epsilon)
    share = worst.noise_multiplier / math.sqrt(cohort)
    terms = paying.Account(worst.name, worst.client, worst.units, None)
    left = best_epsilon(paying.charged_events(experiment, terms, share, population), delta, adjacency=adjacency).epsilon
    return {
        "final model": epsilon,
        "another silo": epsilon,
        "coordinator, sums only": epsilon,
        "all others together, if each silo adds its share": left,
        "coordinator, if secure summation fails": math.inf,
    }
