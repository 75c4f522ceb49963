"""Sums under homomorphic encryption (CKKS, by TenSEAL), for a few silos: whoever adds cannot read what it adds.

    silo 1  update ── encrypt ──┐                       ┌── decrypt + flood ── the sum ──┐
    silo 2  update ── encrypt ──┼──► coordinator: add ──┤                                ├──► both alike? released
    silo 3  update ── encrypt ──┘                       └── decrypt + flood ── the sum ──┘

One secret key, which all silos hold and the coordinator does not. There is no public key: nobody else can encrypt.

What this hides, and from whom: a coordinator that follows the protocol learns the sum, not which silo sent what. It is
no more than that. One silo that works together with the coordinator opens every single update. A coordinator that asks
for a single update to be opened in place of a sum gets it: silos cannot tell them apart. So it serves updates that are
released already, with noise added at the silo, and no guarantee rests on it.

Flooding. CKKS is approximate: a decrypted sum holds the error of its ciphertext, which the coordinator has as well, and
the difference of the two is a linear equation in the key. A sum that is given back as it is decrypted gives away the
key (Li and Micciancio, 2021). So each silo adds noise far above that error, derived from the key and the ciphertext, so
that all silos add the same and asking twice tells nothing new. With a scale of 2^(bits + 65) the error of five
ciphertexts is below 2^(-bits - 53): what is given back is within 2^-40 of the same for any error, over 10^8 numbers, as
far as real numbers go; floats are coarser. That noise is for the key, not for privacy: it is counted nowhere.

Source:
    Cheon et al. (2017), eprint 2016/421, for CKKS. Li and Micciancio (2021), eprint 2020/1533, for the attack. Li et
    al. (2022), eprint 2022/816, for noise against it.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError, EngineError
from sordino.core.types import Vector

MOST = 5
"""Silos. With more, secure summation sends less and trusts nobody with everything."""

DEGREE, MODULI = 8192, (60, 60, 60)
"""180 bits under degree 8192: more than 128 bits of security, of which the table of HomomorphicEncryption.org allows
218. Ciphertexts have the first two primes; the third is never used, but SEAL wants one."""

SLOTS = DEGREE // 2
"""Numbers in one ciphertext."""

HIDDEN = 65
"""Bits of the scale below the finest bit of the sum: the error of five ciphertexts takes 12, 53 lie between."""

_MAGIC = b"SHOM"
_HEAD = struct.Struct(">4s32s32sB")
_LENGTH = struct.Struct(">Q")
_SECRET = 32


@dataclass(frozen=True)
class Terms:
    """What all silos and the coordinator know of one sum.

    Args:
        txid: The sum's own name: no ciphertext of one counts in another.
        members: How many silos send, 2 to 5.
        size: How long a vector is.
        bits: The sum is exact to a standard deviation of 2^-bits, 16 to 40; finer leaves less room for large numbers.
    """

    txid: str
    members: int
    size: int
    bits: int = 30

    def __post_init__(self) -> None:
        checks.count("homomorphic", members=self.members, size=self.size, bits=self.bits)
        if not 2 <= self.members <= MOST:
            raise ConfigError.about(
                "homomorphic", f"must be 2 to {MOST} silos", "use [secure_sum] for more", members=self.members
            )
        if not 16 <= self.bits <= 40:
            raise ConfigError.about("homomorphic", "must lie in 16 … 40", bits=self.bits)

    @functools.cached_property
    def digest(self) -> bytes:
        """Over everything that is known."""
        told = [self.txid, self.members, self.size, self.bits, DEGREE, MODULI]
        return hashlib.sha256(repr(told).encode()).digest()

    @property
    def scale(self) -> float:
        """By which numbers are multiplied before they are rounded to whole ones."""
        return 2.0 ** (self.bits + HIDDEN)

    @property
    def largest(self) -> float:
        """The largest number that a silo can send: the sum of all takes half of what fits.

        >>> Terms("round", members=4, size=10).largest == 2.0**21
        True
        """
        return float(2.0 ** (sum(MODULI[:-1]) - 2 - self.bits - HIDDEN) / self.members)


@dataclass(frozen=True)
class Key:
    """The one secret key of a few silos.

    Args:
        content: What its file holds; whoever has it reads every update.
    """

    content: bytes

    def __repr__(self) -> str:
        return f"Key({self.name[:8]})"

    @classmethod
    def generate(cls) -> Key:
        """A fresh one, from the system's randomness."""
        secret: bytes = _fresh().serialize(
            save_public_key=False, save_secret_key=True, save_galois_keys=False, save_relin_keys=False
        )
        return cls(os.urandom(_SECRET) + secret)

    @classmethod
    def load(cls, file: Path) -> Key:
        """One from its file.

        Raises:
            ConfigError: It cannot be read, or holds no key.
        """
        try:
            key = cls(file.read_bytes())
        except OSError as problem:
            raise ConfigError.about(
                "homomorphic", f"cannot be read: {problem.strerror}", "all silos need the same one", key=file.name
            ) from None
        if not key.context.has_secret_key():
            raise ConfigError.about("homomorphic", "is not a silo's secret key", key=file.name)
        return key

    @property
    def name(self) -> str:
        """Tells two keys apart, and nothing of either."""
        return hashlib.sha256(b"sordino homomorphic key\n" + self.content).hexdigest()

    @functools.cached_property
    def context(self) -> Any:
        """TenSEAL's own object."""
        return _loaded(self.content[_SECRET:])

    def flood(self, total: bytes, terms: Terms) -> NDArray[np.float64]:
        """The noise that goes over the sum in a ciphertext. The same for all who hold the key. Shape (size,)."""
        from scipy.special import ndtri

        seed = hmac.digest(self.content[:_SECRET], hashlib.sha256(total).digest(), "sha256")
        stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * terms.size))
        uniform = (np.frombuffer(stream, np.dtype("<u8")) >> np.uint64(11)).astype(np.float64) + 0.5
        return np.asarray(ndtri(uniform * 2.0**-53) * 2.0**-terms.bits, dtype=np.float64)


