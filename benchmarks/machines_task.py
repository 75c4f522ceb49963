"""What machines.py trains, and how it tells time: digits on a small network, one private sum a round.

Whole clients are protected by noise at the coordinator: a round then has the training of plain FedAvg, a clip, and
charges. The noise is weak, since costs do not depend on it and a few clients learn nothing beneath more.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sordino.experiment import config
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.progress import Progress

TEXT = """
name = "digits"
seed = 1
rounds = 10
ledger = "federation.db"
[data.digits]
[partition.iid]
clients = 4
[model.cnn]
channels = [16, 32]
kernel = 3
hidden = 9
[privacy]
unit = "client"
noise_at = "coordinator"
adjacency = "add_remove"
noise_multiplier = 0.1
delta = 1e-5
[local]
epochs = 1
batch_size = 16
lr = 0.1
[sampling.all]
[[stages]]
clip = { norm = 1.0 }
[strategy.fedavg]
[evaluation.data.digits]
"""
EPSILON, DELTA = 1e6, 0.5
"""What each site's people may lose: more than the weak noise of all runs costs."""

TICKS = os.sysconf("SC_CLK_TCK")


def secret(clients: int) -> tuple[str, ...]:
    """The same with a secure sum, and noise in shares: a quarter of the clients may be lost."""
    sums = f"secure_sum={{ bits = 24, minimum = {clients - clients // 4} }}"
    return ("privacy.noise_at='sum'", "privacy.mechanism='skellam'", sums)


@dataclass(frozen=True)
class Task:
    """An experiment, as `run` needs it."""

    file: Path
    overrides: tuple[str, ...]
    experiment: config.Experiment
    population: Population
    plan: Plan

    @classmethod
    def of(cls, folder: Path, *overrides: str) -> Task:
        """The digits with some keys replaced."""
        file = folder / "digits.toml"
        file.write_text(TEXT, encoding="utf-8")
        experiment = config.read(file, overrides)
        population = load(experiment)
        return cls(file, overrides, experiment, population, make_plan(experiment, population))


@dataclass
class Clock:
    """Moments at which rounds ended: wall time, and CPU seconds by process.

    Args:
        names: What the processes are that this one started, by number; others are part of the run itself.
    """

    names: dict[int, str] = field(default_factory=dict)
    moments: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def __call__(self, progress: Progress | None = None) -> None:
        """A round has ended."""
        del progress
        self.at(time.monotonic())

    def at(self, wall: float) -> None:
        """A round ended at this moment, a little while ago."""
        spent = {"run": time.process_time()}
        for pid, seconds in descendants().items():
            name = self.names.get(pid, "run")
            spent[name] = spent.get(name, 0.0) + seconds
        self.moments.append((wall, spent))

    def row(self, clients: int) -> dict[str, Any]:
        """Per round, from the end of the first to the end of the last: what is done once does not count."""
        walls = [after[0] - before[0] for before, after in pairwise(self.moments)]
        first, last = self.moments[0][1], self.moments[-1][1]
        each = {name: 1000 * (last[name] - first.get(name, 0.0)) / len(walls) / clients for name in last}
        return {
            "rounds": len(walls),
            "cpu_ms_per_client_round": round(sum(each.values()), 2),
            "cpu_ms_by_part": {name: round(value, 2) for name, value in each.items()},
            "wall_s_per_round": round(median(walls), 4),
            "least_wall_s": round(min(walls), 4),
            "most_wall_s": round(max(walls), 4),
        }


def descendants() -> dict[int, float]:
    """CPU seconds of each process that this one started, with its own descendants; under 0 of those that ended."""
    children: dict[int, list[tuple[int, float]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended, and its parent will tell
            children.setdefault(int(fields[1]), []).append((int(entry.name), sum(map(int, fields[11:15])) / TICKS))
    ended = os.times()

    def family(pid: int, own: float) -> float:
        return own + sum(family(*child) for child in children.get(pid, []))

    mine = {pid: family(pid, own) for pid, own in children.get(os.getpid(), [])}
    return {0: ended.children_user + ended.children_system, **mine}
