"""Who masks with whom: everybody with everybody, or each with a few on a public random circle.

complete          every pair, k = n - 1
circle of k = 4   a member and its neighbours: two steps to the left, two to the right

    … o  o [o  o] u [o  o] o  o …

A circle of degree k falls apart only where two runs of k/2 members each are gone. The places on it follow from a hash
of the terms, so everybody computes the same circle and nobody need announce it.

Source:
    Bell et al. (2020), eprint 2020/704, for the idea of a k-regular graph of logarithmic degree. The bounds here are
    exact hypergeometric tails and a union bound, worked out below, not theirs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

COMPLETE = 64
"""Up to this many members everybody masks with everybody: it costs little and needs no probability."""

LEAK, LOSS = 2.0**-40, 2.0**-20
"""The most that a fitted circle fails by: to hide (LEAK), and to be unmasked at the threshold (LOSS)."""


def circle(members: Sequence[int], seed: bytes) -> tuple[int, ...]:
    """The members in the order of a hash: a permutation that nobody chose."""

    def place(position: int) -> bytes:
        return hashlib.sha256(b"sordino secure sum, circle\n" + seed + position.to_bytes(4, "big")).digest()

    return tuple(sorted(members, key=place))


def neighbours(ring: Sequence[int], degree: int | None) -> dict[int, frozenset[int]]:
    """Whom each member masks with: `degree / 2` to either side on the ring, or all others.

    >>> neighbours((3, 1, 2, 0, 4), 2)[1] == {3, 2}
    True
    """
    if degree is None:
        everybody = frozenset(ring)
        return {position: everybody - {position} for position in ring}
    steps = [step for half in range(1, degree // 2 + 1) for step in (-half, half)]
    return {
        position: frozenset(ring[(place + step) % len(ring)] for step in steps) for place, position in enumerate(ring)
    }


def leak(clients: int, degree: int, quorum: int, *, threshold: int, colluders: int) -> float:
    """Bound on the chance that a circle does not hide somebody from a server that follows the protocol.

    Either `quorum` of one member's neighbours collude and hold its secrets, or members that collude or are gone fill
    two runs of degree/2 places, and the sums of two arcs are learned instead of one.

    Args:
        clients: Members, n.
        degree: Neighbours of each, even, below n - 1.
        quorum: Shares that give a secret back.
        threshold: The fewest members that a sum is made of.
        colluders: Members that share all they know with the server.

    Guarantee:
        Holds when neither colluders nor drop-outs were chosen with the circle in view.
    """
    held = clients * tail(clients - 1, colluders, degree, quorum)
    gone = min(1.0, (clients - threshold + colluders) / clients)
    return min(1.0, held + clients**2 / 2 * gone**degree)


def loss(clients: int, degree: int, quorum: int, *, threshold: int) -> float:
    """Bound on the chance that a sum of exactly `threshold` members, lost at random, cannot be unmasked."""
    return min(1.0, clients * tail(clients - 1, clients - threshold, degree, degree - quorum + 1))


def fitted(clients: int, *, threshold: int, colluders: int) -> tuple[int, int] | None:
    """A small degree, and its quorum, with a leak below 2^-40 and a loss below 2^-20; none: take all pairs.

    Degrees are tried in steps of about a sixteenth, so the result is that close to the smallest.

    >>> fitted(50, threshold=40, colluders=3) is None
    True
    >>> degree, quorum = fitted(1000, threshold=900, colluders=50)
    >>> degree < 100 and leak(1000, degree, quorum, threshold=900, colluders=50) < 2**-40
    True
    """
    degree = 4 if clients > COMPLETE else clients
    while degree < clients // 2:
        quorum = _least_quorum(clients, degree, threshold=threshold, colluders=colluders)
        if loss(clients, degree, quorum, threshold=threshold) <= LOSS:
            return degree, quorum
        degree += 2 * max(1, degree // 32)
    return None


def _least_quorum(clients: int, degree: int, *, threshold: int, colluders: int) -> int:
    """The smallest quorum of this degree that hides, by halving; degree + 1 where none does."""
    low, high = 2, degree + 1
    while low < high:
        middle = (low + high) // 2
        if leak(clients, degree, middle, threshold=threshold, colluders=colluders) <= LEAK:
            high = middle
        else:
            low = middle + 1
    return low


def tail(population: int, marked: int, drawn: int, least: int) -> float:
    """Chance of at least `least` marked ones among `drawn` drawn without replacement."""
    low, high = max(least, 0, drawn - (population - marked)), min(marked, drawn)
    whole = _log_choose(population, drawn)
    return math.fsum(
        math.exp(_log_choose(marked, i) + _log_choose(population - marked, drawn - i) - whole)
        for i in range(low, high + 1)
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
