"""The exits: a bounded sum, a permit from the charge, and noise of the tracked bound. Nothing else makes a sum public.

BoundedSum ──► Door: is the noise what was charged? ──► permit ──► noise ──► Vector
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import PrivacyError
from sordino.core.types import Vector
from sordino.privacy import events, integer_noise
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Permit, Reservation

if TYPE_CHECKING:
    from sordino.privacy.events import Event


class Mechanism(Protocol):
    """Noise of one law. `event()` says what one unsampled release costs; the scale comes from the tracked bound."""

    def event(self) -> Event:
        """The release as data, relative to the add/remove bound."""
        ...

    def scale(self, l2: float, l1: float | None) -> float:
        """The noise scale for a sum with these bounds."""
        ...

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        """The noise itself, shape (size,)."""
        ...


@dataclass(frozen=True)
class Door:
    """The only exit: takes a permit from the charge, then draws.

    Args:
        mechanism: The noise.
        charged: What the ledger charged for one release: the mechanism's event under the sampling that runs.
        accounts: Whose accounts pay.
        reservation: The durable charge.
        source: Where the noise comes from.
    """

    mechanism: Mechanism
    charged: Event
    accounts: tuple[str, ...]
    reservation: Reservation
    source: NoiseSource

    def __post_init__(self) -> None:
        (law, charged), (drawn_law, drawn) = events.noise_of(self.charged), events.noise_of(self.mechanism.event())
        if law != drawn_law or charged > drawn:
            raise PrivacyError.about(
                "door", f"is not the {law} noise of {charged:g} that is charged", noise=drawn_law, multiplier=drawn
            )
        if integer_noise.is_whole(self.charged) and self.charged != self.mechanism.event():
            raise PrivacyError.about("door", "counts other steps than are charged", charged=self.charged)

    def __call__(self, total: BoundedSum) -> Vector:
        """Release one sum.

        Raises:
            PrivacyError: The charge does not cover it, or the unit or the noise source do not fit the account.
        """
        self._check(total)
        return total.released_by(self.mechanism, self._permit(), self.source)

    def ahead(self, count: int) -> Release:
        """So many releases whose permits are taken now: doors may then take turns, each as if it were alone.

        Raises:
            PrivacyError: The charge does not cover them. Later, what `__call__` raises, or no permit is left.
        """
        permits = iter([self._permit() for _ in range(count)])

        def release(total: BoundedSum) -> Vector:
            self._check(total)
            permit = next(permits, None)
            if permit is None:
                raise PrivacyError.about("door", "has released all that was taken ahead", "take more", count=count)
            return total.released_by(self.mechanism, permit, self.source)

        return release

    def _check(self, total: BoundedSum) -> None:
        if total.groups:
            raise PrivacyError.about("door", "is over groups with accounts of their own", groups=sorted(total.groups))
        if events.records_in(self.charged) not in (None, total.records):
            raise PrivacyError.about(
                "door", "is not in how many records a unit moves the sum", charged=self.charged, records=total.records
            )

    def _permit(self) -> Permit:
        return self.reservation.take(self.accounts, events.key(self.charged))


@dataclass(frozen=True)
class GroupDoor:
    """The exit of a sum over public groups: one noise, and each group pays for what its own units move the sum.

    Args:
        mechanism: The noise, over the largest of the groups' bounds.
        charges: Per group: its account, and what the ledger charged it for one release.
        reservation: The durable charge.
        source: Where the noise comes from.
    """

    mechanism: Mechanism
    charges: Mapping[str, tuple[str, Event]]
    reservation: Reservation
    source: NoiseSource

    def __call__(self, total: BoundedSum) -> Vector:
        """Release one sum.

        Raises:
            PrivacyError: A group is not paid for, or has less noise over its bound than it was charged for.
        """
        if not total.groups or total.groups.keys() != self.charges.keys() or total.records != 1:
            raise PrivacyError.about("door", "are not those that pay", groups=sorted(total.groups))
        drawn_law, drawn = events.noise_of(self.mechanism.event())
        for group, (account, event) in self.charges.items():
            law, charged = events.noise_of(event)
            # As noise over the clip: drawn · largest bound ≥ charged · own bound, up to the last bits of a float.
            least = charged * total.groups[group] / total.l2 * (1 - 1e-12)
            if law != "gaussian" or drawn_law != law or drawn < least or events.records_in(event) not in (None, 1):
                raise PrivacyError.about("door", "is not the noise that is charged", account=account, multiplier=drawn)
        permit = self.reservation.take_each((account, events.key(event)) for account, event in self.charges.values())
        return total.released_by(self.mechanism, permit, self.source)


class Release(Protocol):
    """What a trainer is handed instead of a mechanism: a bounded sum in, a public vector out."""

    def __call__(self, total: BoundedSum) -> Vector:
        """Release one sum."""
        ...
