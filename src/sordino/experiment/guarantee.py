"""What each account is charged, and what that guarantees against each observer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import attr

from sordino.core.types import NoiseAt, Unit
from sordino.experiment import accounts as paying
from sordino.experiment import summing
from sordino.experiment.groups import accounts_per_person
from sordino.experiment.pricing import Pricing
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
        group: The public group of its records, where groups have accounts of their own.
    """

    name: str
    client: int | None
    units: int
    epsilon: float
    noise_multiplier: float
    releases: int
    charges: tuple[tuple[str, int], ...]
    limit: float | None
    group: str | None = None

    @property
    def events(self) -> Events:
        """The charges as events."""
        return tuple((events.from_key(key), count) for key, count in self.charges)


def account_plans(
    pricing: Pricing, accounts: Sequence[paying.Account], multipliers: Sequence[float]
) -> tuple[AccountPlan, ...]:
    """Every account with its charges and their price."""
    result = []
    for account, z in zip(accounts, multipliers, strict=True):
        charged = pricing.events(account.client, z, account.group)
        result.append(
            AccountPlan(
                name=account.name,
                client=account.client,
                units=account.units,
                epsilon=pricing.epsilon(account.client, z, account.group),
                noise_multiplier=z,
                releases=sum(count for _, count in charged),
                charges=tuple((events.key(event), count) for event, count in charged),
                limit=account.epsilon,
                group=account.group,
            )
        )
    return tuple(result)


def views(pricing: Pricing, charged: Sequence[AccountPlan]) -> dict[str, float]:
    """Epsilon for each observer. `inf` is said, never hidden."""
    privacy = pricing.experiment.privacy
    if pricing.experiment.secure_sum is not None:
        return _summed(pricing, charged)
    if privacy.unit is Unit.CLIENT:
        epsilon = max(account.epsilon for account in charged)
        coordinator = epsilon if privacy.noise_at is NoiseAt.SILO else math.inf
        return {"final model": epsilon, "another client": epsilon, "coordinator": coordinator}
    epsilon = federation_epsilon(
        {account.name: account.events for account in charged},
        pricing.delta,
        adjacency=pricing.adjacency,
        silos_per_person=accounts_per_person(pricing.experiment, pricing.clients),
    )
    if privacy.noise_at is NoiseAt.SILO:
        return {"final model": epsilon, "another silo": epsilon, "coordinator": epsilon, "all others together": epsilon}
    cohort = paying.sampler_of(pricing.experiment).expected(pricing.clients)
    worst = max(charged, key=lambda account: account.epsilon)
    return {
        "final model": epsilon,
        "another silo": epsilon,
        "coordinator, sums only": epsilon,
        "all others together, if each silo adds its share": pricing.epsilon(
            worst.client, worst.noise_multiplier / math.sqrt(cohort)
        ),
        "coordinator, if secure summation fails": math.inf,
    }


def _summed(pricing: Pricing, charged: Sequence[AccountPlan]) -> dict[str, float]:
    """Noise in shares hides less from whoever knows some of them: the charge is for as many as are feared to tell."""
    experiment = pricing.experiment
    worst = max(charged, key=lambda account: account.epsilon)
    count = summing.colluders(experiment)
    event = summing.mechanism(experiment, worst.noise_multiplier).event()
    fewest, honest = summing.fewest(experiment), summing.honest(experiment)

    def before(secret: int) -> float:
        """Of the same whole numbers, before whom so many shares of the noise are secret."""
        several = {"shares": secret} if hasattr(event, "shares") else {}
        noise = worst.noise_multiplier * math.sqrt(secret / honest)
        seen = attr.evolve(event, noise_multiplier=noise, **several)
        counts = tuple((seen if e == event else e, n) for e, n in worst.events)
        return best_epsilon(counts, pricing.delta, adjacency=pricing.adjacency).epsilon

    other = "another client" if experiment.privacy.unit is Unit.CLIENT else "another silo"
    who = "coordinator" if summing.everybody_masks(experiment) else "coordinator that keeps to the protocol"
    return {
        "final model": worst.epsilon,
        "whoever sees only sums": before(fewest),
        other: before(fewest - 1),  # whoever drew a share can take it off
        f"{who} and {count} of {summing.parties(experiment)} silos together": worst.epsilon,
        "coordinator, if secure summation fails": math.inf,
    }
