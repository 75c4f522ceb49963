"""What whole-number noise costs: error and ε against the central Gaussian by bits, and time per draw.

    python benchmarks/discrete.py --json

A sum of 20 clipped vectors of 2^14 coordinates, nobody lost. `error` is the mean squared error over
that of the central Gaussian, z² clip² in every coordinate; its standard error is 1.4 / √(repetitions · 2^14). `epsilon`
is that of the rounds, at δ = 1e-5, under add/remove, by Rényi divergence; the Gaussian's stands beside it by the same
accountant, and exactly.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

import numpy as np

from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Unit
from sordino.federation.mechanisms.discrete_gaussian import DiscreteGaussian
from sordino.federation.mechanisms.skellam import Skellam
from sordino.federation.secure.encoding import Crowd, Encoding
from sordino.privacy import accounting, events
from sordino.privacy.kernel import Private
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line, mint_reservation
from sordino.privacy.shares import ShareDoor

PARTIES, SIZE, DELTA = 20, 2**14, 1e-5
DRAWS = 2**20


def mechanism(kind: str, z: float, encoding: Encoding) -> Any:
    """The noise of one release for the encoding's whole numbers."""
    l2, l1 = encoding.bound()
    return Skellam(z, l2, l1) if kind == "skellam" else DiscreteGaussian(z, l2, l1, PARTIES, encoding.length)


def release(kind: str, z: float, encoding: Encoding, vectors: np.ndarray, txid: str) -> np.ndarray:
    """One noised sum, each party with its own share."""
    law, names = mechanism(kind, z, encoding), [str(party) for party in range(PARTIES)]
    line = Line("clients", Unit.CLIENT, events.key(law.event()), 1)
    reservation = mint_reservation(txid, [line], test=True)
    door = ShareDoor(law, encoding.at(txid), PARTIES, law.event(), ("clients",), reservation, SystemNoise())
    parts, total = door.parts(names), np.zeros(encoding.length, np.uint64)
    for name, vector in zip(names, vectors, strict=True):
        share = parts[name](Private(vector[None], Unit.CLIENT).clip(l2=1.0))
        total += share.masked(lambda words: words)
    return encoding.at(txid).decode(total)


def by_bits(kind: str, bits: int, z: float, rounds: int, repetitions: int) -> dict[str, Any]:
    """One line of the table."""
    try:
        encoding = Encoding.fitting(bits, 1.0, SIZE, Crowd(PARTIES), noise_multiplier=z)
    except ConfigError as error:
        return {"noise": kind, "bits": bits, "refused": str(error)}
    vectors = stream(0, "vectors").normal(size=(PARTIES, SIZE))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    errors = [
        float(np.mean((release(kind, z, encoding, vectors, str(r)) - vectors.sum(0)) ** 2)) for r in range(repetitions)
    ]
    plan = [(mechanism(kind, z, encoding).event(), rounds)]
    epsilon = accounting.best_epsilon(plan, DELTA, adjacency=Adjacency.ADD_REMOVE).epsilon
    return {
        "noise": kind,
        "bits": bits,
        "scale": encoding.scale,
        "error": float(np.mean(errors)) / z**2,
        "standard_error": math.sqrt(2 / (repetitions * SIZE)),
        "overflow": encoding.overflow(z, Crowd(PARTIES)),
        "epsilon": epsilon,
    }


def gaussian(z: float, rounds: int) -> dict[str, float]:
    """The central Gaussian's ε, by the accountant of the table and exactly."""
    plan = [(events.gaussian(z), rounds)]
    return {
        name: accounting.epsilon(plan, DELTA, adjacency=Adjacency.ADD_REMOVE, accountant=name)
        for name in ("rdp", "gdp")
    }


def nanoseconds(kind: str, scale: float) -> float:
    """CPU time of one draw."""
    event = events.gaussian(1.0)
    line = Line("a", Unit.CLIENT, events.key(event), 1)
    permit = mint_reservation("t", [line], test=False).take(["a"], events.key(event))
    start = time.process_time()
    getattr(SystemNoise(), kind)(permit, scale, DRAWS)
    return (time.process_time() - start) / DRAWS * 1e9


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, nargs="+", default=[10, 12, 14, 16, 18, 20])
    parser.add_argument("--noise-multiplier", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    terms = (asked.noise_multiplier, asked.rounds)
    found = {
        "gaussian": gaussian(*terms),
        "table": [
            by_bits(kind, bits, *terms, asked.repetitions)
            for kind in ("skellam", "discrete_gaussian")
            for bits in asked.bits
        ],
        "nanoseconds": {
            "normal": nanoseconds("normal", 1.0),
            **{f"skellam, std {std:g}": nanoseconds("skellam", std**2) for std in (3.0, 300.0, 3e4)},
            **{f"discrete_gaussian, std {std:g}": nanoseconds("discrete_gaussian", std) for std in (3.0, 300.0, 3e4)},
        },
    }
    if asked.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    print("central Gaussian: ε =", *(f"{value:.3f} ({name})" for name, value in found["gaussian"].items()))
    print(f"{'noise':18} {'bits':>4} {'scale':>10} {'error':>8} {'±':>7} {'overflow':>9} {'ε':>7}")
    for row in found["table"]:
        if "refused" in row:
            print(f"{row['noise']:18} {row['bits']:>4} {row['refused']}")
            continue
        print(
            f"{row['noise']:18} {row['bits']:>4} {row['scale']:>10.1f} {row['error']:>8.4f} "
            f"{row['standard_error']:>7.4f} {row['overflow']:>9.1e} {row['epsilon']:>7.3f}"
        )
    for name, value in found["nanoseconds"].items():
        print(f"{name}: {value:.1f} ns per draw")


if __name__ == "__main__":
    main()
