"""What a sum under one key costs four silos, beside a secure sum: CPU time, bytes, and how far off the sum is.

    python benchmarks/homomorphic.py --json

A silo encrypts its update, sends it, gets the encrypted sum and opens it; the coordinator adds. All in one process, on
one core, through the bytes of every message. The secure sum (`secure_sum.py`) is of 20-bit numbers, all four remain.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
from secure_sum import measured as masked

from sordino.federation.secure.homomorphic import Key, Terms, add, decrypt, encrypt

SILOS = 4


def main(arguments: list[str] | None = None) -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 10_000, 100_000, 1_000_000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    measured(30)  # warm: the library is loaded, tables are made
    rows = []
    for size in options.sizes:
        rows.append(measured(size) | {"secure_sum": _beside(size)})
        print(rows[-1], file=sys.stderr)
    if options.json:
        print(json.dumps({"silos": SILOS, "rows": rows}, indent=2))


def measured(size: int) -> dict[str, Any]:
    """One sum."""
    key, terms = Key.generate(), Terms("benchmark", SILOS, size)
    updates = [np.random.default_rng(silo).normal(0, 0.01, size).astype(np.float32) for silo in range(SILOS)]
    begun = time.process_time()
    parts = [encrypt(key, terms, update) for update in updates]
    encrypted = time.process_time()
    total = add(terms, parts)
    added = time.process_time()
    opened = decrypt(key, terms, total)
    done = time.process_time()
    error = opened - np.sum(updates, axis=0, dtype=np.float64)
    return {
        "size": size,
        "encrypt_cpu_s": round((encrypted - begun) / SILOS, 5),
        "open_cpu_s": round(done - added, 5),
        "coordinator_cpu_s": round(added - encrypted, 5),
        "sent_bytes": len(parts[0]) + 4 * size,
        "got_bytes": len(total),
        "vector_bytes": 4 * size,
        "error_std": float(np.std(error)),
        "error_largest": float(np.abs(error).max()),
    }


def _beside(size: int) -> dict[str, Any]:
    names = ("client_cpu_s", "server_cpu_s", "sent_bytes", "got_bytes")
    row = masked(SILOS, size)
    return {name: row[name] for name in names}


if __name__ == "__main__":
    main()
