"""What per-silo ledgers cost a federation's training: CPU and wall time of the rounds, ledgers on beside ledgers off.

    python benchmarks/two_ledgers.py --json

The four hospitals of `examples/heart.toml`, as they stand there or with more local steps per round. Both ways keep the
coordinator's ledger on disk, with every commit durable; with silos' ledgers on, each hospital reserves, grants, commits
and publishes in a database of its own. The two ways take turns, the order changes every time, and the ratio is taken
inside each pair; set-up (data, plan, enrolment, sensor, joining) is left out. `--steps 1` is the worst case: a round is
then one gradient step of 30 parameters.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from sordino.core.types import Adjacency, Unit
from sordino.experiment import config
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.rounds import Loop
from sordino.experiment.run import run
from sordino.ledger import Account
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey

HEART = Path(__file__).parents[1] / "examples" / "heart.toml"
SILOS = {"enforcement": {"silos": "silos", "key": "coordinator.pem"}}


class Watch:
    """CPU and wall time of the loop over rounds, which is all that is compared."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        whole = Loop.rounds

        def rounds(loop: Loop, *arguments: Any) -> Any:
            cpu, wall = time.process_time(), time.perf_counter()
            try:
                return whole(loop, *arguments)
            finally:
                self.cpu, self.wall = time.process_time() - cpu, time.perf_counter() - wall

        Loop.rounds = rounds  # type: ignore[method-assign]


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    watch = Watch()
    found = [measured(watch, steps, options.rounds, options.pairs) for steps in options.steps]
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print("local steps   CPU off   CPU on   ratio   wall off   wall on   ratio")
    for row in found:
        times = f"{row['cpu_off']:8.2f} s {row['cpu_on']:6.2f} s {row['cpu_ratio']:7.3f}"
        walls = f"{row['wall_off']:8.2f} s {row['wall_on']:7.2f} s {row['wall_ratio']:7.3f}"
        print(f"{row['steps']:11d} {times} {walls}")


def measured(watch: Watch, steps: int, rounds: int, pairs: int) -> dict[str, Any]:
    """Medians over pairs of runs of one experiment."""
    experiment = config.read(HEART, (f"local.steps={steps}", f"rounds={rounds}", 'ledger="federation.db"'))
    population = load(experiment)
    plan = make_plan(experiment, population, check_learning=False)
    rows: list[dict[str, float]] = []
    for pair in range(pairs + 1):
        row: dict[str, float] = {}
        for way in ("off", "on") if pair % 2 else ("on", "off"):
            once(plan, population, silos=way == "on")
            row |= {f"cpu_{way}": watch.cpu, f"wall_{way}": watch.wall}
        rows.append(row | {f"{kind}_ratio": row[f"{kind}_on"] / row[f"{kind}_off"] for kind in ("cpu", "wall")})
    kept = rows[1:]  # the first pair imports and warms up
    result: dict[str, Any] = {"steps": steps, "rounds": rounds, "pairs": pairs}
    result |= {name: round(median(row[name] for row in kept), 4) for name in kept[0]}
    return result | {"silo_ms_per_round": round(1000 * median(r["wall_on"] - r["wall_off"] for r in kept) / rounds, 2)}


def once(plan: Plan, population: Population, *, silos: bool) -> None:
    """One run, in a folder that goes with it."""
    import dataclasses

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if silos:
            key = SigningKey.generate("coordinator")
            key.save(folder / "coordinator.pem")
            for name in plan.clients:
                account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, plan.epsilon * 2, 1e-4)
                enrol(folder / "silos" / name, account, coordinators=[key.public])
            table = config.Enforcement(**SILOS["enforcement"])
            plan = dataclasses.replace(plan, experiment=dataclasses.replace(plan.experiment, enforcement=table))
        run(plan, population, "", folder / "runs", base=folder)


if __name__ == "__main__":
    main()
