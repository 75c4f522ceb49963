"""One slow site among four, as real processes: what rounds that wait for it cost, and rounds that do not.

    python benchmarks/slow_site.py [--json] [--updates 48] [--busy 9]

The heart data over Flower on loopback, TLS and node keys, at epsilon 2 for each silo. The trainer of one site is
stopped for nine seconds in ten, as on a machine that has other work. The same number of updates: synchronous rounds of
four, buffers of two on a public schedule that knows its pace, buffers of the two who come first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from federations import SORDINO, folders

from sordino.experiment.deploy import local
from sordino.ledger import Ledger

EXAMPLE = Path(__file__).parents[1] / "examples" / "heart.toml"
SITES, SLOW = ("cleveland", "hungary", "switzerland", "va-long-beach"), "switzerland"
BUFFER = (
    "sampling={{ buffered={{ size=2, per_client={cap}, concurrency=4, arrivals='{arrivals}', "
    "durations='constant', paces={paces} }} }}"
)
PACES = [5.0 if name == SLOW else 1.0 for name in SITES]
WAYS = ("synchronous", "schedule", "first_come")


def terms(way: str, updates: int) -> list[str]:
    """The experiment's overrides, so that all ways have as many updates."""
    if way == "synchronous":
        return [f"rounds={updates // 4}"]
    return [f"rounds={updates // 2}", BUFFER.format(cap=updates // 2, arrivals=way, paces=PACES)]


@contextlib.contextmanager
def federation(home: Path) -> Iterator[Path]:
    """Four sites and their coordinator, on free ports."""
    text = EXAMPLE.read_text().partition("[compare]")[0]  # the table's rows would run in one process
    one = 'ledger = "federation.db"\n'  # for all runs: sites refuse a coordinator that remembers less than they do
    (home / "heart.toml").write_text(one + text + "[budget]\nepsilon = 8.0\ndelta = 1e-4\n")
    fed = folders(home, SITES, "epsilon = 8.0\ndelta = 1e-4\n")
    local.up(fed, say=lambda _: None)
    try:
        yield fed
    finally:
        local.down(fed)


@contextlib.contextmanager
def slowed(fed: Path, stopped_s: float) -> Iterator[None]:
    """The slow site's trainer runs for one second after each pause."""
    (pid,) = [part.pid for part in local.parts(fed) if part.name == f"{SLOW} trainer"]
    ended = threading.Event()

    def turns() -> None:
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            ended.wait(stopped_s)
            os.kill(pid, signal.SIGCONT)
            ended.wait(1.0)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def trained(fed: Path, way: str, updates: int) -> dict[str, Any]:
    """One run: how long its rounds took, and what came of it."""
    runs = fed.parent / "runs"
    options = [f"--set={term}" for term in (*terms(way, updates), f"name='{way}'")]
    command = [
        *SORDINO,
        "run",
        str(fed.parent / "heart.toml"),
        "--engine",
        "flower",
        "--federation",
        str(fed / "coordinator"),
        "--json",
    ]
    begun = time.time()
    done = subprocess.run([*command, "--runs", str(runs), *options], check=True, stdout=subprocess.PIPE, text=True)
    summary = json.loads(done.stdout)
    with Ledger(fed.parent / "federation.db", read_only=True) as ledger:
        run = next(e.body["run"] for e in reversed(ledger.history()) if e.kind == "run-opened")
        sent = [charge.lines for charge in ledger.charges(run) if charge.state == "committed"]
    come = Counter(line.account for lines in sent for line in lines)
    return {
        "way": way,
        "seconds": round(time.time() - begun, 1),
        "epsilon": summary["epsilon"],
        "auc": summary["metrics"].get("auc"),
        "updates": dict(sorted(come.items())),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Print a row for each way, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=48, help="in all, a multiple of four")
    parser.add_argument("--busy", type=float, default=9.0, help="seconds that the slow site's trainer stands still")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as home, federation(Path(home)) as fed:
        for way in WAYS:
            with slowed(fed, options.busy):
                rows.append(trained(fed, way, options.updates))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
