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
from sordino.privacy import discrete
from sordino.privacy.permits import Permit, SharePermit

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]

REKEY_BYTES = 2**34
"""Bytes drawn under one key; ChaCha20's counter would end after 2^38."""

PAIRS = 2**12
"""Pairs of draws made at once: what is between the keystream and the draws stays in the processor's cache."""

_WORD, _SIGNED = np.dtype("<u8"), np.dtype("<i8")
_ZEROS = memoryview(bytes(32 * PAIRS))


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

    def skellam(self, permit: Permit | SharePermit, variance: float, size: int) -> Integers:
        """Independent Skellam draws of that variance: whole numbers, shape (size,), int64."""
        ...

    def discrete_gaussian(self, permit: Permit | SharePermit, sigma: float, size: int) -> Integers:
        """Independent discrete Gaussian draws with parameter σ: whole numbers, shape (size,), int64."""
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

    def fill(self, words: Words) -> Words:
        """64 random bits for each, in place."""
        if words.nbytes > self._left:
            self._start(self._cipher.update(bytes(32)))
        self._left -= words.nbytes
        zeros = _ZEROS[: words.nbytes] if words.nbytes <= len(_ZEROS) else bytes(words.nbytes)
        self._cipher.update_into(zeros, words.data.cast("B"))
        return words

    def uniform(self, size: int) -> Floats:
        words = self.fill(np.empty(size, dtype=_WORD))
        # 53 bits, shifted by half a step: never 0; the last one would be rounded to 1.
        drawn = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return np.minimum(drawn, 1 - 2.0**-53, out=drawn)


def _logarithms(words: Words, out: Floats) -> Floats:
    """Logarithms of uniform numbers from two words each, shape (2, size): 63 more bits below the first 63.

    With one word alone the tail has few and widely spaced values, and whoever can rule out all but some of them can
    tell neighbours apart for certain: with 53 bits and a million coordinates, in one run of a thousand.
    """
    # As signed integers: the conversion of unsigned ones branches on the highest bit, eight times as slow.
    first, rest = np.right_shift(words, np.uint64(1), out=words).view(_SIGNED)
    np.add(rest, 0.5, out=out)  # never zero, so that the logarithm is finite
    out *= 2.0**-63
    out += first
    out *= 2.0**-63
    return np.log(out, out=out)


def _normal(stream: _Keystream, std: float, size: int) -> Floats:
    """By pairs, from three words each: a radius and the tangent t of half an angle.

    One tangent costs an eighth of a sine and a cosine: cos a = 2 / (1 + t²) - 1 and sin a = 2 t / (1 + t²), with errors
    below 2^-50 at every angle.
    """
    drawn = np.empty(size)
    words, rooms = np.empty(3 * PAIRS, dtype=_WORD), np.empty((3, min(size + 1, 2 * PAIRS) // 2))
    for start in range(0, size, 2 * PAIRS):
        block = drawn[start : start + 2 * PAIRS]
        half = (len(block) + 1) // 2
        own = stream.fill(words[: 3 * half]).reshape(3, half)
        radius, tangent, second = rooms[:, :half]
        _logarithms(own[:2], radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        np.multiply(own[2].view(_SIGNED), np.pi * 2.0**-64, out=tangent)  # half the angle, from -π/2 to π/2
        np.tan(tangent, out=tangent)
        np.square(tangent, out=second)
        second += 1.0
        np.divide(radius, second, out=second)
        second *= 2.0
        np.subtract(second, radius, out=block[:half])
        second *= tangent
        block[half:] = second[: len(block) - half]
    drawn *= std
    return drawn


def _laplace(stream: _Keystream, scale: float, size: int) -> Floats:
    """Differences of two exponential draws each."""
    drawn = np.empty(size)
    words, logs = np.empty(4 * PAIRS, dtype=_WORD), np.empty(2 * PAIRS)
    for start in range(0, size, PAIRS):
        block = drawn[start : start + PAIRS]
        one, two = _logarithms(stream.fill(words[: 4 * len(block)]).reshape(2, -1), logs[: 2 * len(block)]).reshape(
            2, -1
        )
        np.subtract(two, one, out=block)
    drawn *= scale
    return drawn


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

    def skellam(self, permit: Permit | SharePermit, variance: float, size: int) -> Integers:
        _use_whole(permit, test=False, scale=variance)
        return discrete.skellam(self._fresh(), variance, size)

    def discrete_gaussian(self, permit: Permit | SharePermit, sigma: float, size: int) -> Integers:
        _use_whole(permit, test=False, scale=sigma)
        return discrete.discrete_gaussian(self._fresh(), sigma, size)

    def uniform(self, size: int) -> Floats:
        return self._fresh().uniform(size)


class SeededNoise:
    """Reproducible noise for simulation. No privacy: whoever knows the seed can subtract it.

    Each release has a stream of its own, derived from seed, transaction, payers and how many they drew before, so that
    a resumed run never draws one release's noise for another, and a silo draws the same in a process of its own.

    Args:
        seed: Any whole number.
    """

    test = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._coins = _Keystream(self._key("coins"))

    def _key(self, purpose: str) -> bytes:
        return hashlib.sha256(f"{self._seed}/{purpose}".encode()).digest()

    def _stream(self, permit: Permit | SharePermit) -> _Keystream:
        return _Keystream(self._key(f"noise/{permit.txid}/{permit.stream}"))

    def normal(self, permit: Permit, std: float, size: int) -> Floats:
        _use(permit, test=True, scale=std)
        return _normal(self._stream(permit), std, size)

    def laplace(self, permit: Permit, scale: float, size: int) -> Floats:
        _use(permit, test=True, scale=scale)
        return _laplace(self._stream(permit), scale, size)

    def skellam(self, permit: Permit | SharePermit, variance: float, size: int) -> Integers:
        _use_whole(permit, test=True, scale=variance)
        return discrete.skellam(self._stream(permit), variance, size)

    def discrete_gaussian(self, permit: Permit | SharePermit, sigma: float, size: int) -> Integers:
        _use_whole(permit, test=True, scale=sigma)
        return discrete.discrete_gaussian(self._stream(permit), sigma, size)

    def uniform(self, size: int) -> Floats:
        return self._coins.uniform(size)

    def apart(self, label: str) -> SeededNoise:
        """The same noise, with coins of their own: whoever else draws some, before or after, changes none of them."""
        other = SeededNoise(self._seed)
        other._coins = _Keystream(self._key(f"coins/{label}"))
        return other


def apart(source: NoiseSource, label: str) -> NoiseSource:
    """A source whose seeded coins depend on nobody else's draws; any other source as it is."""
    return source.apart(label) if isinstance(source, SeededNoise) else source


def _use(permit: object, *, test: bool, scale: float) -> None:
    if not isinstance(permit, Permit):
        raise PrivacyError.about("noise", "is drawn only under a permit", "reserve the release in a ledger first")
    _use_whole(permit, test=test, scale=scale)


def _use_whole(permit: object, *, test: bool, scale: float) -> None:
    """Noise of whole numbers may also be drawn in shares."""
    if not isinstance(permit, (Permit, SharePermit)):
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
