"""What is said in one secure sum, and its bytes.

stage       client says   server answers
advertise   Advert        the Adverts of its neighbours
share       Shares        the Sealed boxes of its neighbours
mask        Masked        the list of survivors
consent     Consent       the Consents of all survivors that gave one
reveal      Revealed      (the sum)

Every message has one text: magic, kind, the digest of the terms, the sender, then its parts with their lengths.
Whatever is not exactly such a text is refused.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, VerificationError
from sordino.federation.secure import packing
from sordino.federation.secure.shamir import SHARE_BYTES
from sordino.federation.secure.terms import Terms

_HEAD = struct.Struct(">4sB32sI")
_LENGTH = struct.Struct(">Q")
_PLACE = struct.Struct(">I")
_MAGIC = b"SSUM"

Verify = Callable[[int, bytes, str], None]
"""Returns only if the member at a position signed a text; else raises VerificationError."""

BOX_BYTES = 2 * SHARE_BYTES + 16
"""Two shares and the tag of the box."""


@dataclass(frozen=True)
class Message:
    """What all messages have.

    Args:
        digest: Of the terms.
        sender: Its position.
    """

    kind: ClassVar[int]
    digest: bytes
    sender: int

    def to_bytes(self) -> bytes:
        """The one text of this message."""
        framed = (piece for part in self._parts() for piece in (_LENGTH.pack(len(part)), part))
        return _HEAD.pack(_MAGIC, self.kind, self.digest, self.sender) + b"".join(framed)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            EngineError: It is not exactly what `to_bytes` writes.
        """
        try:
            magic, kind, digest, sender = _HEAD.unpack_from(data)
            message = cls._of(digest, sender, _split(data))
        except (struct.error, ValueError, TypeError) as error:
            raise EngineError.about("secure", "the bytes cannot be read", message=cls.__name__) from error
        if magic != _MAGIC or kind != cls.kind:
            raise EngineError.about("secure", "the bytes are of another kind", message=cls.__name__)
        return message

    def check(self, terms: Terms, known: Container[int] = ()) -> None:
        """Return only if it is the first by a member, in this sum.

        Args:
            terms: Of this sum.
            known: Whose messages of this kind are there already.

        Raises:
            EngineError: It was replayed, or lies.
        """
        if self.digest != terms.digest:
            raise EngineError.about("secure", "is of another sum", message=type(self).__name__, sender=self.sender)
        if self.sender not in terms.neighbours:
            raise EngineError.about("secure", "is by no member", message=type(self).__name__, sender=self.sender)
        if self.sender in known:
            raise EngineError.about("secure", "comes twice", message=type(self).__name__, sender=self.sender)

    def _parts(self) -> Sequence[bytes]:
        raise NotImplementedError

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        raise NotImplementedError


def _split(data: bytes) -> list[bytes]:
    parts, at = [], _HEAD.size
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > len(data) - at:
            raise ValueError
        parts.append(data[at : at + length])
        at += length
    return parts


def _exactly(part: bytes, length: int) -> bytes:
    if len(part) != length:
        raise ValueError
    return part


def _placed(part: bytes, length: int) -> tuple[tuple[int, bytes], ...]:
    """Entries of a position and `length` bytes, in rising order of position."""
    entry = struct.Struct(f">I{length}s")
    entries = tuple(entry.iter_unpack(part))
    positions = [position for position, _ in entries]
    if positions != sorted(set(positions)):
        raise ValueError
    return entries


def _laid(entries: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(_PLACE.pack(position) + value for position, value in entries)


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
        return b"sordino secure sum, advert\n" + self.digest + _PLACE.pack(self.sender) + self.seal_key + self.mask_key

    def _parts(self) -> Sequence[bytes]:
        return self.seal_key, self.mask_key, self.signature.encode()

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        seal_key, mask_key, signature = parts
        return cls(digest, sender, _exactly(seal_key, 32), _exactly(mask_key, 32), signature.decode("ascii"))


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
        return _PLACE.pack(self.recipient), self.box

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        place, box = parts
        (recipient,) = _PLACE.unpack(place)
        return cls(digest, sender, recipient, _exactly(box, BOX_BYTES))


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
        return self.seed_hash, _laid(self.boxes)

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        seed_hash, boxes = parts
        return cls(digest, sender, _exactly(seed_hash, 32), _placed(boxes, BOX_BYTES))


def fingerprint(digest: bytes, sender: int, seed: bytes) -> bytes:
    """A hash of a seed of 256 random bits: it shows a wrong one, and nothing of the right one."""
    return hashlib.sha256(b"sordino secure sum, seed\n" + digest + _PLACE.pack(sender) + seed).digest()


@dataclass(frozen=True)
class Masked(Message):
    """A client's vector under its masks: `bits` per coordinate, uniform to whoever lacks one mask.

    Args:
        digest: Of the terms.
        sender: Its position.
        packed: See `packing`.
    """

    kind = 4
    packed: bytes

    def vector(self, terms: Terms) -> NDArray[np.uint64]:
        """The masked numbers. Shape (size,), uint64.

        Raises:
            EngineError: Its length does not fit the terms.
        """
        return packing.unpack(self.packed, terms.size, terms.bits)

    def _parts(self) -> Sequence[bytes]:
        return (self.packed,)

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        (packed,) = parts
        return cls(digest, sender, packed)


@dataclass(frozen=True)
class Consent(Message):
    """A survivor's signature under the list of survivors.

    Args:
        digest: Of the terms.
        sender: Its position.
        signature: Over `roll`.
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
    return b"sordino secure sum, survivors\n" + digest + b"".join(map(_PLACE.pack, survivors))


def believe(message: Advert | Consent, text: bytes, verify: Verify) -> None:
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
        return _laid(self.seeds), _laid(self.keys)

    @classmethod
    def _of(cls, digest: bytes, sender: int, parts: Sequence[bytes]) -> Self:
        seeds, keys = starmap(_placed, ((part, SHARE_BYTES) for part in parts))
        if {position for position, _ in seeds} & {position for position, _ in keys}:
            raise ValueError
        return cls(digest, sender, seeds, keys)
