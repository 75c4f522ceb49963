"""What a secure sum costs: CPU time of a client and of the server, and the bytes that a client sends and gets.

    python benchmarks/secure_sum.py --json

Everybody plays in one process, with Ed25519 signatures and through the bytes of every message; an eighth of the clients
(none of four) fall silent after they shared, so the server takes their masks off. A client's time is the mean over
those that finish. The plain sum beside it adds the same vectors. Up to 64 clients all pairs mask, above that a circle.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sordino.federation.secure import Client, Message, Server, Terms
from sordino.ledger.keys import SigningKey

M = TypeVar("M", bound=Message)
T = TypeVar("T")
BITS = 20
MOST = 70_000_000
"""Clients times coordinates of the largest sums that are measured."""


class Meter:
    """CPU seconds and bytes, by who spent them."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def timed(self, who: str, work: Callable[..., T], *arguments: Any) -> T:
        """The result of some work, its time booked."""
        start = time.process_time()
        result = work(*arguments)
        self.seconds[who] += time.process_time() - start
        return result

    def passed(self, way: str, message: M) -> M:
        """A message that went through its bytes, which are counted."""
        data = message.to_bytes()
        self.bytes[way] += len(data)
        return type(message).from_bytes(data)


def main(arguments: list[str] | None = None) -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 10_000, 100_000, 1_000_000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for clients in options.clients:
        for size in options.sizes:
            if clients * size <= MOST:
                rows.append(measured(clients, size))
                print(rows[-1], file=sys.stderr)
    if options.json:
        print(json.dumps({"bits": BITS, "rows": rows}, indent=2))


def measured(clients: int, size: int) -> dict[str, Any]:
    """One sum."""
    threshold = clients - clients // 4
    terms = Terms.fitting("benchmark", range(clients), threshold=threshold, bits=BITS, size=size)
    silos = [SigningKey.generate(f"silo-{own}") for own in terms.members]

    def verify(position: int, text: bytes, signature: str) -> None:
        silos[position].verify(text, signature)

    meter = Meter()
    everybody = [Client(terms, own, sign=silos[own].sign, verify=verify) for own in terms.members]
    server = Server(terms, verify=verify)
    staying = everybody[: clients - clients // 8]
    total, plain = played(meter, server, everybody, staying), np.zeros(size, dtype=np.uint64)
    for client in staying:
        meter.timed("plain", plain.__iadd__, vector(client))
    if not np.array_equal(total, plain % np.uint64(2**BITS)):
        raise SystemExit("the secure sum is not the plain sum")
    return {
        "clients": clients,
        "lost": clients - len(staying),
        "size": size,
        "degree": terms.degree or clients - 1,
        "client_cpu_s": round(meter.seconds["client"] / len(staying), 5),
        "masking_cpu_s": round(meter.seconds["masking"] / len(staying), 5),
        "server_cpu_s": round(meter.seconds["server"], 4),
        "plain_sum_cpu_s": round(meter.seconds["plain"], 4),
        "sent_bytes": meter.bytes["up"] // len(staying),
        "got_bytes": meter.bytes["down"] // len(staying),
        "vector_bytes": size * BITS // 8,
    }


def vector(client: Client) -> NDArray[np.uint64]:
    """What a client sends: made anew each time, since all of them would not fit into memory."""
    draw = np.random.default_rng(client.position)
    return draw.integers(0, 2**BITS, client.terms.size, dtype=np.uint64)


def played(meter: Meter, server: Server, everybody: list[Client], staying: list[Client]) -> NDArray[np.uint64]:
    """The sum; only the clients that stay are metered."""
    metered = {client.position for client in staying}

    def say(client: Client, stage: str, *heard: Any, who: str = "client") -> None:
        mine = client.position in metered
        message = meter.timed(who if mine else "others", getattr(client, stage), *heard)
        meter.timed("server", server.hear, meter.passed("up" if mine else "others", message))

    def get(client: Client, messages: Any) -> list[Any]:
        way = "down" if client.position in metered else "others"
        return [meter.passed(way, message) for message in messages]

    for client in everybody:
        say(client, "advertise")
    adverts = meter.timed("server", server.adverts)
    for client in everybody:
        say(client, "share", get(client, adverts[client.position]))
    sealed = meter.timed("server", server.sealed)
    for client in staying:
        say(client, "mask", get(client, sealed[client.position]), vector(client), who="masking")
    meter.seconds["client"] += meter.seconds["masking"]
    survivors = meter.timed("server", server.survivors)
    for client in [] if server.agreed else staying:
        say(client, "consent", survivors)
    consents = meter.timed("server", server.consents)
    for client in staying:
        say(client, "reveal", get(client, consents))
    return meter.timed("server", server.total)


if __name__ == "__main__":
    main()
