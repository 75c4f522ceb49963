"""What events cost, each distinct list priced once. The accountant is imported at the first price."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency
from sordino.ledger import amounts
from sordino.ledger.account import Account
from sordino.privacy import events

if TYPE_CHECKING:
    from sordino.privacy.accounting import Price

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


@functools.lru_cache(maxsize=4096)
def rdp(key: str, order: float, adjacency: Adjacency) -> float:
    """The RDP value of one release at a fixed order."""
    from sordino.privacy import accounting

    return accounting.rdp_units(events.from_key(key), order, adjacency)


def rdp_epsilon(units: int, account: Account) -> float:
    """ε of so many RDP units at the account's order and δ; nothing charged is 0."""
    from sordino.privacy import accounting

    if units == 0 or account.order is None:
        return 0.0
    return accounting.rdp_to_epsilon(amounts.number(units, amounts.EPSILON), account.order, account.delta)


def rdp_limit(account: Account) -> int:
    """The most RDP units whose ε stays within the account's limit.

    Raises:
        ConfigError: At this order and δ not even one unit does.
    """
    low, high = 0, amounts.LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rdp_epsilon(middle, account) <= account.epsilon else (low, middle)
    if rdp_epsilon(low, account) == 0.0:
        raise ConfigError.about(
            f"account {account.name!r}",
            f"converts to more than epsilon={account.epsilon:g} before anything is charged",
            "pin a higher order, or allow a larger delta",
            order=account.order,
            delta=account.delta,
        )
    return low
