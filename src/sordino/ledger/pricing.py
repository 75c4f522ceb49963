"""What events cost, each distinct list priced once. The accountant is imported at the first price."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sordino.core.types import Adjacency
from sordino.privacy import events

if TYPE_CHECKING:
    from sordino.privacy.accounting import Price

T = TypeVar("T")

Counts: TypeAlias = tuple[tuple[str, int], ...]
"""Event keys with how often each happens, sorted by key."""


def counts(requested: events.Events) -> Counts:
    """Events as sorted keys and counts, equal ones added up."""
    return tuple(sorted((events.key(event), int(count)) for event, count in events.grouped(requested)))


@functools.lru_cache(maxsize=4096)
def price(charged: Counts, delta: float, adjacency: Adjacency) -> Price:
    """ε of all the events together at δ: valid for a list that was fixed before its first release."""
    from sordino.privacy import accounting

    return accounting.best_epsilon([(events.from_key(key), n) for key, n in charged], delta, adjacency=adjacency)


def fitting(charged: Counts, delta: float, adjacency: Adjacency, room: float) -> tuple[int, int]:
    """How many of how many releases a budget of ε = `room` covers, keeping the plan's proportions."""
    n = max(count for _, count in charged)
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        fits = price(_share(charged, middle, n), delta, adjacency).epsilon <= room
        low, high = (middle, high) if fits else (low, middle)
    return sum(count for _, count in _share(charged, low, n)), sum(count for _, count in charged)


def _share(charged: Counts, k: int, n: int) -> Counts:
    return tuple((key, count * k // n) for key, count in charged if count * k // n)


def person(charged: Mapping[str, Counts], delta: float, adjacency: Adjacency, overlap: int | None) -> float:
    """ε of the worst person who is in at most `overlap` of the accounts; in all of them where that is not known."""
    from sordino.privacy import silos

    plans = {name: [(events.from_key(key), n) for key, n in counts] for name, counts in charged.items()}
    return silos.federation_epsilon(plans, delta, adjacency=adjacency, silos_per_person=overlap)
