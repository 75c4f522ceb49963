"""Keys of one sum: X25519 pairs, what two members agree on, and boxes that only one of them opens.

Every key is for one purpose, one pair of members, one direction and one sum, so a nonce of zeros is used once.

Source:
    RFC 7748 (X25519), RFC 5869 (HKDF), RFC 8439 (ChaCha20-Poly1305).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sordino.core.errors import EngineError

NONCE = bytes(12)


@dataclass(frozen=True)
class Pair:
    """A private key of 32 bytes and its public half. It does not print."""

    private: bytes = field(repr=False)
    public: bytes

    @classmethod
    def of(cls, private: bytes) -> Self:
        """The pair of a private key."""
        return cls(private, X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())

    @classmethod
    def fresh(cls, random: Callable[[int], bytes]) -> Self:
        """A new pair."""
        return cls.of(random(32))

    def agreed(self, public: bytes, digest: bytes, purpose: bytes) -> bytes:
        """32 bytes that only the owners of the two private keys can compute.

        Raises:
            EngineError: The other key is a point that would make the result public.
        """
        try:
            shared = X25519PrivateKey.from_private_bytes(self.private).exchange(
                X25519PublicKey.from_public_bytes(public)
            )
        except ValueError as error:
            raise EngineError.about("secure", "a public key is not usable") from error
        return HKDF(hashes.SHA256(), 32, salt=digest, info=purpose).derive(shared)


def mask_key(pair: Pair, public: bytes, digest: bytes, one: int, other: int) -> bytes:
    """The key of the mask between two members: the same from either side."""
    return pair.agreed(public, digest, b"mask" + _places(min(one, other), max(one, other)))


def seal(pair: Pair, public: bytes, digest: bytes, sender: int, recipient: int, text: bytes) -> bytes:
    """A box that only `recipient` opens, and only as one from `sender` in this sum."""
    way = _places(sender, recipient)
    return ChaCha20Poly1305(pair.agreed(public, digest, b"seal" + way)).encrypt(NONCE, text, digest + way)


def unseal(pair: Pair, public: bytes, digest: bytes, sender: int, recipient: int, box: bytes) -> bytes:
    """What `seal` put in.

    Raises:
        EngineError: The box is not by `sender`, for `recipient`, in this sum, or was changed.
    """
    way = _places(sender, recipient)
    try:
        return ChaCha20Poly1305(pair.agreed(public, digest, b"seal" + way)).decrypt(NONCE, box, digest + way)
    except InvalidTag as error:
        raise EngineError.about("secure", "the box does not open", sender=sender, recipient=recipient) from error


def _places(one: int, other: int) -> bytes:
    return one.to_bytes(4, "big") + other.to_bytes(4, "big")
