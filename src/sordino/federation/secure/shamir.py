"""Secrets of 32 bytes, split so that any `quorum` shares give them back and fewer say nothing.

A random polynomial of degree quorum - 1 over the integers modulo a prime has the secret at 0 and one share at each
holder's own point. With one share less, every secret fits exactly one polynomial.

Source:
    Shamir (1979), "How to share a secret".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sordino.core.errors import EngineError

PRIME = 2**256 + 297
"""The smallest prime above all secrets."""

SHARE_BYTES = 33
"""Bytes of one share."""


def split(
    secret: int, points: Iterable[int], quorum: int, random: Callable[[int], bytes], prime: int = PRIME
) -> dict[int, int]:
    """A share for each point.

    Args:
        secret: 0 to prime - 1.
        points: Different numbers from 1 to prime - 1.
        quorum: Shares that are needed, 1 or more.
        random: So many random bytes.
        prime: Another one than PRIME only in tests, which try every polynomial.
    """
    # 16 bytes more than the prime has: what is left of uniformity after the remainder is below 2^-120.
    higher = [int.from_bytes(random(SHARE_BYTES + 16), "big") % prime for _ in range(quorum - 1)]
    shares = {}
    for point in points:
        value = 0
        for coefficient in higher:
            value = (value + coefficient) * point % prime
        shares[point] = (value + secret) % prime
    return shares


def weights(points: Sequence[int], prime: int = PRIME) -> dict[int, int]:
    """What each share counts in the secret: Lagrange's polynomials at 0."""
    found = {}
    for own in points:
        top = bottom = 1
        for other in points:
            if other != own:
                top = top * other % prime
                bottom = bottom * (other - own) % prime
        found[own] = top * pow(bottom, -1, prime) % prime
    return found


def joined(shares: Mapping[int, int], weighed: Mapping[int, int]) -> int:
    """The secret, from the shares at the points that `weights` was asked for.

    >>> import os
    >>> shares = split(42, range(1, 6), 3, os.urandom)
    >>> joined(shares, weights([5, 1, 4]))
    42
    """
    return sum(shares[point] * weight for point, weight in weighed.items()) % PRIME


def to_bytes(share: int) -> bytes:
    """33 bytes, big end first."""
    return share.to_bytes(SHARE_BYTES, "big")


def from_bytes(data: bytes) -> int:
    """The inverse of `to_bytes`.

    Raises:
        EngineError: It is none.
    """
    share = int.from_bytes(data, "big")
    if len(data) != SHARE_BYTES or share >= PRIME:
        raise EngineError.about("secure", "a share must be 33 bytes below the prime", bytes=len(data))
    return share
