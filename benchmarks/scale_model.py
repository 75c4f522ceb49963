"""What a round costs on paper, up to a million clients: bytes, memory, CPU and the ledger. docs/explanation/scale.md.

    python benchmarks/scale_model.py            the tables of that page
    python benchmarks/scale_model.py --check    secure sums on paper beside real ones (a minute)

Bytes follow from the messages' form and are exact. Times are counts of operations times what one takes here.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.federation.secure import Client, graph
from sordino.federation.secure.driving import Party
from sordino.federation.secure.encoding import Crowd, Encoding
from sordino.federation.secure.packing import packed_bytes
from sordino.federation.secure.sharded import Sharded, summed
from sordino.ledger.keys import SigningKey

# One operation on this machine, in seconds: a word is one coordinate under one mask of at most 32 bits; it is packed by
# the client and unpacked by the server; a step of Shamir's polynomial, of its weights; an entry of a message is read.
AGREE, SEAL, VERIFY = 52e-6, 10e-6, 75e-6
WORD, PACK, UNPACK = 0.75e-9, 20e-9, 6.4e-9
STEP, WEIGHT, ENTRY = 0.106e-6, 0.3e-6, 1.3e-6
SIGNATURE = 92
MINIMUM, COLLUDING, LOST, NOISE = 0.75, 0.05, 0.125, 1.0
"""Share of members that must stay; that may tell; that are lost; noise of the sum over the clip."""
ACCOUNT, LINE = 780, 64
"""Bytes of the ledger's file: for an account with its admission, for a line of a round."""


