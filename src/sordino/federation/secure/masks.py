"""Masks: a ChaCha20 keystream under a 256-bit key, read as whole numbers modulo 2^bits.

Arithmetic runs modulo the machine word, 2^32 up to 32 bits and 2^64 above; 2^bits divides both, so the remainder is
taken once at the end.

Source:
    RFC 8439 (ChaCha20).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

Words: TypeAlias = NDArray[Any]
"""Numbers modulo the machine word: uint32 or uint64, little end first."""

BLOCK = 2**14
"""Words made at once: they stay in the processor's cache."""

_ZEROS = memoryview(bytes(8 * BLOCK))


def words(values: NDArray[np.uint64], bits: int) -> Words:
    """A copy of the values as machine words of the width that `bits` asks for."""
    return values.astype(np.dtype("<u4" if bits <= 32 else "<u8"))


def residues(total: Words, bits: int) -> NDArray[np.uint64]:
    """The words modulo 2^bits."""
    return total.astype(np.uint64) & np.uint64(2**bits - 1)


def put(total: Words, key: bytes) -> None:
    """Add the mask of a key, in place."""
    _walk(total, key, np.add)


def take(total: Words, key: bytes) -> None:
    """Subtract the mask of a key, in place."""
    _walk(total, key, np.subtract)


def _walk(total: Words, key: bytes, change: np.ufunc) -> None:
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    mask = np.empty(min(BLOCK, len(total)), dtype=total.dtype)
    for start in range(0, len(total), BLOCK):
        part = total[start : start + BLOCK]
        own = mask[: len(part)]
        stream.update_into(_ZEROS[: own.nbytes], own.data.cast("B"))
        change(part, own, out=part)
