"""Who pays when an account pays: all that contain it, and quotas that are named.

    federation ◄── domain ◄── silo ◄── block          what a block is charged, its silo, domain and federation pay too

One person's loss in a container is not the sum over what it contains: a person is in at most `overlap` of those, so
the container pays for its worst `overlap` parts. Disjoint parts compose in parallel (1); where nothing is known,
all of them add up.

Source: McSherry (2009), theorem 4, for parallel composition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import currencies, pricing
from sordino.ledger.account import PEOPLE, Account
from sordino.ledger.pricing import Counts

Terms: TypeAlias = Mapping[str, Account]
"""All accounts of a ledger by name."""


@dataclass(frozen=True)
class Paid:
    """What a container's worst person pays for a whole plan."""

    epsilon: float
    accountant: str


def check(account: Account, known: Terms) -> None:
    """Refuse an account whose parent cannot contain it.

    Raises:
        ConfigError: The parent is not open, is no wider, or pays in another way than its parts.
        PrivacyError: It protects another unit, or neighbours differ in another way.
    """
    if account.parent is None:
        return
    where, parent = f"account {account.name!r}", known.get(account.parent)
    if parent is None:
        raise ConfigError.about(where, "is not open", "open it first", parent=account.parent)
    if parent.scope not in PEOPLE or PEOPLE.index(parent.scope) >= PEOPLE.index(account.scope):
        raise ConfigError.about(
            where, f"is a {parent.scope}, which does not contain a {account.scope}", parent=parent.name
        )
    if (parent.unit, parent.adjacency, parent.test) != (account.unit, account.adjacency, account.test):
        raise PrivacyError.about(where, "protects another unit, relation or world", "use one", parent=parent.name)
    if account.live and not parent.live:
        raise ConfigError.about(where, "pays whole plans, its part release by release", "use one", parent=parent.name)


def payers(named: Iterable[str], known: Terms) -> list[str]:
    """Everything that contains one of the named accounts, nearest first; not the named ones."""
    found: dict[str, None] = {}
    for name in named:
        parent = known[name].parent
        while parent is not None:
            found[parent] = None
            parent = known[parent].parent
    return list(found)


def refuse_containers(named: Iterable[str], known: Terms) -> None:
    """A container is charged through its parts: charged by itself, none of its people would be."""
    parents = {account.parent for account in known.values()}
    for name in named:
        if name in parents:
            raise ConfigError.about("ledger", "is charged through the accounts that it contains", account=name)


def plan_price(payer: str, plan: Mapping[str, Counts], delta: float, known: Terms) -> Paid:
    """What a payer's worst person pays for a frozen plan, from what its leaves are charged.

    Exact where parts are disjoint, or are leaves; else all that is charged below adds up, which is never too little.
    """
    account, parts = known[payer], _parts(payer, plan, known)
    if account.overlap == 1:
        prices = [_part_price(part, leaves, delta, known) for part, leaves in parts.items()]
        return Paid(max(prices), f"largest of {len(prices)} disjoint")
    leaves = {name: counts for part in parts.values() for name, counts in part.items()}
    overlap = account.overlap if all(part.keys() == {name} for name, part in parts.items()) else None
    return Paid(
        pricing.person(leaves, delta, account.adjacency, overlap), f"person in {overlap or 'all'} of {len(parts)}"
    )


def live_lines(payer: str, leaves: Mapping[str, Mapping[str, int]], known: Terms) -> dict[str, int]:
    """Event keys and counts that a live payer's worst person pays, for what each leaf is charged."""
    account = known[payer]

    def cost(lines: Mapping[str, int]) -> int:
        return sum(currencies.units(key, account, count) for key, count in lines.items())

    return _worst(payer, leaves, known, cost)


def _worst(
    payer: str, leaves: Mapping[str, Mapping[str, int]], known: Terms, cost: Callable[[Mapping[str, int]], int]
) -> dict[str, int]:
    found = []
    for part, below in _parts(payer, leaves, known).items():
        found.append(dict(below[part]) if below.keys() == {part} else _worst(part, below, known, cost))
    found.sort(key=cost, reverse=True)
    total: Counter[str] = Counter()
    for lines in found[: known[payer].overlap]:
        total.update(lines)
    return dict(total)


def _part_price(part: str, leaves: Mapping[str, Counts], delta: float, known: Terms) -> float:
    if leaves.keys() == {part}:
        return pricing.price(leaves[part], delta, known[part].adjacency).epsilon
    return plan_price(part, leaves, delta, known).epsilon


def _parts(payer: str, leaves: Mapping[str, pricing.T], known: Terms) -> dict[str, dict[str, pricing.T]]:
    """The leaves that a payer contains, by its direct part that holds them; a quota holds every leaf by itself."""
    parts: dict[str, dict[str, pricing.T]] = {}
    for leaf, charged in leaves.items():
        part = _direct(payer, leaf, known) if known[payer].scope in PEOPLE else leaf
        if part is not None:
            parts.setdefault(part, {})[leaf] = charged
    return parts


def _direct(payer: str, leaf: str, known: Terms) -> str | None:
    """The direct part of a payer that holds a leaf, or the leaf itself; None if the payer does not contain it."""
    part, above = leaf, known[leaf].parent
    while above is not None and above != payer:
        part, above = above, known[above].parent
    return part if above == payer else None
