"""What the ledger costs: verifying, answering and signing on a history of 10,000 events; durable releases per second.

python benchmarks/ledger.py --json
python benchmarks/ledger.py --events 1000 --only evidence
python benchmarks/ledger.py --only throughput --releases 400

A section is a function that takes the options and yields rows; add one to SECTIONS.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, verify, witnesses
from sordino.ledger.export import export, verify_export
from sordino.ledger.keys import SigningKey
from sordino.ledger.witnesses import Witness
from sordino.privacy import events
from sordino.privacy.permits import Line

STEP = events.gaussian(100.0)
EVENT = events.key(STEP)
OWNER, SILO = SigningKey.generate("coordinator"), SigningKey.generate("clinic-a")

Row: TypeAlias = dict[str, Any]


def timed(task: str, run: Callable[[], object], repeat: int = 3, **extra: object) -> Row:
    """Median wall and CPU seconds of one task."""
    wall, cpu = [], []
    for _ in range(repeat):
        start = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    return {
        "task": task,
        "wall_s": round(statistics.median(wall), 4),
        "cpu_s": round(statistics.median(cpu), 4),
        **extra,
    }


def written(path: Path, count: int, key: SigningKey | None) -> int:
    """A ledger of so many events: two accounts pay for every release, and every release is published."""
    shared = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-5}
    with Ledger(path, key=key) as ledger:
        ledger.open_account(Account("federation", scope="federation", currency="gdp", overlap=1, **shared))
        ledger.open_account(Account("silo", parent="federation", currency="gdp", **shared))
        ledger.open_run("run")
        per_release = 4 if key else 3
        for number in range(count // per_release):
            reservation = ledger.reserve(str(number), "run", number, "train", [Line("silo", Unit.RECORD, EVENT, 1)])
            ledger.commit(reservation, b"model")
            ledger.published(str(number))
        return len(ledger.history())


def evidence(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Verifying, asking and showing, with and without signatures."""
    for name, key in (("unsigned", None), ("signed", OWNER)):
        path = folder / f"{name}.db"
        start = time.perf_counter(), time.process_time()
        size = written(path, options.events, key)
        seconds = time.perf_counter() - start[0]
        shared = {"events": size, "ledger": name}
        yield {
            "task": "write",
            "wall_s": round(seconds, 2),
            "cpu_s": round(time.process_time() - start[1], 2),
            **shared,
        }
        known = {"keys": [key.public]} if key else {}
        report = verify(path, **known)
        if not report.ok:
            raise SystemExit(f"the benchmark's own ledger does not verify: {report.problems}")
        yield timed("verify", lambda path=path, known=known: verify(path, **known), **shared)
        with Ledger(path, read_only=True) as ledger:
            yield timed("balance", lambda ledger=ledger: ledger.balance("federation"), 9, **shared)
    yield from shown(folder, size)


def shown(folder: Path, size: int) -> Iterator[Row]:
    """What a silo and an auditor do with a signed ledger."""
    shared = {"events": size, "ledger": "signed"}
    witness = Witness(folder / "memory.jsonl", SILO, [OWNER.public])
    with Ledger(folder / "signed.db", key=OWNER) as ledger:
        first = ledger.growth(0)
        yield timed("growth: checkpoint and proof", lambda: ledger.growth(size // 3), **shared)
        yield timed("inclusion: one event's proof", lambda: ledger.inclusion(size // 3), **shared)
        yield timed("see: a silo's countersignature", lambda: witness.see(first.note), **shared)
        notes = witnesses.read(witness.path)
        yield timed("compare_with: before going on", lambda: ledger.compare_with(notes), **shared)
    out = folder / "export.json"
    yield timed("export", lambda: export(folder / "signed.db", out), 1, **shared)
    yield timed("verify_export", lambda: verify_export(out, keys=[OWNER.public]), **shared)


def throughput(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Durable releases per second, on both databases."""
    import ledger_throughput

    yield from ledger_throughput.throughput(options.releases, folder)


SECTIONS: dict[str, Callable[[argparse.Namespace, Path], Iterator[Row]]] = {
    "evidence": evidence,
    "throughput": throughput,
}


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--releases", type=int, default=400, help="Of the throughput section, for each figure.")
    parser.add_argument("--only", choices=sorted(SECTIONS))
    options = parser.parse_args(arguments)
    rows = []
    for name, section in SECTIONS.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                for row in section(options, Path(folder)):
                    rows.append({"section": name, **row})
                    if not options.json:
                        print(*(f"{key}={value}" for key, value in rows[-1].items()), sep="  ", flush=True)
    if options.json:
        print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
