"""Members of a secure sum with signatures that cost little, and what a server can work out."""

from __future__ import annotations

import hashlib

import numpy as np
from scipy import stats

from sordino.core.errors import VerificationError
from sordino.federation.secure import Client, Terms, masks

NEVER = 5
"""The stage at which a client that is not lost is lost."""


def signature(position: int, text: bytes) -> str:
    """Stands for a silo's long-term key; a forger in these tests does not call it for others."""
    return hashlib.sha256(b"long-term key of %d" % position + text).hexdigest()


def verify(position: int, text: bytes, given: str) -> None:
    if given != signature(position, text):
        raise VerificationError.about("signature", "is not by this key", key=position)


def crowd(terms: Terms, kind: type[Client] = Client) -> dict[int, Client]:
    return {
        own: kind(terms, own, sign=lambda text, own=own: signature(own, text), verify=verify) for own in terms.members
    }


def terms(clients: int, threshold: int, *, bits: int = 20, size: int = 5, **more) -> Terms:
    return Terms("round 1", tuple(range(3, 3 + clients)), threshold, bits, size, **more)


def vectors(of: Terms, seed: int = 0) -> dict[int, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {own: draw.integers(0, 2**of.bits, of.size, dtype=np.uint64) for own in of.members}


def plain(of: Terms, values: list[np.ndarray]) -> np.ndarray:
    return np.array([sum(int(v[i]) for v in values) % 2**of.bits for i in range(of.size)], dtype=np.uint64)


def uniform(values: np.ndarray, bits: int) -> float:
    """The smallest p-value, times their number, of chi-square tests of each whole byte and of each bit."""
    tests = [((values >> np.uint64(at)) & np.uint64(255), 256) for at in range(0, bits - 7, 8)]
    tests += [((values >> np.uint64(at)) & np.uint64(1), 2) for at in range(bits)]
    found = [stats.chisquare(np.bincount(part.astype(int), minlength=kinds)).pvalue for part, kinds in tests]
    return min(found) * len(found)


def stripped(packed: np.ndarray, bits: int, *, add: list[bytes], subtract: list[bytes]) -> np.ndarray:
    """A masked vector without the masks of some keys."""
    total = masks.words(packed, bits)
    for key in add:
        masks.take(total, key)
    for key in subtract:
        masks.put(total, key)
    return masks.residues(total, bits)
