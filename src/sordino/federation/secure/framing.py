"""The bytes of every message: magic, kind, the digest of the terms, the sender, then parts with their lengths.

Each message has one text. Whatever is not exactly such a text is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from sordino.core.errors import EngineError
from sordino.federation.secure.terms import Terms

PLACE = struct.Struct(">I")
"""A position."""

_HEAD = struct.Struct(">4sB32sI")
_LENGTH = struct.Struct(">Q")
_MAGIC = b"SSUM"


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


def exactly(part: bytes, length: int) -> bytes:
    """The part, if it has this length; else ValueError."""
    if len(part) != length:
        raise ValueError
    return part


def placed(part: bytes, length: int) -> tuple[tuple[int, bytes], ...]:
    """Entries of a position and `length` bytes, in rising order of position; else ValueError."""
    entry = struct.Struct(f">I{length}s")
    entries = tuple(entry.iter_unpack(part))
    positions = [position for position, _ in entries]
    if positions != sorted(set(positions)):
        raise ValueError
    return entries


def laid(entries: Sequence[tuple[int, bytes]]) -> bytes:
    """The inverse of `placed`."""
    return b"".join(PLACE.pack(position) + value for position, value in entries)
