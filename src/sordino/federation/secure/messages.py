"""What is said in one secure sum, and its bytes.

stage       client says   server answers
advertise   Advert        the Adverts of its neighbours
share       Shares        the Sealed boxes of its neighbours
mask        Masked        the list of survivors, if somebody is missing; else as after `consent`, which is left out
consent     Consent       the Consents of all survivors that gave one
reveal      Revealed      (the sum)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, VerificationError
from sordino.federation.secure import packing
from sordino.federation.secure.framing import PLACE, Message, exactly, laid, placed
from sordino.federation.secure.shamir import SHARE_BYTES
from sordino.federation.secure.terms import Terms

Verify = Callable[[int, bytes, str], None]
"""Returns only if the member at a position signed a text; else raises VerificationError."""

BOX_BYTES = 2 * SHARE_BYTES + 16
"""Two shares and the tag of the box."""


@dataclass(frozen=True)
class Advert(Message):
    """The two public keys of a client, signed by its long-term key.

    Args:
        digest: Of the terms.
        sender: Its position.
        seal_key: For boxes to it.
        mask_key: For its pairwise masks.
        signature: Over `text`.
    """

    kind = 1
    seal_key: bytes
    mask_key: bytes
    signature: str

    @property
    def text(self) -> bytes:
        """What is signed: the sum, the position and both keys."""
        return b"sordino secure sum, advert\n" + self.digest + PLACE.pack(self.sender) + self.seal_key + self.mask_key

    def _parts(self) -> Sequence[bytes]:
        return self.seal_key, self.mask_key, self.signature.encode()

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        seal_key, mask_key, signature = parts
        return cls(digest, sender, exactly(seal_key, 32), exactly(mask_key, 32), signature.decode("ascii"))


@dataclass(frozen=True)
class Sealed(Message):
    """A share of the sender's two secrets, readable by one neighbour.

    Args:
        digest: Of the terms.
        sender: Its position.
        recipient: Who can open it.
        box: 82 bytes.
    """

    kind = 2
    recipient: int
    box: bytes

    def _parts(self) -> Sequence[bytes]:
        return PLACE.pack(self.recipient), self.box

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        place, box = parts
        (recipient,) = PLACE.unpack(place)
        return cls(digest, sender, recipient, exactly(box, BOX_BYTES))


@dataclass(frozen=True)
class Shares(Message):
    """All boxes of one client.

    Args:
        digest: Of the terms.
        sender: Its position.
        seed_hash: By which the server knows the self-mask's seed when it sees it; see `fingerprint`.
        boxes: Recipient and box, by recipient.
    """

    kind = 3
    seed_hash: bytes
    boxes: tuple[tuple[int, bytes], ...]

    @property
    def sealed(self) -> tuple[Sealed, ...]:
        """The boxes, one message each."""
        return tuple(Sealed(self.digest, self.sender, recipient, box) for recipient, box in self.boxes)

    def _parts(self) -> Sequence[bytes]:
        return self.seed_hash, laid(self.boxes)

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        seed_hash, boxes = parts
        return cls(digest, sender, exactly(seed_hash, 32), placed(boxes, BOX_BYTES))


def fingerprint(digest: bytes, sender: int, seed: bytes) -> bytes:
    """A hash of a seed of 256 random bits: it shows a wrong one, and nothing of the right one."""
    return hashlib.sha256(b"sordino secure sum, seed\n" + digest + PLACE.pack(sender) + seed).digest()


@dataclass(frozen=True)
class Masked(Message):
    """A client's vector under its masks: `bits` per coordinate, uniform to whoever lacks one mask.

    Args:
        digest: Of the terms.
        sender: Its position.
        packed: See `packing`.
        signature: Over `whole`, where all pairs mask; else empty.
    """

    kind = 4
    packed: bytes
    signature: str = ""

    def vector(self, terms: Terms) -> NDArray[np.uint64]:
        """The masked numbers. Shape (size,), uint64.

        Raises:
            EngineError: Its length does not fit the terms.
        """
        return packing.unpack(self.packed, terms.size, terms.bits)

    def _parts(self) -> Sequence[bytes]:
        return self.packed, self.signature.encode()

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        packed, signature = parts
        return cls(digest, sender, packed, signature.decode("ascii"))


@dataclass(frozen=True)
class Consent(Message):
    """A survivor's signature under the list of survivors.

    Args:
        digest: Of the terms.
        sender: Its position.
        signature: Over `roll`; or, taken from its `Masked`, over `whole`.
    """

    kind = 5
    signature: str

    def _parts(self) -> Sequence[bytes]:
        return (self.signature.encode(),)

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        (signature,) = parts
        return cls(digest, sender, signature.decode("ascii"))


def roll(digest: bytes, survivors: Sequence[int]) -> bytes:
    """What a consent signs: the sum and everybody who is in it."""
    return b"sordino secure sum, survivors\n" + digest + b"".join(map(PLACE.pack, survivors))


def whole(digest: bytes, sharers: Sequence[int]) -> bytes:
    """What comes with a vector: the consent to a sum of all with whom it is masked, and of the sender.

    It is another text than `roll`, so that a signature under one never counts as one under the other.
    """
    return b"sordino secure sum, nobody missing\n" + digest + b"".join(map(PLACE.pack, sharers))


def believe(message: Advert | Masked | Consent, text: bytes, verify: Verify) -> None:
    """Return only if the sender of a message signed the text.

    Raises:
        EngineError: It did not.
    """
    try:
        verify(message.sender, text, message.signature)
    except VerificationError as error:
        kind = type(message).__name__
        raise EngineError.about("secure", "is not by its sender", message=kind, sender=message.sender) from error


@dataclass(frozen=True)
class Revealed(Message):
    """One share per neighbour: of its seed if it survived, of its mask key if it did not. Never both.

    Args:
        digest: Of the terms.
        sender: Its position.
        seeds: Survivor and share of its seed, by survivor.
        keys: Lost member and share of its mask key, by member.
    """

    kind = 6
    seeds: tuple[tuple[int, bytes], ...]
    keys: tuple[tuple[int, bytes], ...]

    def _parts(self) -> Sequence[bytes]:
        return laid(self.seeds), laid(self.keys)

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        seeds, keys = starmap(placed, ((part, SHARE_BYTES) for part in parts))
        if {position for position, _ in seeds} & {position for position, _ in keys}:
            raise ValueError
        return cls(digest, sender, seeds, keys)
