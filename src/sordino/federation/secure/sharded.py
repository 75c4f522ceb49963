"""Many small secure sums instead of a large one: members are dealt into shards, and each shard opens its own sum.

members ──hash──► shard 1 ──secure sum──► its sum, with noise of its own ──┐
              ├─► shard 2 ──secure sum──► its sum, with noise of its own ──┼─► total
              └─► shard 3 ──too few left──► left out as a whole            ┘

A client's work, and what a drop-out or a liar can spoil, then stop at its shard. Who learns what:

- The server learns the sum of every shard that opened, who is in it, and nothing else. So **each shard's sum is a
  release**, and its noise is sized for the honest of that shard alone (`Sharded.honest`). A client is in one shard, so
  all of them together cost it what one costs; the total has the noise of all shards, √shards times that of one sum.
- What the server and colluding members learn is as for one sum of a shard's members (`sordino.federation.secure`).
- Nothing depends on how many shards open. One that has too few left opens nothing; its members count as absent.
- Shards follow from the list of members, so one member more would move others to other shards: the guarantee is for
  `zero_out` and `replace_one`, where the list stays as it is.

Masks between shards could hide the shards' sums and save the noise. But whoever holds them for a shard could open its
sum with the server, and that sum would carry a shard's part of the noise, not the noise that was charged. A circle
(`Terms.degree`) hides all but the total and has no such member: take it where noise matters most.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.federation.secure import graph
from sordino.federation.secure.client import STAGES
from sordino.federation.secure.driving import Ask, Drive, Heard
from sordino.federation.secure.messages import Verify
from sordino.federation.secure.terms import Terms

_WHERE = "shards"
LEAST = 2
"""Members of the smallest shard: a sum of one hides nothing."""


@dataclass(frozen=True)
class Sharded:
    """The public terms of a sharded sum, from which everybody works out the same shards.

    Args:
        txid: The release that it is for.
        members: Positions of those invited, sorted.
        shards: How many; 64 to 256 members each keep a client's work small.
        minimum: The share of a shard's members that must be left for its sum to open, in (1/2, 1].
        bits: Each shard's sum is modulo 2^bits: they need to fit a shard, not the whole.
        size: Coordinates of a vector.

    Raises:
        ConfigError: A shard would be too small, or the total too long for 62 bits.

    >>> of = Sharded("round 7", tuple(range(10)), shards=3, minimum=0.7, bits=20, size=30)
    >>> [len(part.members) for part in of.parts], [part.threshold for part in of.parts], of.wide
    ([4, 3, 3], [3, 3, 3], 22)
    """

    txid: str
    members: tuple[int, ...]
    shards: int
    minimum: float
    bits: int
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= len(self.members) // LEAST:
            raise ConfigError.about(_WHERE, f"must leave {LEAST} members in each", shards=self.shards)
        if not 0.5 < self.minimum <= 1:
            raise ConfigError.about(_WHERE, "must lie above 1/2 and at most at 1", minimum=self.minimum)
        if self.wide > 62:
            raise ConfigError.about(_WHERE, "make a total of more than 62 bits", bits=self.bits, shards=self.shards)
        if list(self.members) != sorted(set(self.members)):
            raise ConfigError.about(_WHERE, "must be sorted and named once", members=len(self.members))

    @property
    def wide(self) -> int:
        """Bits of the total, which no sum of shards leaves."""
        return self.bits + (self.shards - 1).bit_length()

    @cached_property
    def parts(self) -> tuple[Terms, ...]:
        """The terms of each shard. Their sizes differ by one at most, largest first."""
        listed = hashlib.sha256(b"".join(member.to_bytes(4, "big") for member in self.members)).digest()
        named = f"{self.txid}, {self.shards} shards of {listed.hex()}"
        order = graph.circle(self.members, named.encode())
        return tuple(
            self._part(f"{named}: {number}", sorted(order[number :: self.shards])) for number in range(self.shards)
        )

    def _part(self, txid: str, members: Sequence[int]) -> Terms:
        least = max(math.ceil(self.minimum * len(members) - 1e-9), len(members) // 2 + 1)
        return Terms.fitting(txid, members, threshold=least, bits=self.bits, size=self.size)

    def shard(self, member: int) -> int:
        """The number of a member's shard, from 0.

        Raises:
            ConfigError: It is not a member.
        """
        if member not in self._places:
            raise ConfigError.about(_WHERE, "is not among the members", position=member)
        return self._places[member]

    @cached_property
    def _places(self) -> dict[int, int]:
        return {member: number for number, part in enumerate(self.parts) for member in part.members}

    def colluders(self, count: int) -> int:
        """The most of `count` colluding members that sit in one shard, but for a chance of 2^-40.

        Guarantee:
            Holds when colluders were not chosen with the shards in view, nor the name of the release for theirs.
        """
        largest, everybody = len(self.parts[0].members), len(self.members)
        found = -(-count // self.shards)
        while found < min(count, largest) and self._crowded(everybody, largest, count, found + 1) > graph.LEAK:
            found += 1
        return min(found, largest)

    def _crowded(self, everybody: int, largest: int, count: int, least: int) -> float:
        """Bound on the chance that some shard has `least` colluders."""
        return self.shards * graph.tail(everybody, count, largest, least)

    def honest(self, colluding: int) -> int:
        """How many shares carry the noise of any shard's sum at worst: noise is sized for these.

        Args:
            colluding: Members, of all shards, that may tell their share of the noise.

        Raises:
            PrivacyError: In some shard it may be nobody.
        """
        left = min(part.threshold for part in self.parts) - self.colluders(colluding)
        if left < 1:
            raise PrivacyError.about(
                _WHERE, "may have nobody whose noise is secret", "make fewer shards", colluding=colluding
            )
        return left


@dataclass(frozen=True, eq=False)
class Opened:
    """What a sharded sum gave.

    Args:
        total: The sum of all shards that opened, modulo 2^wide. Shape (size,), uint64; an `Encoding` of that many bits
            decodes it.
        survivors: Who is in it, sorted.
        absent: Members of the shards that did not open, sorted, whatever they sent.
        lost: Those shards, by number, and why.
    """

    total: NDArray[np.uint64]
    survivors: tuple[int, ...]
    absent: tuple[int, ...]
    lost: dict[int, str]


def summed(of: Sharded, verify: Verify, ask: Ask, heard: Heard = lambda *_: None, *, together: int = 1) -> Opened:
    """Open all shards that can be, some at a time.

    Args:
        of: The terms.
        verify: The server's own checks of signatures.
        ask: Carries requests, for members of several shards at once.
        heard: Told of every answer that does not hold, and why.
        together: Shards that go through the stages side by side. The server holds one sum for each.

    Raises:
        EngineError: No shard opened.
    """
    total, survivors, lost = np.zeros(of.size, np.int64), list[int](), dict[int, str]()
    for start in range(0, of.shards, together):
        drives = {number: Drive(part, verify, heard) for number, part in enumerate(of.parts[start:][:together], start)}
        for stage in STAGES:
            _stage(of, stage, drives, lost, ask, heard)
        for number, drive in drives.items():
            try:
                words, present = drive.total()
            except EngineError as problem:
                lost[number] = str(problem)
            else:
                total += _centred(words, of.bits)
                survivors += present
    if not survivors:
        raise EngineError.about(_WHERE, "have too few left, each of them", shards=of.shards)
    absent = sorted(member for number in lost for member in of.parts[number].members)
    modulus = np.uint64(2**of.wide - 1)
    return Opened(total.view(np.uint64) & modulus, tuple(sorted(survivors)), tuple(absent), lost)


def _stage(of: Sharded, stage: str, drives: dict[int, Drive], lost: dict[int, str], ask: Ask, heard: Heard) -> None:
    """Ask the members of some shards. A shard with too few left is lost."""
    requests: dict[int, bytes] = {}
    for number, drive in list(drives.items()):
        try:
            requests |= drive.requests(stage)
        except EngineError as problem:
            del drives[number]
            lost[number] = str(problem)
    for position, answer in ask(stage, requests) if requests else ():
        if position in requests:
            drives[of.shard(position)].hear(stage, position, answer)
        else:
            heard(stage, position, "was not asked")


def _centred(words: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """Numbers modulo 2^bits as those around zero, so that sums of several shards do not wrap."""
    half = 1 << (bits - 1)
    return ((words + np.uint64(half)) & np.uint64(2**bits - 1)).astype(np.int64) - half
