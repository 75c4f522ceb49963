"""Blocks: a silo's records by when they came in, so that new records bring a fresh budget and old ones keep theirs.

    north/admitted[..,2026-01-01)   north/admitted[2026-01-01,2026-04-01)   north/admitted[2026-04-01,2026-07-01)

Windows are closed on the left and open on the right, and each begins where the one before ends: every record up to the
last end falls in exactly one block. The window is the account's name, so it can neither change nor be opened twice. Of
records without a time, cohorts serve as well: `north/cohort=2026a`; each record bears one label.

Source:
    Lécuyer et al. (2019), arXiv:1909.01502, for block composition. An interval that began 0.0001 after an edge was
    charged to nobody in another ledger (world-federation-of-advertisers/cross-media-measurement#2209).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TypeAlias

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.places import Point, before, point, written
from sordino.core.types import Unit
from sordino.ledger.account import Account
from sordino.ledger.windows import Window

Given: TypeAlias = str | float | Decimal | date
"""How a caller may give a place on the time column; see `windows.point`."""


@dataclass(frozen=True)
class Blocks:
    """All blocks of a silo, oldest first, without gap or overlap.

    >>> blocks = Blocks.first("north", "admitted", "2026-01-01").then("2026-04-01")
    >>> blocks.covering("2025-12-31", "2026-01-01T00:00:00.000001")
    ['north/admitted[..,2026-01-01)', 'north/admitted[2026-01-01,2026-04-01)']
    """

    windows: tuple[Window, ...]

    def __post_init__(self) -> None:
        if not self.windows:
            raise ConfigError.about("blocks", "has none", "open the first one")
        for one, other in zip(self.windows, self.windows[1:], strict=False):
            if (one.silo, one.column) != (other.silo, other.column):
                raise ConfigError.about("blocks", "is of another silo or column", block=other.name)
            if other.start is None or one.end != other.start:
                raise ConfigError.about(
                    "blocks", "leaves a gap or overlaps", f"start it at {written(one.end)}", block=other.name
                )

    @classmethod
    def first(cls, silo: str, column: str, end: Given) -> Blocks:
        """One block of all records before `end`."""
        return cls((Window(silo, column, None, point(end)),))

    @classmethod
    def of(cls, accounts: Iterable[Account], silo: str) -> Blocks:
        """The blocks of a silo among a ledger's accounts."""
        return cls(_ordered([window for window in _windows(accounts).values() if window.silo == silo]))

    def then(self, end: Given) -> Blocks:
        """With one more block, of what came in from the last end to this one."""
        last = self.windows[-1]
        return Blocks((*self.windows, Window(last.silo, last.column, last.end, point(end))))

    def place(self, value: Given) -> str:
        """The account of the one block that a record falls in.

        Raises:
            PrivacyError: No block holds it.
        """
        at = point(value)
        for window in self.windows:
            if (window.start is None or not before(at, window.start)) and before(at, window.end):
                return window.name
        raise self._outside(at)

    def covering(self, start: Given | None, end: Given) -> list[str]:
        """The accounts to charge for reading the records of [start, end), oldest first.

        Args:
            start: None for everything before `end`.
            end: Not read any more.

        Raises:
            PrivacyError: Part of it lies in no block: it would be read for free.
        """
        low, high = None if start is None else point(start), point(end)
        if low is not None and not before(low, high):
            raise ConfigError.about("blocks", "must lie before the end", start=written(low), end=written(high))
        first, last = self.windows[0].start, self.windows[-1].end
        if first is not None and (low is None or before(low, first)):
            raise self._outside(low)
        if before(last, high):
            raise self._outside(high)
        return [
            window.name
            for window in self.windows
            if (window.start is None or before(window.start, high)) and (low is None or before(low, window.end))
        ]

    def ended(self, by: Given) -> list[str]:
        """Blocks that ended at this moment or earlier, e.g. those that a policy's retention retires."""
        return [window.name for window in self.windows if not before(point(by), window.end)]

    def _outside(self, at: Point | None) -> PrivacyError:
        window = self.windows[-1]
        return PrivacyError.about(
            f"blocks of {window.silo!r}",
            f"lies in no block: they hold [{written(self.windows[0].start)},{written(window.end)})",
            "open the next block first",
            **{window.column: written(at)},
        )


def account(silo: Account, window: Window, *, epsilon: float, delta: float) -> Account:
    """A block's account: the silo's terms with a limit of its own."""
    return dataclasses.replace(
        silo, name=window.name, epsilon=epsilon, delta=delta, scope="block", parent=silo.name, overlap=None
    )


def overlap(unit: Unit) -> int | None:
    """In how many blocks of a silo one unit is: a record in one; a person or client in any number."""
    return 1 if unit is Unit.RECORD else None


def check(opened: Account, known: Mapping[str, Account], held: Mapping[str, Account]) -> None:
    """Refuse a block that leaves a gap, overlaps another, or would give a record a second budget.

    Args:
        opened: A new account.
        known: All others, by name.
        held: Those of them that are blocks: none of very many clients' own accounts is looked at.

    Raises:
        ConfigError: It does, or its name is not that of its window.
    """
    where, there = f"account {opened.name!r}", _windows(held.values())
    if any(window.silo == opened.name and known[name].parent != opened.name for name, window in there.items()):
        raise ConfigError.about(where, "has blocks already, which stand by themselves: records would have two budgets")
    if opened.scope != "block":
        return
    window = next(iter(_windows([opened]).values()), None)
    beside = [other.name for other in held.values() if other.parent == opened.parent]
    if opened.parent is not None and any((name in there) != (window is not None) for name in beside):
        raise ConfigError.about(where, "is named unlike the silo's other blocks: a record might fall in two")
    if window is None:
        return
    parent = known.get(opened.parent or "")
    if parent is not None and parent.overlap is not None and overlap(opened.unit) is None:
        raise ConfigError.about(
            where,
            f"holds records of {opened.unit}s who may be in other blocks too; its silo counts on {parent.overlap}",
            "open the silo without overlap: all its blocks add up",
            parent=opened.parent,
        )
    if window.name != opened.name:
        raise ConfigError.about(where, "is not written as its window is", f"call it {window.name!r}")
    if window.silo in known and opened.parent != window.silo:
        raise ConfigError.about(where, "names a silo that has an account of its own", "open it inside of that")
    if opened.parent not in (None, window.silo):
        raise ConfigError.about(where, "is named after another silo than the one it is in", parent=opened.parent)
    Blocks(_ordered([*(other for other in there.values() if other.silo == window.silo), window]))


def among(accounts: Mapping[str, Account]) -> dict[str, Account]:
    """The accounts that are blocks, by name."""
    return {name: account for name, account in accounts.items() if account.scope == "block"}


def _windows(accounts: Iterable[Account]) -> dict[str, Window]:
    found = {account.name: Window.parse(account.name) for account in accounts if account.scope == "block"}
    return {name: window for name, window in found.items() if window is not None}


def _ordered(windows: list[Window]) -> tuple[Window, ...]:
    for window in windows:
        before(windows[0].end, window.end)  # numbers beside times have no order
    return tuple(sorted(windows, key=lambda window: window.end))
