"""The exit of one party's part of a sum whose noise all parties draw together: whole numbers, sealed, then masked.

    BoundedSum ──► encode ──► + one share of the noise ──► modulo 2^bits ──► Share ──masked──► what is sent

A share alone carries too little noise to be seen: its only way out is a function that masks it. The sum of the shares
is a release, and its noise is what was charged as soon as `honest` of the parties that drew one told nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.privacy import events, integer_noise
from sordino.privacy.doors import Mechanism
from sordino.privacy.kernel import BoundedSum, _Sealed
from sordino.privacy.noise import Floats, Integers, NoiseSource, Words
from sordino.privacy.permits import Reservation, SharePermit

if TYPE_CHECKING:
    from sordino.privacy.events import Event

T = TypeVar("T")


class Encoder(Protocol):
    """A vector as whole numbers modulo a power of two, with how far one unit then moves them."""

    @property
    def clip(self) -> float:
        """The bound that all parties' noise is for."""
        ...

    @property
    def alone(self) -> bool:
        """Whether what is encoded is one unit's own vector."""
        ...

    @property
    def length(self) -> int:
        """How many whole numbers a vector becomes."""
        ...

    def bound(self) -> tuple[float, float]:
        """How far one unit moves the whole numbers, in L2 and L1."""
        ...

    def encode(self, vector: Floats, source: NoiseSource) -> Integers:
        """Whole numbers, shape (length,), not yet modulo anything."""
        ...

    def wrapped(self, whole: Integers) -> Words:
        """Modulo the power of two."""
        ...


class SharedMechanism(Mechanism, Protocol):
    """A law of noise in whole numbers that parties can draw in shares."""

    def share(self, source: NoiseSource, permit: SharePermit, scale: float, size: int, *, honest: int) -> Integers:
        """One of `honest` shares of noise whose std is `scale` whole steps when they are summed. Shape (size,)."""
        ...


class Share(_Sealed):
    """One party's whole numbers with its share of the noise. It shows nothing, and leaves once, masked."""

    __slots__ = ("__used", "__words")

    def __init__(self, proof: object, words: Words) -> None:
        if proof is not _PROOF:
            raise PrivacyError.about("share", "cannot be made by hand", "let a ShareDoor draw it")
        self.__words = words

    def masked(self, mask: Callable[[Words], T]) -> T:
        """What a mask makes of the whole numbers, as the secure summation sends it.

        Args:
            mask: Adds what the other parties take away again. Shape (length,), uint64, below 2^bits.

        Raises:
            PrivacyError: It was masked already; the difference of two masked copies may tell what is inside.
        """
        if hasattr(self, "_Share__used"):
            raise PrivacyError.about("share", "was masked already", "send what the first mask gave")
        self.__used = True
        return mask(self.__words)


_PROOF = object()


@dataclass(frozen=True)
class ShareDoor:
    """Takes one permit from the charge of one release, and lets the named parties draw a share of its noise each.

    Args:
        mechanism: The noise of the sum.
        encoding: How vectors become whole numbers; all parties' the same.
        honest: How many shares carry the planned noise: `honest(…)`.
        charged: What the ledger charged for one release: the mechanism's own event.
        accounts: Whose accounts pay.
        reservation: The durable charge; a party's own, or one for all.
        source: Where the noise comes from.
    """

    mechanism: SharedMechanism
    encoding: Encoder
    honest: int
    charged: Event
    accounts: tuple[str, ...]
    reservation: Reservation
    source: NoiseSource

    def __post_init__(self) -> None:
        checks.count("share", honest=self.honest)
        event, (l2, l1) = self.mechanism.event(), self.encoding.bound()
        if not integer_noise.is_whole(event) or self.charged != event:
            raise PrivacyError.about("share", "is not the noise that is drawn", charged=self.charged)
        if not (math.isclose(event.l2, l2, rel_tol=1e-9) and math.isclose(event.l1, l1, rel_tol=1e-9)):
            raise PrivacyError.about(
                "share", "is not for the whole numbers of the encoding", charged=event, l2=l2, l1=l1
            )
        if getattr(event, "size", self.encoding.length) != self.encoding.length:
            raise PrivacyError.about("share", "is for another number of coordinates", charged=event)
        if self.honest > getattr(event, "shares", self.honest):
            raise PrivacyError.about("share", "are more, hence smaller, shares than are charged", honest=self.honest)

    def parts(self, parties: Sequence[str]) -> dict[str, Callable[[BoundedSum], Share]]:
        """For each party, a way to turn its own sum into its share; each works once. One permit for all of them.

        Raises:
            PrivacyError: The charge does not cover another release. Later: a sum is not of the unit or bound.
        """
        permit = self.reservation.take(self.accounts, events.key(self.charged))
        return {party: self._part(share) for party, share in zip(parties, permit.shares(parties), strict=True)}

    def _part(self, permit: SharePermit) -> Callable[[BoundedSum], Share]:
        def part(total: BoundedSum) -> Share:
            words = total.shared_by(self.mechanism, self.encoding, permit, self.source, honest=self.honest)
            return Share(_PROOF, words)

        return part


def honest(cohort: int, minimum: int, colluding: float) -> int:
    """How many shares carry the planned noise at worst: the fewest parties that may remain, less those that tell.

    Args:
        cohort: Parties that start a round, n.
        minimum: The fewest that a sum is opened for; below it the round is given up.
        colluding: Declared share of the cohort that would tell its noise, in [0, 1).

    Raises:
        PrivacyError: Nobody would be left.

    >>> honest(20, 15, 0.1), honest(4, 4, 0.0)
    (13, 4)
    """
    checks.count("share", cohort=cohort, minimum=minimum)
    left = minimum - math.ceil(colluding * cohort - 1e-9)
    if minimum > cohort or not 0 <= colluding < 1 or left < 1:
        raise PrivacyError.about(
            "share",
            "leave nobody whose noise is secret",
            "wait for more parties or trust more of them",
            cohort=cohort,
            minimum=minimum,
            colluding=colluding,
        )
    return left
