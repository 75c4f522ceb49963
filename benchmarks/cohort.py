"""What a client costs in a simulation: CPU time per client step, beside a plain PyTorch loop, pfl and Flower on Ray.

A client step is one local epoch of one client. Every figure is a slope: CPU seconds of the process tree for many
rounds less those for few, over the client steps between them, so start-up does not count. Systems take turns.

    python benchmarks/cohort.py --json                                        what is installed here
    python benchmarks/cohort.py --python PATH/bin/python                      pfl 0.6 and flwr[simulation] 1.42 in there
    python benchmarks/cohort.py --tasks records                               the example level only

Clients: scikit-learn digits, 100 clients, a CNN of 6,090 parameters, batch 16, SGD 0.1. Ours clips, sums, adds noise
and keeps a ledger; the others only train and average. Records: an MLP of 50,890 parameters, 50 clients x 60 records,
20 expected per step, 3 steps; the plain loop has no privacy. All its parts run in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import cohort_task
import numpy as np
import torch
from torch import nn

from sordino.core import tables
from sordino.core.types import Unit
from sordino.experiment.config import Experiment
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.run import run
from sordino.local.clipping import engines
from sordino.local.clipping.stacked import clipped_sums
from sordino.local.cohort.buckets import Member, buckets, padded
from sordino.local.cohort.plain import split
from sordino.local.cohort.private import Silo, train_private_many
from sordino.local.cohort.twin import Twin
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

HERE = Path(__file__).parent
MARK = "SORDINO_COHORT_BENCHMARK"
TICKS = os.sysconf("SC_CLK_TCK")
SYSTEMS: dict[str, tuple[int, int]] = {
    "plain PyTorch loop": (10, 60),
    "sordino": (10, 60),
    "sordino, one by one": (10, 60),
    "pfl": (10, 60),
    "flower on Ray": (2, 8),
}
"""Few rounds and many."""


@dataclass(frozen=True)
class Network:
    """The task's network as a model of ours."""

    example: ClassVar[dict[str, Any]] = {}

    def shapes(self, spec: InputSpec) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Of the parameters."""
        del spec
        return tuple((name, tuple(p.shape)) for name, p in cohort_task.network().named_parameters())

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        """As torch initialises it."""
        del spec, seed
        return cohort_task.network()


def sordino(rounds: int, cohort: str) -> None:
    """Client-level privacy, a ledger on disk, and a claim at the end."""
    models.register("cohort_benchmark")(Network)
    table = {
        "name": "cohort",
        "rounds": rounds,
        "data": {"digits": {}},
        "partition": {"iid": {"clients": cohort_task.CLIENTS}},
        "model": {"cohort_benchmark": {}},
        "privacy": {"unit": "client", "noise_at": "coordinator", "noise_multiplier": 1.0},
        "local": {"epochs": 1, "batch_size": cohort_task.BATCH, "lr": cohort_task.LR},
        "sampling": {"all": {}},
        "stages": [{"clip": {"norm": 1.0}}],
        "strategy": {"fedavg": {}},
        "evaluation": {"data": {"digits": {}}},
        "simulation": {"cohort": cohort},
    }
    experiment = tables.build(Experiment, table, "cohort")
    population = load(experiment)
    with tempfile.TemporaryDirectory() as folder:
        result = run(make_plan(experiment, population, check_learning=False), population, "", Path(folder))
    print(f"accuracy {result.summary['metrics']['accuracy']:.3f} with noise")


def plain(rounds: int) -> None:
    """What one writes by hand: a module, an optimiser, a loop over clients, a mean."""
    data, model = cohort_task.shards(), cohort_task.network()
    for _ in range(rounds):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for x, y in data:
            model.load_state_dict(start)
            optimiser = torch.optim.SGD(model.parameters(), lr=cohort_task.LR)
            for rows in torch.randperm(len(y)).split(cohort_task.BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
            for name, value in model.state_dict().items():
                total[name] += value
        model.load_state_dict({name: value / len(data) for name, value in total.items()})
    print(f"accuracy {cohort_task.accuracy(model):.3f}")


def command(system: str, rounds: int, python: str) -> list[str]:
    """The program of a system."""
    if system == "pfl":
        return [python, str(HERE / "cohort_pfl.py"), str(rounds)]
    if system == "flower on Ray":
        return [python, str(HERE / "cohort_flower.py"), str(rounds)]
    return [sys.executable, __file__, "--alone", system, "--rounds", str(rounds)]


def installed(system: str, python: str) -> bool:
    """Whether the interpreter has the system."""
    needed = {"pfl": "import pfl, torch", "flower on Ray": "import flwr, ray, torch"}.get(system, "")
    return subprocess.run([python, "-c", needed], capture_output=True, check=False).returncode == 0


def tree_cpu(arguments: list[str]) -> float:
    """CPU seconds of a program and everything that it starts, daemons included.

    The kernel tells what waited-for descendants used; the rest is watched through a mark in the environment.
    """
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    environment = os.environ | {MARK: mark, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output)
        spent: dict[str, float] = {}
        known: dict[str, bool] = {}
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            _watch(f"{MARK}={mark}".encode(), known, spent)
            if pid:
                break
            time.sleep(0.1)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode or "accuracy" not in text:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{text[-2000:]}")
    return max(usage.ru_utime + usage.ru_stime, sum(spent.values()))


def _watch(mark: bytes, known: dict[str, bool], spent: dict[str, float]) -> None:
    """What every marked process has used so far."""
    for process in Path("/proc").iterdir():
        pid = process.name
        if not pid.isdigit():
            continue
        try:
            if not known.get(pid, False):
                known[pid] = mark in (process / "environ").read_bytes().split(b"\0")
            if known[pid]:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                spent[pid] = (int(fields[11]) + int(fields[12])) / TICKS
        except (OSError, ValueError):  # it has just ended
            continue


def clients(repeats: int, python: str, systems: list[str], ray_repeats: int) -> list[dict[str, Any]]:
    """One row per system."""
    slopes: dict[str, list[float]] = {system: [] for system in systems}
    present = {system: installed(system, python) for system in systems}
    for repeat in range(repeats):
        turn = [*systems[repeat % len(systems) :], *systems[: repeat % len(systems)]]
        for system in turn:
            if not present[system] or (system == "flower on Ray" and repeat >= ray_repeats):
                continue
            few, many = SYSTEMS[system]
            spent = [tree_cpu(command(system, rounds, python)) for rounds in (few, many)]
            slopes[system].append(1000 * (spent[1] - spent[0]) / ((many - few) * cohort_task.CLIENTS))
            print(f"{system:<20} {slopes[system][-1]:7.3f} ms a client step", file=sys.stderr, flush=True)
    base = median(slopes["plain PyTorch loop"]) if slopes.get("plain PyTorch loop") else None
    return [_row(system, slopes[system], base) for system in systems]


def _row(system: str, values: list[float], base: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"task": "digits, CNN of 6,090 parameters, 100 clients", "system": system}
    if not values:
        return row | {"ms_per_client_step": "not installed"}
    row |= {"ms_per_client_step": round(median(values), 3), "each": [round(value, 3) for value in values]}
    return row | ({"ratio_to_plain": round(median(values) / base, 3)} if base else {})


@dataclass(frozen=True)
class Gaussian:
    """Noise of a multiplier; `silent` draws none, to see what the rest costs."""

    silent: bool

    def event(self) -> events.Event:
        """Of one unsampled release."""
        return events.gaussian(1.0)

    def scale(self, l2: float, l1: float | None) -> float:
        """Of the noise."""
        del l1
        return l2

    def draw(self, source: Any, permit: Any, scale: float, size: int) -> Any:
        """The noise."""
        return np.zeros(size) if self.silent else source.normal(permit, scale, size)


CLIENTS, RECORDS, STEPS, EXPECTED = 50, 60, 3, 20


def records(repeats: int) -> list[dict[str, Any]]:
    """CPU time of one round at the example level over a plain loop without privacy, all in this process."""
    torch.set_num_threads(1)
    spec = InputSpec((784,), classes=10)
    model = models.build("mlp", {"hidden": [64]}).build(spec, 0)
    layout = Layout.of(model)
    start, rng = layout.flatten(model), np.random.default_rng(0)
    x = rng.random((CLIENTS, RECORDS, 784), dtype=np.float32)
    data = [(own, rng.integers(10, size=RECORDS), None) for own in x]
    source, objective, twin = SeededNoise(0), objectives.example("plain"), Twin(model, cross_entropy)
    engine = engines.build("auto", {})
    plan = PrivateSteps(STEPS, 0.1, 1.0, EXPECTED / RECORDS, float(EXPECTED))

    def releases(*, silent: bool) -> list[Any]:
        mechanism = Gaussian(silent)
        lines = [Line(f"{i}", Unit.RECORD, events.key(mechanism.event()), STEPS) for i in range(CLIENTS)]
        reservation = mint_reservation("t", lines, test=True)
        return [Door(mechanism, mechanism.event(), (line.account,), reservation, source) for line in lines]

    def stacked(*, silent: bool) -> None:
        members = [Member(RECORDS, lambda own=own: own) for own in data]
        silos = [Silo(m, plan, release) for m, release in zip(members, releases(silent=silent), strict=True)]
        for _ in train_private_many(twin, silos, start, objective, source):
            pass

    def one_by_one(*, silent: bool) -> None:
        for own, release in zip(data, releases(silent=silent), strict=True):
            train_private(
                model, layout, own, start, plan, release=release, source=source, objective=objective, engine=engine
            )

    tasks: dict[str, Callable[[], None]] = {
        "plain PyTorch loop, no privacy": lambda: plain_records(model, layout, data, start),
        "sordino, clipped sums alone, batches of 20": lambda: sums(twin, data, start),
        "sordino, noise left out": lambda: stacked(silent=True),
        "sordino": lambda: stacked(silent=False),
        "sordino, one by one, noise left out": lambda: one_by_one(silent=True),
        "sordino, one by one": lambda: one_by_one(silent=False),
    }
    spent: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            begun = time.process_time()
            task()
            if repeat:  # the first warms up
                spent[name].append(time.process_time() - begun)
    base = spent["plain PyTorch loop, no privacy"]
    return [
        {
            "task": "MLP of 50,890 parameters, 50 clients x 60 records, 3 steps of 20 expected",
            "system": name,
            "ms_per_client_step": round(1000 * median(values) / CLIENTS, 3),
            "ratio_to_plain": round(median(a / b for a, b in zip(values, base, strict=True)), 3),
        }
        for name, values in spent.items()
    ]


def sums(twin: Twin, data: list[Any], start: Any) -> None:
    """Gradients, norms and clipped sums: no release, no step."""
    for bucket in buckets([RECORDS] * CLIENTS, EXPECTED, twin.layout.size):
        theta = torch.from_numpy(np.tile(start, (len(bucket), 1)))
        for rows in np.split(np.arange(RECORDS), STEPS):
            batch = padded([data[i] for i in bucket], [rows] * len(bucket), twin.device)
            shares = twin.shares(split(twin.layout, theta), batch)
            list(clipped_sums(shares, twin.layout.groups, batch.present, norm=1.0))


def plain_records(model: nn.Module, layout: Layout, data: list[Any], start: Any) -> None:
    """Three batches of 20 for every client, by module and optimiser."""
    for x, y, _ in data:
        layout.restore(model, start)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
        for rows in torch.randperm(RECORDS).split(EXPECTED):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimiser.step()
        optimiser.zero_grad()
        layout.flatten(model)


def main(arguments: list[str] | None = None) -> None:
    """Print the rows, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=["clients", "records"], default=["clients", "records"])
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ray-repeats", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has pfl and flwr[simulation]")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--alone", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        torch.set_num_threads(1)
        if options.alone == "plain PyTorch loop":
            plain(options.rounds)
        else:
            sordino(options.rounds, "auto" if options.alone == "sordino" else "loop")
        return
    rows = []
    if "clients" in options.tasks:
        rows += clients(options.repeats, options.python, options.systems, options.ray_repeats)
    if "records" in options.tasks:
        rows += records(4 * options.repeats)
    for row in rows:
        cost = row["ms_per_client_step"]
        print(
            f"{row['task'][:40]:<40} {row['system']:<36} {cost:>8} ms   {row.get('ratio_to_plain', ''):>6} of plain",
            file=sys.stderr,
        )
    if options.json:
        print(json.dumps({"repeats": options.repeats, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
