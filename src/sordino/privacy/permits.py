"""Permission to draw noise. A reservation is minted by a ledger, after it charged and before anything is drawn.

    ledger.reserve ──► Reservation ──take──► Permit ──► noise.normal(permit, …)
    silo's ledger.reserve ──┘ `Consented`: one permit uses up both

Noise that many parties draw together takes one permit, made into shares, or one permit of each party's own ledger.

No permit, no noise: a sampler without a reservation neither type-checks nor runs. A reservation hands out
exactly as many permits as were charged, so what ran cannot exceed what was accounted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit

_MINT = object()


@dataclass(frozen=True)
class Line:
    """One account's share of a charge: `count` releases of the event named `key`, protecting `unit`."""

    account: str
    unit: Unit
    key: str
    count: int


class Permit:
    """The right to draw the noise of one release. Used up by the draw.

    `serial` counts a reservation's permits. `stream` names the draw by who pays and their how many-eth it is: the same
    whether a silo's reservation or one for all silos gives it, and different for any two draws of a charge.
    """

    __slots__ = ("_used", "serial", "stream", "test", "txid", "unit")

    def __init__(self, mint: object, txid: str, unit: Unit, serial: int, stream: str = "", *, test: bool) -> None:
        if mint is not _MINT:
            raise PrivacyError.about("permit", "cannot be made by hand", "take it from a ledger's reservation")
        self.txid, self.unit, self.serial, self.stream, self.test = txid, unit, serial, stream, test
        self._used = False

    def __setattr__(self, name: str, value: object) -> None:
        _set_once(self, name, value)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise _uncopied("permit")

    def use(self) -> None:
        """Mark the draw; a second draw is a second release and needs a charge of its own."""
        if self._used:
            raise PrivacyError.about("noise", "was already drawn under this permit", "charge the second release")
        self._used = True

    def shares(self, parties: Sequence[str]) -> list[SharePermit]:
        """The same right, divided: one share of the release's noise for each of the named parties. Uses it up.

        Args:
            parties: Who draws a share; all names differ. A silo with a permit of its own names itself alone.
        """
        if not parties or len(set(parties)) != len(parties):
            raise PrivacyError.about("permit", "are not one share per party", "name each party once", parties=parties)
        self.use()
        draw = json.loads(self.stream)[-1] if self.stream else self.serial
        return [SharePermit(_MINT, self, json.dumps(["share", party, draw])) for party in parties]


class SharePermit:
    """The right to draw one party's share of the noise of one release. Used up by the draw.

    `stream` names the party and the how many-eth draw it is: the same whoever divided the release's permit.
    """

    __slots__ = ("_used", "stream", "test", "txid", "unit")

    def __init__(self, mint: object, whole: Permit, stream: str) -> None:
        if mint is not _MINT:
            raise PrivacyError.about("permit", "cannot be made by hand", "divide a permit of a ledger's reservation")
        self.txid, self.unit, self.stream, self.test = whole.txid, whole.unit, stream, whole.test
        self._used = False

    def __setattr__(self, name: str, value: object) -> None:
        _set_once(self, name, value)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise _uncopied("permit")

    def use(self) -> None:
        """Mark the draw; a party has one share of a release."""
        if self._used:
            raise PrivacyError.about("noise", "was already drawn under this permit", "charge the second release")
        self._used = True