@dataclass(frozen=True)
class Sum:
    """A secure sum of `members` vectors of `size` coordinates, each masked with `degree` others."""

    members: int
    size: int
    bits: int
    degree: int
    quorum: int
    lost: float = LOST

    @classmethod
    def of(cls, members: int, size: int, bits: int | None = None, *, minimum: float = MINIMUM) -> Sum:
        """As `Terms.fitting` chooses it; the size is that on the wire."""
        threshold = max(round(minimum * members), members // 2 + 1)
        found = graph.fitted(members, threshold=threshold, colluders=-(-members // 20))
        degree, quorum = (members - 1, threshold) if found is None else found
        return cls(members, size, bits or bits_for(members, size), degree, quorum)

    @property
    def left(self) -> int:
        """Who stays to the end."""
        return self.members - round(self.lost * self.members)

    def up(self) -> int:
        """Bytes that a client sends: advert, boxes, vector, consent with it or after it or both, shares."""
        pairs = self.degree == self.members - 1
        shares = 89 + 86 * self.degree + 57 + 37 * (self.degree + 1)
        vector = 57 + packed_bytes(self.size, self.bits) + (SIGNATURE if pairs else 0)
        consent = 49 + SIGNATURE if self.left < self.members or not pairs else 0
        return 129 + SIGNATURE + shares + vector + consent

    def down(self) -> int:
        """Bytes that it gets: its neighbours' adverts and boxes, the list of survivors, everybody's consent."""
        return self.degree * (129 + SIGNATURE + 143) + self.left * (4 + 49 + SIGNATURE)

    def client_cpu(self) -> float:
        """Seconds: three agreements and two boxes a neighbour, signatures, Shamir's polynomials, masks."""
        k = self.degree
        keys = k * (3 * AGREE + 2 * SEAL) + (k + self.left) * VERIFY
        return keys + 2 * (k + 1) * self.quorum * STEP + self.size * ((k + 1) * WORD + PACK)

    def server_cpu(self) -> float:
        """Seconds: signatures, entries, Shamir's weights, masks of survivors and of the neighbours of the lost."""
        lost = self.members - self.left
        masks = self.left + lost * self.degree
        groups = 1 if self.degree == self.members - 1 else self.members  # of holders, who give a secret back
        keys = 2 * self.members * VERIFY + 3 * self.members * self.degree * ENTRY + groups * self.quorum**2 * WEIGHT
        return keys + lost * self.degree * AGREE + self.size * (masks * WORD + self.left * UNPACK)

    def server_memory(self) -> int:
        """Bytes: the sum and what unpacks into it; per pair of neighbours a box and shares, with Python around them."""
        return 24 * self.size + self.members * self.degree * 400


def bits_for(members: int, size: int, honest: int | None = None) -> int:
    """The fewest bits at which rounding loosens the bound by less than 2 %, and four standard deviations fit."""
    crowd = Crowd(members, honest or max(1, round((MINIMUM - COLLUDING) * members)))
    for bits in range(8, 33):
        try:
            code = Encoding.fitting(bits, 1.0, size, crowd, noise_multiplier=NOISE)
        except ConfigError:
            continue
        if code.bound()[0] < 1.02 * code.scale:
            return bits
    raise ValueError(members, size)


def wire(size: int) -> int:
    """Coordinates of a vector after the rotation."""
    return 1 << (size - 1).bit_length()


def row(cohort: int, size: int, shard: int = 100) -> dict[str, object]:
    """One cohort: plain, on a circle, and in shards."""
    length, plain = wire(size), 4 * size
    shards = cohort // shard
    honest = Sharded("scale", tuple(range(cohort)), shards, 0.8, 8, 1).honest(round(COLLUDING * cohort))
    circle, part = Sum.of(cohort, length), Sum.of(shard, length, bits_for(shard, length, honest), minimum=0.8)
    return {
        "cohort": cohort,
        "d": size,
        "plain up": plain,
        "plain memory": 36 * size,
        "circle k": circle.degree,
        "bits": circle.bits,
        "circle up": circle.up(),
        "circle down": plain + circle.down(),
        "circle client s": circle.client_cpu(),
        "circle server s": circle.server_cpu(),
        "circle memory": circle.server_memory(),
        "shard bits": part.bits,
        "shard up": part.up(),
        "shard down": plain + part.down() + 4 * cohort,
        "shard client s": part.client_cpu(),
        "shard server s": shards * part.server_cpu(),
        "shard memory": part.server_memory() + 24 * length,
        "shard noise": shards**0.5,
    }


def check(cases: list[tuple[int, int]]) -> None:
    """Print what real sums of 20 bits take beside the model."""
    import secure_sum

    for members, size in cases:
        real, model = secure_sum.measured(members, size), Sum.of(members, size, 20)
        pairs = {
            "degree": (model.degree, real["degree"]),
            # The benchmark counts messages one by one, and lists of survivors not at all.
            "sent": (model.up(), real["sent_bytes"]),
            "got": (model.down() - 4 * model.left, real["got_bytes"]),
            "client_cpu_s": (model.client_cpu(), real["client_cpu_s"]),
            "server_cpu_s": (model.server_cpu(), real["server_cpu_s"]),
        }
        told = ", ".join(f"{name} {a:.4g} | {b:.4g} | {b / a:.2f}" for name, (a, b) in pairs.items())
        print(f"{members} members, {size} coordinates: {told}", flush=True)


def check_shards(members: int, shards: int, size: int) -> None:
    """A real sharded sum, all in this process, beside the model: CPU of everybody, and the memory it takes."""
    of = Sharded("benchmark", tuple(range(members)), shards, 0.8, 20, size)
    keys = {member: SigningKey.generate(f"silo-{member}") for member in of.members}

    def verify(member: int, text: bytes, signature: str) -> None:
        keys[member].verify(text, signature)

    def party(member: int) -> Party:
        client = Client(of.parts[of.shard(member)], member, sign=keys[member].sign, verify=verify)
        return Party(client, lambda: Vector(np.full(size, member, np.uint64)))

    parties: dict[int, Party] = {}

    def ask(stage: str, requests: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        if stage == "advertise":  # a shard's members are here while it is at work
            parties.clear()
            parties.update({member: party(member) for member in requests})
        for member, request in requests.items():
            yield member, parties[member].answer(stage, request)

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    opened = summed(of, verify, ask)
    cpu, grown = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if len(opened.survivors) != members or (opened.total != sum(range(members))).any():
        raise SystemExit("the sharded sum is not the plain sum")
    part = replace(Sum.of(members // shards, size, 20, minimum=0.8), lost=0)
    model = members * part.client_cpu() + shards * part.server_cpu()
    print(
        f"{members} members in {shards} shards: CPU {model:.4g} | {cpu:.4g} | {cpu / model:.2f}, {grown >> 10} MB more"
    )


class Vector:
    """Stands where a share of a noised sum would."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def masked(self, mask: Callable[[NDArray[np.uint64]], bytes]) -> bytes:
        """What is sent."""
        return mask(self._words)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        check([(64, 16_384), (64, 131_072), (256, 16_384)])
        check_shards(1_000, 10, 16_384)
        return
    for size in (10_000, 100_000, 1_000_000):
        for cohort in (100, 1_000, 10_000):
            print({name: _short(value) for name, value in row(cohort, size).items()})
    for clients in (1_000, 10_000, 100_000, 1_000_000):
        print({"clients": clients, "accounts each": clients * ACCOUNT, "a round, cohort a tenth": clients // 10 * LINE})


def _short(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
