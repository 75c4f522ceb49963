"""What everybody knows before one secure sum: who, how many at least, and what shape the vectors have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Self

from sordino.core.errors import ConfigError, EngineError
from sordino.federation.secure import graph

_WHERE = "secure terms"


@dataclass(frozen=True)
class Terms:
    """The public terms of one sum. Their digest is in every message and every signature.

    Args:
        txid: The release that this sum is for. One sum per txid: a second one with other survivors is another release.
        members: Positions in the population of those invited, sorted, at least 2.
        threshold: The fewest members that a sum may be made of, and the fewest that must agree on who they are. More
            than half of the members: with fewer, an active server could split them and get two answers.
        bits: Sums are modulo 2^bits, 1 to 62.
        size: Coordinates of a vector.
        degree: Neighbours of each member on the circle, even; None: everybody masks with everybody.
        quorum: On a circle: shares among a member and its neighbours that give a secret of it back.

    Raises:
        ConfigError: The terms could not hide anything, or not be unmasked.

    >>> terms = Terms("round 7", (0, 2, 5), threshold=2, bits=20, size=30)
    >>> terms.needed, sorted(terms.neighbours[2]), terms.colluders
    (2, [0, 5], 0)
    """

    txid: str
    members: tuple[int, ...]
    threshold: int
    bits: int
    size: int
    degree: int | None = None
    quorum: int | None = None

    def __post_init__(self) -> None:
        clients = len(self.members)
        if clients < 2 or any(not _whole(p, 0, 2**32 - 1) for p in self.members):
            raise ConfigError.about(_WHERE, "must be two or more positions", members=self.members)
        if list(self.members) != sorted(set(self.members)):
            raise ConfigError.about(_WHERE, "must be sorted and named once", members=self.members)
        if not _whole(self.threshold, clients // 2 + 1, clients):
            raise ConfigError.about(
                _WHERE, f"must be more than half of {clients} members and no more than all", threshold=self.threshold
            )
        if not _whole(self.bits, 1, 62):
            raise ConfigError.about(_WHERE, "must lie between 1 and 62", bits=self.bits)
        if not _whole(self.size, 1, 2**32):
            raise ConfigError.about(_WHERE, "must lie between 1 and 2^32", size=self.size)
        self._check_graph()

    def _check_graph(self) -> None:
        if self.degree is None:
            if self.quorum is not None:
                raise ConfigError.about(_WHERE, "is the threshold where all pairs mask", quorum=self.quorum)
            return
        if not _whole(self.degree, 2, len(self.members) - 2) or self.degree % 2:
            raise ConfigError.about(_WHERE, "must be even, from 2 to two less than the members", degree=self.degree)
        if not _whole(self.quorum, 2, self.degree + 1):
            raise ConfigError.about(_WHERE, "must lie between 2 and degree + 1", quorum=self.quorum)

    @classmethod
    def fitting(
        cls, txid: str, members: Sequence[int], *, threshold: int, bits: int, size: int, colluders: int = 0
    ) -> Self:
        """Terms with a graph that fits: all pairs up to 64 members, else the smallest safe circle.

        The same arguments give the same terms, so a silo can compute what it was sent. The circle is sized for at
        least a twentieth of the members colluding, if the threshold bears that many; see `graph` for the bounds.

        Args:
            txid: See the class.
            members: See the class; any order.
            threshold: See the class.
            bits: See the class.
            size: See the class.
            colluders: Members that may work together with the server.

        Raises:
            ConfigError: The threshold does not bear so many colluders.
        """
        members = tuple(sorted(members))
        plain = cls(txid, members, threshold, bits, size)
        if not 0 <= colluders <= plain.colluders:
            raise ConfigError.about(
                _WHERE, f"must lie between 0 and {plain.colluders}", "raise the threshold", colluders=colluders
            )
        feared = max(colluders, -(-len(members) // 20))
        found = graph.fitted(len(members), threshold=threshold, colluders=feared)
        return plain if found is None or feared > plain.colluders else cls(txid, members, threshold, bits, size, *found)

    @property
    def needed(self) -> int:
        """Shares that give a secret back, and the fewest of a member and its neighbours that it goes on with."""
        return self.threshold if self.quorum is None else self.quorum

    @property
    def colluders(self) -> int:
        """With all pairs: members that may collude with an active server, 2 · threshold - n - 1."""
        return 2 * self.threshold - len(self.members) - 1

    @cached_property
    def neighbours(self) -> dict[int, frozenset[int]]:
        """Whom each member masks with."""
        return graph.neighbours(graph.circle(self.members, self.digest), self.degree)

    def to_bytes(self) -> bytes:
        """The one text of these terms (JSON)."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            EngineError: It is not exactly what `to_bytes` writes.
        """
        try:
            fields = json.loads(data)
            terms = cls(**(fields | {"members": tuple(fields["members"])}))
        except (ValueError, TypeError, KeyError, ConfigError) as error:
            raise EngineError.about(_WHERE, "cannot be read") from error
        if terms.to_bytes() != data:
            raise EngineError.about(_WHERE, "are not in their one form")
        return terms

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for these terms."""
        return hashlib.sha256(b"sordino secure sum, terms\n" + self.to_bytes()).digest()


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
