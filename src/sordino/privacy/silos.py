"""What one person risks in a whole federation, from what each silo charges.

Silos with disjoint people compose in parallel: each person enjoys the guarantee of their own silo, and the
federation has the largest. It is never ε/n. A person in several silos pays for all of them.

Source: McSherry (2009), theorem 4, for parallel composition; it holds for adaptive rounds too, because a silo's
messages to the others are functions of other people's data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sordino.core import checks
from sordino.core.types import Adjacency
from sordino.privacy import events as data
from sordino.privacy import gaussian, renyi
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.relations import Plan, gaussian_part, plan_of, supports

if TYPE_CHECKING:
    from sordino.privacy.events import Events

SUBSETS_PRICED = 32
"""Up to this many different subsets of silos are priced one by one."""


def federation_epsilon(
    per_silo_events: Mapping[str, Events], delta: float, *, adjacency: Adjacency, silos_per_person: int | None
) -> float:
    """The ε of a person whose records lie in at most `silos_per_person` silos.

    The maximum over all choices of that many silos. Which choice is worst can depend on δ, because the curves of
    two silos may cross, so ranking silos by their own ε is not enough: unsampled Gaussians are ranked by μ,
    which is exact; a few kinds of silo are all tried; many kinds are bounded order by order in RDP.

    Args:
        per_silo_events: What each silo charges.
        delta: In (0, 1).
        adjacency: The neighbouring relation.
        silos_per_person: 1 when people are disjoint; `None` when unknown: all silos, the cautious answer.
    """
    checks.fraction("federation_epsilon", delta=delta)
    if not per_silo_events:
        return 0.0
    plans, relation = [plan_of(events) for events in per_silo_events.values()], Adjacency(adjacency)
    if silos_per_person is None:
        return _together(plans, delta, relation)
    checks.count("federation_epsilon", silos_per_person=silos_per_person)
    if silos_per_person >= len(plans):
        return _together(plans, delta, relation)
    return _worst(plans, silos_per_person, delta, relation)


def _worst(plans: list[Plan], size: int, delta: float, adjacency: Adjacency) -> float:
    if all(supports("gdp", adjacency, plan) for plan in plans):
        largest = sorted((gaussian_part(plan, adjacency)[0] for plan in plans), reverse=True)[:size]
        return gaussian.epsilon_of(math.sqrt(sum(largest)), delta)
    subsets = list(itertools.islice(_subsets(plans, size), SUBSETS_PRICED + 1))
    # One silo at a time is no composition: as many prices as kinds, whatever their number.
    if size == 1 or len(subsets) <= SUBSETS_PRICED:
        chosen: Iterable[tuple[Plan, ...]] = ((plan,) for plan in set(plans)) if size == 1 else subsets
        return max(_together(subset, delta, adjacency) for subset in chosen)
    everything = _together(plans, delta, adjacency)
    if not all(supports("rdp", adjacency, plan) for plan in plans):
        return everything
    curves = np.stack([renyi.rdp_of(plan, adjacency) for plan in plans])
    # At each order no choice of silos adds up to more than the largest of that order.
    bound = np.sort(curves, axis=0)[-size:].sum(axis=0)
    return min(everything, float(renyi.epsilons(np.array(renyi.ORDERS), bound, delta).min()))


def _subsets(plans: list[Plan], size: int) -> Iterator[tuple[Plan, ...]]:
    """The different choices of `size` silos, where silos with equal plans are interchangeable."""
    kinds = sorted(set(plans))

    def choose(position: int, left: int) -> Iterator[tuple[Plan, ...]]:
        if left == 0:
            yield ()
        elif position < len(kinds):
            for times in range(min(left, plans.count(kinds[position])), -1, -1):
                for rest in choose(position + 1, left - times):
                    yield (kinds[position],) * times + rest

    return choose(0, size)


def _together(plans: Iterable[Plan], delta: float, adjacency: Adjacency) -> float:
    joint = [(data.from_key(key), count) for plan in plans for key, count in plan]
    return best_epsilon(joint, delta, adjacency=adjacency).epsilon
