"""One client's secrets in one sum. It goes through the stages once, forwards, and is then used up."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.federation.secure import keys, masks, packing, shamir
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

STAGES = ("advertise", "share", "mask", "consent", "reveal")
"""The order in which everybody speaks."""

Sign = Callable[[bytes], str]


class Client:
    """A member of one sum.

    A stage that fails leaves the client useless: it never speaks twice in one stage, so a server that asks again, with
    another list, gets nothing. `consent` may be left out where nobody is missing; the order stays.

    Args:
        terms: What was announced. Whoever makes the client has checked them against its own rules.
        position: Its own, a member.
        sign: Signs with the silo's long-term key.
        verify: Returns only if the member at this position signed the text; else raises VerificationError.
        random: So many random bytes; for tests only.

    Raises:
        ConfigError: The position is not invited.
    """

    def __init__(
        self,
        terms: Terms,
        position: int,
        *,
        sign: Sign,
        verify: Verify,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if position not in terms.neighbours:
            raise ConfigError.about("secure", "is not among the members", position=position)
        self.terms, self.position = terms, position
        self._sign, self._verify, self._random = sign, verify, random
        self._stage = 0
        self._seal, self._mask, self._seed = keys.Pair.fresh(random), keys.Pair.fresh(random), random(32)
        self._adverts: dict[int, Advert] = {}
        self._shares: dict[int, bytes] = {}  # by owner: its seed's share, then its mask key's
        self._survivors: tuple[int, ...] = ()

    def advertise(self) -> Advert:
        """Stage 0: fresh public keys, signed together with the sum and the position."""
        self._enter("advertise")
        unsigned = Advert(self.terms.digest, self.position, self._seal.public, self._mask.public, "")
        return replace(unsigned, signature=self._sign(unsigned.text))

    def share(self, adverts: Sequence[Advert]) -> Shares:
        """Stage 1: a share of seed and mask key to each neighbour that advertised, and to itself.

        Args:
            adverts: At least those of its neighbours that the server has; others are not read.

        Raises:
            EngineError: An advert is not its sender's, is of another sum, or comes twice.
            PrivacyError: Fewer than a quorum, itself counted, are there to share with.
        """
        self._enter("share")
        for advert in adverts:
            if advert.sender in self.terms.neighbours[self.position]:
                advert.check(self.terms, self._adverts)
                believe(advert, advert.text, self._verify)
                self._adverts[advert.sender] = advert
        self._enough(self._adverts, "neighbours have advertised")
        holders = [self.position, *self._adverts]
        seeds, private = self._split(self._seed, holders), self._split(self._mask.private, holders)
        texts = {holder: seeds[holder] + private[holder] for holder in holders}
        self._shares[self.position] = texts[self.position]
        boxes = tuple((holder, self._sealed(holder, texts[holder])) for holder in sorted(self._adverts))
        digest = self.terms.digest
        return Shares(digest, self.position, fingerprint(digest, self.position, self._seed), boxes)

    def mask(self, inbox: Sequence[Sealed], vector: NDArray[np.uint64]) -> Masked:
        """Stage 2: the vector under its own mask and one mask with each neighbour that sent it shares.

        Where all pairs mask, it comes with the consent to a sum of exactly these.

        Args:
            inbox: What the neighbours sealed for it.
            vector: Shape (size,), uint64, below 2^bits. It is read, not kept.

        Raises:
            ConfigError: The vector does not fit the terms.
            EngineError: A box is not for it, does not open, or comes twice.
            PrivacyError: Fewer than a quorum, itself counted, share with it.
        """
        self._enter("mask")
        self._check_vector(vector)
        for sealed in inbox:
            sealed.check(self.terms, self._shares)
            self._shares[sealed.sender] = self._opened(sealed)
        partners = self._shares.keys() - {self.position}
        self._enough(partners, "neighbours share with it")
        total = masks.words(vector, self.terms.bits)
        masks.put(total, self._seed)
        for partner in partners:
            public = self._adverts[partner].mask_key
            key = keys.mask_key(self._mask, public, self.terms.digest, self.position, partner)
            (masks.put if self.position < partner else masks.take)(total, key)
        packed = packing.pack(masks.residues(total, self.terms.bits), self.terms.bits)
        return Masked(self.terms.digest, self.position, packed, "" if self._circle else self._sign(self._whole))

    def consent(self, survivors: Sequence[int]) -> Consent:
        """Stage 3: a signature under the list of those whose vectors the sum will have.

        Raises:
            PrivacyError: The list has too few members, strangers, not itself, or a neighbour it has no mask with.
        """
        self._enter("consent")
        listed, around = set(survivors), self.terms.neighbours[self.position]
        if list(survivors) != sorted(listed) or not listed <= self.terms.neighbours.keys():
            raise PrivacyError.about("secure", "must be members, sorted, each once", survivors=tuple(survivors))
        if self.position not in listed:
            raise PrivacyError.about("secure", "the list of survivors leaves out who is asked", position=self.position)
        if len(listed) < self.terms.threshold:
            raise PrivacyError.about(
                "secure", f"are fewer than the threshold of {self.terms.threshold}", survivors=len(listed)
            )
        if not listed & around <= self._shares.keys():
            raise PrivacyError.about("secure", "a survivor was never masked with", position=self.position)
        self._enough(listed & around, "neighbours survive")
        self._survivors = tuple(survivors)
        return Consent(self.terms.digest, self.position, self._sign(roll(self.terms.digest, self._survivors)))

    def reveal(self, consents: Sequence[Consent]) -> Revealed:
        """Stage 4: for each neighbour one share, of its seed if it survived, else of its mask key.

        Args:
            consents: Signatures under the very list that this client signed: in its consent, if it was asked for one,
                or else with its vector.

        Raises:
            EngineError: A consent is forged, of another sum or list, by no survivor, or comes twice.
            PrivacyError: Fewer than the threshold agree on the list.
        """
        text = self._agreed()
        self._enter("reveal")
        agreed: dict[int, Consent] = {}
        for consent in consents:
            consent.check(self.terms, agreed)
            if consent.sender not in self._survivors:
                raise EngineError.about("secure", "is by no survivor", message="Consent", sender=consent.sender)
            believe(consent, text, self._verify)
            agreed[consent.sender] = consent
        if len(agreed) < self.terms.threshold:
            raise PrivacyError.about(
                "secure", f"are fewer than the threshold of {self.terms.threshold}", consents=len(agreed)
            )
        held, half = sorted(self._shares.items()), shamir.SHARE_BYTES
        seeds = tuple((owner, text[:half]) for owner, text in held if owner in self._survivors)
        private = tuple((owner, text[half:]) for owner, text in held if owner not in self._survivors)
        self._shares.clear()
        return Revealed(self.terms.digest, self.position, seeds, private)

    def _agreed(self) -> bytes:
        """The text under which signatures count: one list of all those that it may have signed."""
        if STAGES[self._stage :][:1] == ("consent",) and not self._circle:
            self._enter("consent")
            self._survivors = tuple(sorted(self._shares))
            return self._whole
        return roll(self.terms.digest, self._survivors)

    @property
    def _whole(self) -> bytes:
        """What stands under its vector: itself and all with whom it is masked. On a circle it does not see them all."""
        return whole(self.terms.digest, sorted(self._shares))

    @property
    def _circle(self) -> bool:
        return self.terms.degree is not None

    def _enter(self, stage: str) -> None:
        """Go on to a stage, before anything in it can fail."""
        if STAGES[self._stage :][:1] != (stage,):
            raise PrivacyError.about("secure", "was done, or its turn has not come", stage=stage)
        self._stage += 1

    def _enough(self, others: Collection[int], rule: str) -> None:
        if len(others) + 1 < self.terms.needed:
            raise PrivacyError.about("secure", f"{rule}, but {self.terms.needed - 1} are needed", count=len(others))

    def _split(self, secret: bytes, holders: Sequence[int]) -> dict[int, bytes]:
        points = [holder + 1 for holder in holders]
        shares = shamir.split(int.from_bytes(secret, "big"), points, self.terms.needed, self._random)
        return {point - 1: shamir.to_bytes(share) for point, share in shares.items()}

    def _sealed(self, recipient: int, text: bytes) -> bytes:
        public = self._adverts[recipient].seal_key
        return keys.seal(self._seal, public, self.terms.digest, self.position, recipient, text)

    def _opened(self, sealed: Sealed) -> bytes:
        if sealed.recipient != self.position or sealed.sender not in self._adverts:
            raise EngineError.about("secure", "is not for this client, or by no neighbour", sender=sealed.sender)
        public = self._adverts[sealed.sender].seal_key
        return keys.unseal(self._seal, public, self.terms.digest, sealed.sender, self.position, sealed.box)

    def _check_vector(self, vector: NDArray[np.uint64]) -> None:
        if vector.dtype != np.uint64 or vector.shape != (self.terms.size,):
            raise ConfigError.about(
                "secure", f"must be uint64 of shape ({self.terms.size},)", dtype=str(vector.dtype), shape=vector.shape
            )
        if int(vector.max()) >> self.terms.bits:
            raise ConfigError.about("secure", f"has numbers of more than {self.terms.bits} bits")
