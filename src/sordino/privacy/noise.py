"""Where noise and cohorts come from: a ChaCha20 keystream, keyed by the operating system.

Torch's and numpy's generators are not cryptographic: who sees enough outputs can predict the rest and subtract
the noise. A seeded source exists for simulation; everything charged under it is marked TEST.

Source: Box and Muller (1958) for the normal transform; RFC 8439 for ChaCha20.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.privacy.permits import Permit

Floats: TypeAlias = NDArray[np.float64]

REKEY_BYTES = 2**34
"""Bytes drawn under one key; ChaCha20's counter would end after 2^38."""


class NoiseSource(Protocol):
    """Draws noise under a permit, and public-free coins for sampling. `test` marks a predictable source."""

    @property
    def test(self) -> bool:
        """Whether someone could predict the draws."""
        ...

    def normal(self, permit: Permit, std: float, size: int) -> Floats:
        """Independent N(0, std²) draws, shape (size,), float64."""
        ...

    def laplace(self, permit: Permit, scale: float, size: int) -> Floats:
        """Independent Laplace(0, scale) draws, shape (size,), float64."""
        ...

    def uniform(self, size: int) -> Floats:
        """Independent draws from the open interval (0, 1), shape (size,): for sampling, not for release."""
        ...


class _Keystream:
    """ChaCha20 as a stream of random bytes. It takes a new key from itself long before its counter ends."""

    def __init__(self, key: bytes) -> None:
        self._start(key)

    def _start(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._left = REKEY_BYTES

    def take(self, size: int) -> bytes:
        if size > self._left:
            self._start(self._cipher.update(bytes(32)))
        self._left -= size
        return self._cipher.update(bytes(size))

    def uniform(self, size: int) -> Floats:
        bits = np.frombuffer(self.take(8 * size), dtype="<u8") >> np.uint64(11)
        # 53 bits, shifted by half a step: never 0 or 1, so that logarithms are finite.
        return (bits.astype(np.float64) + 0.5) * 2.0**-53

    def exponential(self, size: int) -> Floats:
        """Exponential draws with a full-range uniform: 53 more bits below the first 53.

        With 53 bits alone the tail has few and widely spaced values, and whoever can rule out all but some
        of them can tell neighbours apart for certain: at a million coordinates in one run of a thousand.
        """
        first, rest = self.uniform(2 * size).reshape(2, size)
        return -np.log(first - 2.0**-54 + rest * 2.0**-53)


def _normal(stream: _Keystream, std: float, size: int) -> Floats:
    half = (size + 1) // 2
    radius = np.sqrt(2.0 * stream.exponential(half))
    angle = (2.0 * np.pi) * stream.uniform(half)
    return std * np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def _laplace(stream: _Keystream, scale: float, size: int) -> Floats:
    first, second = stream.exponential(2 * size).reshape(2, size)
    return scale * (first - second)


class SystemNoise:
    """The default: keyed with 256 bits from the operating system, once per process.

    A forked child would repeat its parent's draws, so the key is renewed whenever the process changed.
    """

    test = False

    def __init__(self) -> None:
        self._pid = -1
        self._stream = _Keystream(bytes(32))

    def _fresh(self) -> _Keystream:
        if self._pid != os.getpid():
            self._pid, self._stream = os.getpid(), _Keystream(os.urandom(32))
        return self._stream

    def normal(self, permit: Permit, std: float, size: int) -> Floats:
        _use(permit, test=False, scale=std)
        return _normal(self._fresh(), std, size)

    def laplace(self, permit: Permit, scale: float, size: int) -> Floats:
        _use(permit, test=False, scale=scale)
        return _laplace(self._fresh(), scale, size)

    def uniform(self, size: int) -> Floats:
        return self._fresh().uniform(size)


class SeededNoise:
    """Reproducible noise for simulation. No privacy: whoever knows the seed can subtract it.

    Each release has a stream of its own, derived from seed, transaction and the permit's serial, so that a resumed
    run never draws one release's noise for another, nor do charges that take turns.

    Args:
        seed: Any whole number.
    """

    test = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._coins = _Keystream(self._key("coins"))

    def _key(self, purpose: str) -> bytes:
        return hashlib.sha256(f"{self._seed}/{purpose}".encode()).digest()

    def _stream(self, permit: Permit) -> _Keystream:
        return _Keystream(self._key(f"noise/{permit.txid}/{permit.serial}"))

    def normal(self, permit: Permit, std: float, size: int) -> Floats:
        _use(permit, test=True, scale=std)
        return _normal(self._stream(permit), std, size)

    def laplace(self, permit: Permit, scale: float, size: int) -> Floats:
        _use(permit, test=True, scale=scale)
        return _laplace(self._stream(permit), scale, size)

    def uniform(self, size: int) -> Floats:
        return self._coins.uniform(size)


def _use(permit: object, *, test: bool, scale: float) -> None:
    if not isinstance(permit, Permit):
        raise PrivacyError.about("noise", "is drawn only under a permit", "reserve the release in a ledger first")
    if test and not permit.test:
        raise PrivacyError.about(
            "noise", "comes from a seeded source, but the account is a real one", "open the account with test = true"
        )
    checks.positive("noise", scale=scale)
    permit.use()


def coins(source: NoiseSource, rate: float, size: int) -> NDArray[np.int64]:
    """Positions of the units that join when each joins independently with probability `rate`. Sorted."""
    checks.rate("sampling", rate=rate)
    return np.flatnonzero(source.uniform(size) < rate)


def choice(source: NoiseSource, population: int, size: int) -> NDArray[np.int64]:
    """A uniform subset of exactly `size` positions, sorted: the smallest of independent uniform keys."""
    return np.sort(np.argsort(source.uniform(population), kind="stable")[:size])