class Reservation:
    """A charge that a ledger has written down durably, with the releases it covers.

    Args:
        mint: Proof that a ledger makes it; use `mint_reservation`.
        txid: The charge's identity.
        lines: What was charged, per account.
        test: Whether the accounts are for simulation, with seeded noise.
    """

    def __init__(self, mint: object, txid: str, lines: Iterable[Line], *, test: bool) -> None:
        if mint is not _MINT:
            raise PrivacyError.about("reservation", "cannot be made by hand", "reserve the release in a ledger")
        self.txid, self.lines, self.test = txid, tuple(lines), test
        self._left = {(line.account, line.key): line.count for line in self.lines}
        self._units = {line.account: line.unit for line in self.lines}
        self._taken = 0
        self._drawn: Counter[tuple[str, ...]] = Counter()

    def __setattr__(self, name: str, value: object) -> None:
        _set_once(self, name, value)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise _uncopied("reservation")

    def void(self) -> bool:
        """Give the reservation up, if no permit was taken from it; afterwards none can be. Whether it was given up."""
        if self._taken:
            return False
        self._left = {}
        return True

    def take(self, accounts: Iterable[str], key: str) -> Permit:
        """A permit for one release that the named accounts pay for.

        Args:
            accounts: Every account whose people the release touches.
            key: The charged event, as `events.key`.

        Raises:
            PrivacyError: An account was not charged for this event, or all charged releases are drawn.
        """
        return self.take_each((account, key) for account in accounts)

    def take_each(self, charges: Iterable[tuple[str, str]]) -> Permit:
        """A permit for one release that accounts pay for by different events, as (account, key); else as `take`."""
        charges = tuple(charges)
        accounts = tuple(account for account, _ in charges)
        units = {self._units.get(account) for account in accounts}
        if len(units) != 1:
            raise PrivacyError.about("reservation", "do not protect one and the same unit", accounts=accounts)
        for (account, key), wanted in Counter(charges).items():
            if self._left.get((account, key), 0) < wanted:
                raise PrivacyError.about(
                    "reservation", "was not charged for another release of this event", account=account, event=key
                )
        for charge in charges:
            self._left[charge] -= 1
        unit = units.pop()
        if unit is None:
            raise PrivacyError.about("reservation", "names no account that was charged", accounts=accounts)
        self._taken += 1
        self._drawn[accounts] += 1
        stream = json.dumps([*accounts, self._drawn[accounts]])
        return Permit(_MINT, self.txid, unit, self._taken, stream, test=self.test)


class Consented(Reservation):
    """A coordinator's charge for which silos reserved the same in ledgers of their own: a permit uses up both.

    It permits only what either side was charged for, so it needs no mint.

    Args:
        own: The coordinator's.
        parts: The silos', by the accounts that each of them charged.
    """

    def __init__(self, own: Reservation, parts: Mapping[str, Reservation]) -> None:
        for account, part in parts.items():
            if (part.txid, part.test) != (own.txid, own.test):
                raise PrivacyError.about("reservation", "is of another charge than its silo's", account=account)
        missing = [line.account for line in own.lines if line.account not in parts]
        if missing:
            raise PrivacyError.about("reservation", "have no silo that consents", accounts=missing)
        super().__init__(_MINT, own.txid, own.lines, test=own.test)
        self.own, self._parts = own, dict(parts)

    def void(self) -> bool:
        """Never: what a silo reserved is the silo's to give up."""
        return False

    def take_each(self, charges: Iterable[tuple[str, str]]) -> Permit:
        charges = tuple(charges)
        shares: dict[int, list[tuple[str, str]]] = {}
        for account, key in charges:
            if account not in self._parts:
                raise PrivacyError.about("reservation", "has no silo that consents", account=account)
            shares.setdefault(id(self._parts[account]), []).append((account, key))
        for share in shares.values():
            self._parts[share[0][0]].take_each(share)
        # The coordinator's permit is the one that counts over all silos: no two of them share its serial.
        return self.own.take_each(charges)


def _uncopied(what: str) -> PrivacyError:
    """A copy, or a pickle for another process, would draw a second time for one charge."""
    return PrivacyError.about(what, "cannot be copied: one charge is one draw", "charge the second release")


def _set_once(owner: object, name: str, value: object) -> None:
    """Public facts of a permission are fixed when a ledger makes it: a real one never becomes a test."""
    if not name.startswith("_") and hasattr(owner, name):
        raise PrivacyError.about(
            type(owner).__name__.lower(), f"cannot change its {name}", "reserve in another account"
        )
    object.__setattr__(owner, name, value)


def mint_reservation(txid: str, lines: Iterable[Line], *, test: bool) -> Reservation:
    """A reservation, for ledgers only (a lint test bans the call elsewhere)."""
    return Reservation(_MINT, txid, lines, test=test)