def encrypt(key: Key, terms: Terms, vector: Vector) -> bytes:
    """A silo's vector, for the coordinator to add.

    Raises:
        EngineError: It is not finite, too large, or of another length.
    """
    values = np.asarray(vector, dtype=np.float64)
    if values.shape != (terms.size,):
        raise EngineError.about("homomorphic", f"is not of shape ({terms.size},)", shape=values.shape)
    if not (np.abs(values) <= terms.largest).all():  # also where one is not a number
        raise EngineError.about(
            "homomorphic", f"are above {terms.largest:g} or not finite", "use fewer bits", bits=terms.bits
        )
    tenseal = _tenseal()
    pieces = (values[at : at + SLOTS] for at in range(0, terms.size, SLOTS))
    chunks = [tenseal.ckks_vector(key.context, piece, scale=terms.scale).serialize() for piece in pieces]
    return _framed(terms, bytes.fromhex(key.name), 1, chunks)


def add(terms: Terms, parts: Sequence[bytes]) -> bytes:
    """The sum of what silos sent, still encrypted. Needs no key.

    Raises:
        EngineError: Fewer than two, a part of another sum, more than all silos, or not a ciphertext.
        ConfigError: They are under different keys.
    """
    opened = [_opened(terms, part) for part in parts]
    if len({name for name, _, _ in opened}) > 1:
        raise ConfigError.about(
            "homomorphic", "are under different keys", "give all silos the same key file", keys=len(parts)
        )
    count = sum(number for _, number, _ in opened)
    if not 2 <= count <= terms.members:
        raise EngineError.about("homomorphic", f"must be 2 to {terms.members} silos' vectors", vectors=count)
    plain, columns = _without_key(), zip(*(pieces for _, _, pieces in opened), strict=True)
    chunks = [_summed([_vector(plain, piece) for piece in column]) for column in columns]
    return _framed(terms, opened[0][0], count, chunks)


