"""Who pays in a ledger for an account of a plan: itself, or the blocks that hold the records which the plan reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sordino.core.errors import PrivacyError
from sordino.core.places import Point
from sordino.ledger.account import Account
from sordino.ledger.blocks import Blocks
from sordino.ledger.windows import Window
from sordino.privacy.permits import Line, Permit, Reservation


@dataclass(frozen=True)
class Read:
    """The records that a plan reads: those of `column` in [start, end)."""

    column: str
    start: Point | None
    end: Point


@dataclass(frozen=True)
class Payers:
    """By account of a plan, the accounts of a ledger that pay for it, where they are others.

    >>> Payers({"north": ("north/day[..,7)", "north/day[7,9)")}).each("north")
    ('north/day[..,7)', 'north/day[7,9)')
    """

    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Iterable[Account], names: Iterable[str], read: Read | None) -> Payers:
        """Who pays for the named accounts in a ledger.

        Args:
            known: The ledger's accounts.
            names: The plan's.
            read: What the plan reads, where its data say so.

        Raises:
            PrivacyError: A silo has blocks, and what the plan reads does not lie in them, or is not said.
        """
        known = list(known)
        divided = {window.silo for window in (Window.parse(a.name) for a in known if a.scope == "block") if window}
        parts: dict[str, tuple[str, ...]] = {}
        for name in names:
            if name not in divided:
                continue
            blocks = Blocks.of(known, name)
            if read is None or read.column != blocks.windows[0].column:
                raise PrivacyError.about(
                    "ledger",
                    f"has blocks by {blocks.windows[0].column!r}, and the plan does not say which of them it reads",
                    "give the data when, since and until",
                    account=name,
                )
            parts[name] = tuple(blocks.covering(read.start, read.end))
        return cls(parts)

    def each(self, name: str) -> tuple[str, ...]:
        """Who pays for one account of the plan."""
        return self.parts.get(name, (name,))

    def whose(self, name: str) -> str:
        """The account of the plan of which an account of the ledger is a block, whether it pays or not; else itself."""
        window = Window.parse(name)
        return window.silo if window is not None and window.silo in self.parts else name

    def lines(self, lines: Sequence[Line]) -> list[Line]:
        """A charge's lines in the ledger: each block pays for the whole release, which may read any of its records."""
        return [Line(payer, line.unit, line.key, line.count) for line in lines for payer in self.each(line.account)]


class Divided(Reservation):
    """A charge to blocks, which permits releases in the name of their silos: a permit uses up that of every block.

    Args:
        own: The ledger's.
        payers: Who pays for whom.
    """

    def __init__(self, own: Reservation, payers: Payers) -> None:
        self.txid, self.lines, self.test, self.own, self._payers = own.txid, own.lines, own.test, own, payers

    def void(self) -> bool:
        return self.own.void()

    def take_each(self, charges: Iterable[tuple[str, str]]) -> Permit:
        return self.own.take_each((payer, key) for account, key in charges for payer in self._payers.each(account))
