"""The server of one sum: it passes on what clients say, keeps one running sum, and takes the masks off at the end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError
from sordino.federation.secure import keys, masks
from sordino.federation.secure.framing import Message
from sordino.federation.secure.messages import (
    Advert,
    Consent,
    Masked,
    Revealed,
    Sealed,
    Shares,
    Verify,
    believe,
    fingerprint,
    roll,
    whole,
)
from sordino.federation.secure.terms import Terms
from sordino.federation.secure.unmasking import Secrets


class Server:
    """Hears one message after the other; each closing method ends a stage for good.

    `hear` raises on a bad message and stays as it was: whoever sent it counts as lost, the others go on. A message of
    a stage that has ended is refused, so a late vector is never counted.

    Args:
        terms: What was announced.
        verify: As for a client. The server's own checks only spare the clients work: each client checks again.
    """

    def __init__(self, terms: Terms, *, verify: Verify) -> None:
        self.terms = terms
        self._verify = verify
        self._expected: type[Message] | None = Advert
        self._heard: set[int] = set()  # in this stage
        self._adverts: dict[int, Advert] = {}
        self._shares: dict[int, Shares] = {}
        self._sharers: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._consents: dict[int, Consent] = {}
        self._total = masks.words(np.zeros(terms.size, dtype=np.uint64), terms.bits)
        self._secrets = Secrets(terms)

    def hear(self, message: Message) -> None:
        """Take one message of the current stage.

        Raises:
            EngineError: It is of another stage or sum, comes twice, is by nobody who is still there, or is malformed.
        """
        if type(message) is not self._expected:
            raise EngineError.about("secure", "is not of this stage", message=type(message).__name__)
        message.check(self.terms, self._heard)
        match message:
            case Advert():
                believe(message, message.text, self._verify)
                self._adverts[message.sender] = message
            case Shares():
                self._hear_shares(message)
            case Masked():
                self._hear_masked(message)
                self._total += masks.words(message.vector(self.terms), self.terms.bits)
            case Consent():
                self._among(message, self._survivors)
                believe(message, roll(self.terms.digest, self._survivors), self._verify)
                self._consents[message.sender] = message
            case Revealed():
                self._hear_revealed(message)
        self._heard.add(message.sender)

    def adverts(self) -> dict[int, tuple[Advert, ...]]:
        """End stage 0: for each client that advertised, the adverts of its neighbours.

        Raises:
            EngineError: Fewer than the threshold are there.
        """
        present = self._close(Shares)
        return {own: tuple(self._adverts[other] for other in self._around(own, present)) for own in present}

    def sealed(self) -> dict[int, tuple[Sealed, ...]]:
        """End stage 1: for each client that shared, what its neighbours sealed for it.

        Raises:
            EngineError: Fewer than the threshold are there.
        """
        self._sharers = self._close(Masked)
        digest, boxes = self.terms.digest, {own: dict(shares.boxes) for own, shares in self._shares.items()}
        return {
            own: tuple(Sealed(digest, other, own, boxes[other][own]) for other in self._around(own, self._sharers))
            for own in self._sharers
        }

    @property
    def present(self) -> tuple[int, ...]:
        """Who has spoken in this stage, sorted."""
        return tuple(sorted(self._heard))

    @property
    def agreed(self) -> bool:
        """After stage 2: whether nobody is missing, so that all have consented with their vectors."""
        return self.terms.degree is None and self._survivors == self._sharers

    def survivors(self) -> tuple[int, ...]:
        """End stage 2: whose vectors are in the sum. If they are all `agreed`, stage 3 is over, too.

        Raises:
            EngineError: Fewer than the threshold are there; nothing can be unmasked.
        """
        self._survivors = self._close(Consent)
        if self.agreed:
            self._heard.update(self._consents)
        else:
            self._consents.clear()
        return self._survivors

    def consents(self) -> tuple[Consent, ...]:
        """End stage 3: the signatures under the list of survivors, for everybody who gave one.

        Raises:
            EngineError: Fewer than the threshold agreed; nothing can be unmasked.
        """
        self._close(Revealed)
        return tuple(self._consents.values())

    def total(self) -> NDArray[np.uint64]:
        """End stage 4: the sum of the survivors' vectors modulo 2^bits.

        Returns:
            Shape (size,), uint64.

        Raises:
            EngineError: Some secret has fewer shares than a quorum, or its shares do not fit it.
        """
        self._close(None)
        for owner in self._survivors:
            seed = self._secrets.seed(owner)
            if fingerprint(self.terms.digest, owner, seed) != self._shares[owner].seed_hash:
                raise EngineError.about("secure", "the shares do not give its seed", member=owner)
            masks.take(self._total, seed)
        for owner in self._lost():
            self._unpair(owner)
        return masks.residues(self._total, self.terms.bits)

    def _unpair(self, owner: int) -> None:
        """Take off what the survivors put on for a neighbour that is gone."""
        around = self._around(owner, self._survivors)
        if not around:
            return
        pair = keys.Pair.of(self._secrets.private(owner))
        if pair.public != self._adverts[owner].mask_key:
            raise EngineError.about("secure", "the shares do not give its key", member=owner)
        for other in around:
            key = keys.mask_key(pair, self._adverts[other].mask_key, self.terms.digest, owner, other)
            (masks.take if other < owner else masks.put)(self._total, key)

    def _hear_masked(self, message: Masked) -> None:
        self._among(message, self._sharers)
        if self.terms.degree is None:
            believe(message, whole(self.terms.digest, self._sharers), self._verify)
            self._consents[message.sender] = Consent(message.digest, message.sender, message.signature)

    def _hear_shares(self, message: Shares) -> None:
        self._among(message, self._adverts)
        if {recipient for recipient, _ in message.boxes} != set(self._around(message.sender, self._adverts)):
            raise EngineError.about("secure", "has not one box for each neighbour", sender=message.sender)
        self._shares[message.sender] = message

    def _hear_revealed(self, message: Revealed) -> None:
        self._among(message, self._consents)
        near = [message.sender, *self.terms.neighbours[message.sender]]
        seeds, private = dict(message.seeds), dict(message.keys)
        if seeds.keys() != set(near) & set(self._survivors) or private.keys() != set(near) & set(self._lost()):
            raise EngineError.about("secure", "reveals other shares than it was asked for", sender=message.sender)
        self._secrets.add(message)

    def _lost(self) -> tuple[int, ...]:
        return tuple(sorted(set(self._sharers) - set(self._survivors)))

    def _around(self, own: int, present: Iterable[int]) -> list[int]:
        return sorted(self.terms.neighbours[own] & set(present))

    def _among(self, message: Message, present: Iterable[int]) -> None:
        if message.sender not in set(present):
            raise EngineError.about("secure", "was lost before", message=type(message).__name__, sender=message.sender)

    def _close(self, following: type[Message] | None) -> tuple[int, ...]:
        """End the stage before `following`, if enough have spoken in it."""
        order = (Advert, Shares, Masked, Consent, Revealed, None)
        if self._expected is None or following is not order[order.index(self._expected) + 1]:
            raise EngineError.about("secure", "the stages end once, in their order")
        stage, present, self._heard, self._expected = self._expected, tuple(sorted(self._heard)), set(), following
        if len(present) < self.terms.threshold:
            self._expected = None
            raise EngineError.about(
                "secure", f"are fewer than the threshold of {self.terms.threshold}", **{stage.__name__: len(present)}
            )
        return present