def decrypt(key: Key, terms: Terms, total: bytes) -> Vector:
    """A sum of at least two silos' vectors, under the noise that keeps the key. Shape (size,), float32.

    Raises:
        EngineError: It is a single silo's vector, of another sum, or does not decrypt.
        ConfigError: It is under another key.
    """
    name, count, chunks = _opened(terms, total)
    if name.hex() != key.name:
        raise ConfigError.about(
            "homomorphic", "is under another key", "give all silos the same key file", key=repr(key)
        )
    if count < 2:
        raise EngineError.about("homomorphic", "is a single silo's: only sums are opened", vectors=count)
    values = np.concatenate([np.asarray(_vector(key.context, chunk).decrypt()) for chunk in chunks])
    # More than can be sent: the bytes are no sum under this key, whatever their head says.
    if values.shape != (terms.size,) or not (np.abs(values) < 1.5 * terms.largest * terms.members).all():
        raise EngineError.about("homomorphic", "does not decrypt", "nothing was opened", txid=terms.txid)
    return (values + key.flood(total, terms)).astype(np.float32)


def _framed(terms: Terms, name: bytes, count: int, chunks: Sequence[bytes]) -> bytes:
    head = _HEAD.pack(_MAGIC, terms.digest, name, count)
    return head + b"".join(piece for chunk in chunks for piece in (_LENGTH.pack(len(chunk)), chunk))


def _opened(terms: Terms, data: bytes) -> tuple[bytes, int, list[bytes]]:
    """The name of the key, how many vectors are in it, and the ciphertexts."""
    try:
        magic, digest, name, count = _HEAD.unpack_from(data)
        chunks = list(_chunks(data))
    except (struct.error, ValueError):
        magic, digest, name, count, chunks = b"", b"", b"", 0, []
    if magic != _MAGIC or len(chunks) != -(-terms.size // SLOTS):
        raise EngineError.about("homomorphic", "cannot be read", bytes=len(data))
    if digest != terms.digest:
        raise EngineError.about("homomorphic", "is of another sum", txid=terms.txid)
    return name, count, chunks


def _chunks(data: bytes) -> Iterator[bytes]:
    at = _HEAD.size
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise ValueError
        yield data[at : at + length]
        at += length


def _vector(context: Any, data: bytes) -> Any:
    try:
        return _tenseal().ckks_vector_from(context, data)
    except (ValueError, RuntimeError) as problem:
        raise EngineError.about("homomorphic", "is no ciphertext under these terms", bytes=len(data)) from problem


def _summed(vectors: Sequence[Any]) -> Any:
    total, *others = vectors
    try:
        for other in others:
            total += other
    except (ValueError, RuntimeError) as problem:  # of another scale or level than the others
        raise EngineError.about("homomorphic", "is no ciphertext under these terms", vectors=len(vectors)) from problem
    return total.serialize()


def _fresh() -> Any:
    tenseal = _tenseal()
    return tenseal.context(
        tenseal.SCHEME_TYPE.CKKS,
        poly_modulus_degree=DEGREE,
        coeff_mod_bit_sizes=list(MODULI),
        encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
        n_threads=1,
    )


@functools.cache
def _without_key() -> Any:
    """What the coordinator has: the public parameters, which are the same for every key."""
    return _loaded(
        _fresh().serialize(save_public_key=False, save_secret_key=False, save_galois_keys=False, save_relin_keys=False)
    )


def _loaded(content: bytes) -> Any:
    try:
        return _tenseal().context_from(content, n_threads=1)
    except (ValueError, RuntimeError) as problem:
        raise ConfigError.about("homomorphic", "is no key", bytes=len(content)) from problem


def _tenseal() -> Any:
    try:
        import tenseal
    except ImportError:
        raise ConfigError.about("homomorphic", "needs tenseal", "pip install 'sordino[he]'") from None
    return tenseal
