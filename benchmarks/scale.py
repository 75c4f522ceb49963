"""What a round costs when there are very many clients: time, memory, bytes and lines of the ledger, measured.

    python benchmarks/scale.py --json                                   100,000 clients, cohorts of 1,000 and 10,000
    python benchmarks/scale.py --clients 10000 --cohorts 1000 --accounts each

A real plan, loop, sampler, clip, sum, noise, ledger and strategy in one process; only the data are made up, each
client's from its number when it trains, and nothing of them is kept. The model is logistic regression. With
`--accounts each` the cohort is public and takes turns, so every client pays from an account of its own. Every case runs
in a fresh process, whose peak of resident memory is its own; what rounds add is told apart from what the plan takes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core import tables
from sordino.core.seeds import stream
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData, Silo
from sordino.experiment.books import kept
from sordino.experiment.build import build
from sordino.experiment.claimed import claimed_epsilon
from sordino.experiment.config import Experiment
from sordino.experiment.plan import make_plan
from sordino.experiment.population import Population
from sordino.experiment.reading import spec_of
from sordino.experiment.rounds import State
from sordino.experiment.settings import setting_of

FEATURES, RECORDS, CLIP = 20, 8, 1.0


@dataclass(frozen=True, eq=False)
class MadeUp(FederatedData):
    """Clients whose records are made from their number, the same each time."""

    def silo(self, i: int) -> Silo:
        draw = stream(0, "made-up client", i)
        x = draw.standard_normal((RECORDS, FEATURES)).astype(np.float32)
        y = (x[:, 0] + x[:, 1] + 0.5 * draw.standard_normal(RECORDS) > 0).astype(np.int64)
        return Silo(self.names[i], x, y)


@dataclass(frozen=True)
class Case:
    """One federation."""

    clients: int
    cohort: int
    rounds: int = 3
    accounts: str = "shared"

    def experiment(self) -> Experiment:
        """As somebody would write it."""
        sampling: dict[str, Any] = {"poisson": {"rate": self.cohort / self.clients}}
        if self.accounts == "each":
            sampling = {"round_robin": {"size": self.cohort}}
        table = {
            "name": "scale",
            "rounds": self.rounds,
            "data": {"digits": {}},  # never loaded: the population is made up
            "model": {"logistic": {}},
            "privacy": {"unit": "client", "noise_at": "coordinator", "epsilon": 4.0},
            "local": {"steps": 2, "batch": "full", "lr": 0.5},
            "sampling": sampling,
            "stages": [{"clip": {"norm": CLIP}}],
            "strategy": {"fedavg": {}},
        }
        return tables.build(Experiment, table, "scale")

    def population(self, experiment: Experiment) -> Population:
        """So many clients, none with records in memory."""
        form = Examples(np.zeros((1, FEATURES), np.float32), np.zeros(1, np.int64), classes=2, public=True)
        names = tuple(f"c{number}" for number in range(self.clients))
        past = np.arange(1, 1 + self.clients * RECORDS).reshape(self.clients, RECORDS)
        train = MadeUp(form, names, tuple(past), frozenset(names))
        test = FederatedData(form, ("test",), (np.zeros(1, np.int64),))
        return Population(train, test, (1,) * self.clients, spec_of(experiment, form), True, "made up")

    def measure(self, folder: Path) -> dict[str, Any]:
        """Plan, then run all rounds."""
        meter = Meter()
        experiment = self.experiment()
        population = self.population(experiment)
        meter.mark("population")
        plan = make_plan(experiment, population, check_learning=False)
        meter.mark("plan")
        built = build(plan, population)
        meter.mark("build")
        place = folder / "ledger.db"
        with kept(plan, "run", place) as (books, ledger):
            meter.mark("admit")
            admitted, marks = _bytes(place), []

            def seen(state: State) -> None:
                del state
                marks.append(meter.mark("round"))

            loop = built.loop(books, "run", lambda _: None, seen)
            state = loop.rounds(loop.start(built.start), setting_of(built.setup))
            lines = sum(len(charge.lines) for charge in ledger.charges("run")) if ledger else 0
            claims = tuple(ledger.claims("run")) if ledger else ()
            grown = _bytes(place) - admitted
        taught = state.server.model[:2] / np.linalg.norm(state.server.model[:FEATURES])
        return {
            "clients": self.clients,
            "cohort": self.cohort,
            "rounds": self.rounds,
            "accounts": self.accounts,
            "parameters": plan.parameters,
            "epsilon": claimed_epsilon(plan, claims),
            "noise_multiplier": round(plan.worst.noise_multiplier, 3),
            "learnt": [round(float(weight), 2) for weight in taught],
            **{f"{name}_cpu_s": round(spent, 2) for name, spent in meter.spent.items() if name != "round"},
            "round_cpu_s": [round(mark.cpu, 3) for mark in marks],
            "client_round_us": round(1e6 * sum(mark.cpu for mark in marks) / (self.rounds * self.cohort), 1),
            "model_bytes_per_client": 4 * built.setup.layout.size,
            "peak_mb_before_rounds": round(meter.before_rounds, 1),
            "peak_mb": round(marks[-1].peak, 1),
            "ledger_lines_per_round": lines // self.rounds,
            "ledger_bytes_admitted": admitted,
            "ledger_bytes_per_round": grown // self.rounds,
        }


@dataclass(frozen=True)
class Mark:
    """CPU since the mark before, and the largest the process has been, in MB."""

    cpu: float
    peak: float


class Meter:
    """CPU by what it was spent on; memory."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.before_rounds = 0.0
        self._last = time.process_time()

    def mark(self, name: str) -> Mark:
        """End a piece of work."""
        now, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        mark, self._last = Mark(now - self._last, peak), now
        self.spent[name] = self.spent.get(name, 0.0) + mark.cpu
        if name != "round":
            self.before_rounds = peak
        return mark


def _bytes(place: Path) -> int:
    """The database file, once all that was written has reached it."""
    with closing(sqlite3.connect(place)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return place.stat().st_size


def measured(case: Case) -> dict[str, Any]:
    """One case, with a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return case.measure(Path(folder))


def main(arguments: list[str] | None = None) -> None:
    """Print the cases, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--cohorts", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--accounts", choices=["shared", "each"], default="shared")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for cohort in options.cohorts:
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            case = Case(options.clients, cohort, options.rounds, options.accounts)
            rows.append(fresh.apply(measured, (case,)))
        print(rows[-1], file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
