"""Durable releases per second: each is a reserve and a commit, both on disk before they return.

One process, and eight that share one account. The database lies on the disk of the temporary folder, and syncs.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.stores import Place
from sordino.privacy import events
from sordino.privacy.permits import Line

KEY = events.key(events.gaussian(1000.0))
PROCESSES = (1, 8)


def prepare(place: Place, processes: int) -> None:
    """A federation's account that contains one silo for each process."""
    shared: dict[str, Any] = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-5}
    with Ledger(place) as ledger:
        ledger.open_account(Account("federation", scope="federation", currency="gdp", overlap=1, **shared))
        for number in range(processes):
            ledger.open_account(Account(f"silo-{number}", parent="federation", currency="gdp", **shared))


def release(place: Place, number: int, count: int, ready: Any) -> None:
    """So many releases of one process, all started together."""
    with Ledger(place) as ledger:
        run = f"run-{number}"
        ledger.open_run(run)
        lines = [Line(f"silo-{number}", Unit.RECORD, KEY, 1)]
        ready.wait(60)
        for part in range(count):
            ledger.commit(ledger.reserve(f"{run}/{part}", run, part, "train", lines), b"model")


def measured(place: Place, processes: int, releases: int) -> dict[str, Any]:
    """Releases per second of so many processes together."""
    prepare(place, processes)
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(processes + 1)
    share = releases // processes
    started = [context.Process(target=release, args=(place, number, share, ready)) for number in range(processes)]
    for process in started:
        process.start()
    ready.wait(60)
    begun = time.perf_counter()
    for process in started:
        process.join()
    wall = time.perf_counter() - begun
    report = verify(place)
    if not report.ok or report.counts["committed"] != share * processes:
        raise SystemExit(f"the benchmark's own ledger does not verify: {report.problems}, {report.counts}")
    return {
        "processes": processes,
        "releases": share * processes,
        "wall_s": round(wall, 2),
        "releases_per_s": round(share * processes / wall, 1),
    }


def throughput(releases: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Both databases, one process and eight."""
    from private_postgresql import binaries, server

    for processes in PROCESSES:
        row = measured(folder / f"of-{processes}.db", processes, releases)
        yield {"task": "durable releases", "database": "sqlite", **row}
    if binaries() is None:
        yield {"task": "durable releases", "database": "postgresql", "left_out": "no server on this machine"}
        return
    with server() as database:
        for processes in PROCESSES:
            row = measured(database.fresh(), processes, releases)
            yield {"task": "durable releases", "database": "postgresql", **row}
