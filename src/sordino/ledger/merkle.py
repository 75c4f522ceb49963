"""A Merkle tree over the history, so that a short proof shows that an event is in it, or that it only ever grew.

The leaves are the hashes of the events, as bytes. A tree of n leaves splits at the largest power of two below n, so
every tree is a row of perfect subtrees, largest first: the `Frontier`.

Source:
    RFC 9162, section 2.1 (RFC 6962, section 2.1): tree hash, inclusion and consistency proofs and their checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sordino.core.errors import ConfigError, VerificationError

EMPTY = hashlib.sha256(b"").digest()


def leaf(data: bytes) -> bytes:
    """Hash of a leaf; the first byte keeps leaves and nodes apart."""
    return hashlib.sha256(b"\x00" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True)
class Frontier:
    """A tree that only grows, kept as the roots of its perfect subtrees: as many as `size` has one-bits.

    >>> Frontier().extended([b"a", b"b", b"c"]).root() == root([b"a", b"b", b"c"])
    True
    """

    size: int = 0
    subtrees: tuple[bytes, ...] = field(default=(), repr=False)

    def extended(self, leaves: Iterable[bytes]) -> Frontier:
        """The tree with more leaves."""
        size, stack = self.size, list(self.subtrees)
        for data in leaves:
            stack.append(leaf(data))
            size += 1
            for _ in range((size & -size).bit_length() - 1):  # the subtrees that this leaf completes
                right = stack.pop()
                stack[-1] = node(stack[-1], right)
        return Frontier(size, tuple(stack))

    def root(self) -> bytes:
        """Hash over all leaves."""
        if not self.subtrees:
            return EMPTY
        *rest, top = self.subtrees
        for subtree in reversed(rest):
            top = node(subtree, top)
        return top


def root(leaves: Sequence[bytes]) -> bytes:
    """Hash over all leaves."""
    return Frontier().extended(leaves).root()


def roots(leaves: Sequence[bytes], sizes: Iterable[int]) -> dict[int, bytes]:
    """The roots over the first so many leaves, for each size that is not too large."""
    tree, found = Frontier(), {}
    for size in sorted({size for size in sizes if 0 <= size <= len(leaves)}):
        tree = tree.extended(leaves[tree.size : size])
        found[size] = tree.root()
    return found


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Proof that leaf `index` (the first is 0) is one of `leaves`.

    Raises:
        ConfigError: There is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise ConfigError.about("inclusion", f"must lie in 0 to {len(leaves) - 1}", index=index)
    if len(leaves) == 1:
        return []
    half = _half(len(leaves))
    if index < half:
        return [*inclusion(leaves[:half], index), root(leaves[half:])]
    return [*inclusion(leaves[half:], index - half), root(leaves[:half])]


def consistency(leaves: Sequence[bytes], first: int) -> list[bytes]:
    """Proof that the tree of the first `first` leaves grew into the tree of all of them.

    Raises:
        ConfigError: There are not so many leaves, or none.
    """
    if not 0 < first <= len(leaves):
        raise ConfigError.about("consistency", f"must lie in 1 to {len(leaves)}", first=first)
    return _subproof(leaves, first, known=True)


def _subproof(leaves: Sequence[bytes], first: int, *, known: bool) -> list[bytes]:
    """RFC 9162's SUBPROOF; `known` while the subtree is one that whoever saw the first tree has the hash of."""
    if first == len(leaves):
        return [] if known else [root(leaves)]
    half = _half(len(leaves))
    if first <= half:
        return [*_subproof(leaves[:half], first, known=known), root(leaves[half:])]
    return [*_subproof(leaves[half:], first - half, known=False), root(leaves[:half])]


def _half(size: int) -> int:
    return 1 << ((size - 1).bit_length() - 1)


def check_inclusion(data: bytes, index: int, size: int, proof: Sequence[bytes], top: bytes) -> None:
    """Return only if `data` is leaf `index` of the tree of `size` leaves whose root is `top`.

    Raises:
        VerificationError: The proof does not show it.
    """
    wrong = VerificationError.about("inclusion", f"the proof does not show event {index + 1} of {size}")
    if not 0 <= index < size:
        raise wrong
    rest = iter(proof)

    def climbed(index: int, size: int) -> bytes:
        if size == 1:
            return leaf(data)
        half = _half(size)
        if index < half:
            return node(climbed(index, half), next(rest))
        below = climbed(index - half, size - half)
        return node(next(rest), below)

    try:
        found = climbed(index, size)
    except StopIteration:
        raise wrong from None
    if found != top or next(rest, None) is not None:
        raise wrong


def check_consistency(first: int, before: bytes, second: int, after: bytes, proof: Sequence[bytes]) -> None:
    """Return only if the tree of `first` leaves with root `before` grew into the tree of `second` with root `after`.

    Raises:
        VerificationError: The proof does not show it: leaves were changed, removed or reordered.
    """
    wrong = VerificationError.about("consistency", f"the proof does not show that {first} events grew into {second}")
    if not 0 < first <= second:
        raise wrong
    rest = iter(proof)

    def grown(first: int, second: int, *, known: bool) -> tuple[bytes, bytes]:
        """Both roots of a subtree, from the proof's hashes in the order in which `_subproof` wrote them."""
        if first == second:
            both = before if known else next(rest)
            return both, both
        half = _half(second)
        if first <= half:
            old, new = grown(first, half, known=known)
            return old, node(new, next(rest))
        old, new = grown(first - half, second - half, known=False)
        left = next(rest)
        return node(left, old), node(left, new)

    try:
        roots = grown(first, second, known=True)
    except StopIteration:
        raise wrong from None
    if roots != (before, after) or next(rest, None) is not None:
        raise wrong
