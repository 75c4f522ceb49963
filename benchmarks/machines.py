"""What carrying an experiment over Flower costs: CPU and wall time of a round, and bytes on the wire.

    python benchmarks/machines.py --json                             all parts
    python benchmarks/machines.py --parts near --repeats 3           all systems in this process, in turn
    python benchmarks/machines.py --parts far --sites 2 4           a coordinator and its sites as processes on loopback
    python benchmarks/machines.py --parts bytes                      sizes of messages, and what a relay counts

Digits of scikit-learn, a CNN of 6,061 parameters, one local epoch, batch 16, SGD 0.1, all clients in every round. Ours
clips, adds noise, and charges each round in the coordinator's ledger; where silos have ledgers, in each of theirs too,
on disk and signed. Flower's own FedAvg only trains and averages. Every figure is per round from the end of the first to
the end of the last, so set-up does not count; CPU is that of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from machines_near import FEDAVG, SECRET, SYSTEMS, alone, between_apps, quiet
from machines_processes import Machines, Relay
from machines_task import Clock, Task, secret

from sordino.experiment.deploy.layout import read_coordinator
from sordino.experiment.flower.local_grid import LocalGrid

Row: TypeAlias = dict[str, Any]


@contextmanager
def room() -> Iterator[Path]:
    """A folder that goes with what is measured in it."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        yield Path(folder)


def say(row: Row) -> Row:
    """Show a row at once."""
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def busy() -> Row:
    """How busy the machine was in the last minute."""
    return {"load": round(os.getloadavg()[0], 1)}


# ── in this process ──


def near(clients: int, rounds: int, repeats: int) -> list[Row]:
    """One row per system; they take turns."""
    found: dict[str, list[Row]] = {name: [] for name in SYSTEMS}
    for repeat in range(repeats):
        for name, (system, ways) in SYSTEMS.items():
            told = Clock()
            with room() as folder:
                size = (f"rounds={rounds}", f"partition.iid.clients={clients}", f"seed={repeat + 1}")
                more = secret(clients) if name == SECRET else ways
                system(folder, Task.of(folder, *size, *more), told)
            found[name].append(say({"system": name, **told.row(clients), **busy()}))
    base = [row["cpu_ms_per_client_round"] for row in found[FEDAVG]]
    return [together(name, rows, base) | {"clients": clients} for name, rows in found.items()]


def together(name: str, rows: list[Row], base: list[float]) -> Row:
    """Medians over repeats; the ratio is taken inside each."""
    each = [row["cpu_ms_per_client_round"] for row in rows]
    return {
        "system": name,
        "rounds": rows[0]["rounds"],
        "cpu_ms_per_client_round": round(median(each), 2),
        "each": each,
        "ratio_to_fedavg": round(median(a / b for a, b in zip(each, base, strict=True)), 2),
        "wall_s_per_round": round(median(row["wall_s_per_round"] for row in rows), 3),
    }


# ── as processes ──


def far(sites: int, rounds: int, flower_rounds: int, systems: Iterable[str]) -> list[Row]:
    """Ours with its long-lived trainers, plain and as a secure sum, and Flower's FedAvg with a process per message."""
    ours = {"sordino": (), "secure sum": secret(sites) if sites > 2 else None}
    rows = []
    for name in systems:
        ways = ours.get(name)
        if ways is not None:
            rows.append(say({"system": name, "sites": sites, **trained(sites, rounds, ways), **busy()}))
        if name == "flower":
            told = Clock()
            with room() as folder, Machines(folder / "fed", sites, isolation="subprocess") as machines:
                told.names.update(machines.names)
                machines.flower(flower_rounds, told)
            rows.append(say({"system": name, "sites": sites, **told.row(sites), **busy()}))
    return rows


def trained(sites: int, rounds: int, ways: Iterable[str]) -> Row:
    """A run of ours; what its rounds take beyond those in one process is what the machines cost."""
    here, there = Clock(), Clock()
    with room() as folder:
        task = Task.of(folder, f"rounds={rounds}", f"partition.iid.clients={sites}", *ways)
        noise_at = task.experiment.privacy.noise_at.value
        with Machines(folder / "fed", sites, noise_at=noise_at) as machines:
            there.names.update(machines.names)
            machines.sordino(task, there)
        alone(task, folder, here)
    beyond = there.row(sites)["wall_s_per_round"] - here.row(sites)["wall_s_per_round"]
    return {**there.row(sites), "wall_s_beyond_in_process": round(beyond, 3)}


# ── bytes ──


class Weighed(LocalGrid):
    """Weighs each message as it would travel: its parts, the list of them, and its envelope."""

    def __init__(self, apps: Mapping[int, ClientApp], passed: dict[str, int]) -> None:
        super().__init__(apps)
        self._passed = passed

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Weigh what goes to sites."""
        kept = list(messages)
        numbers = super().push_messages(kept)
        self._passed["down"] += sum(map(weight, kept))
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Weigh what comes back."""
        replies = list(super().pull_messages(message_ids))
        self._passed["up"] += sum(map(weight, replies))
        return replies


def weight(message: Message) -> int:
    """Bytes of a message."""
    parts = sum(len(part.deflate()) for part in get_all_nested_objects(message).values())
    envelope = message_to_proto(remove_content_from_message(message)).ByteSize()
    return parts + get_object_tree(message).ByteSize() + envelope


HEART = ("data={ heart = {} }", "partition={ natural = {} }", "model={ logistic = {} }", "evaluation={}")
MODELS: dict[str, tuple[str, ...]] = {
    "heart, logistic": HEART,
    "digits, CNN": (),
    "digits, MLP 123": ("model={ mlp = { hidden = [123] } }",),
    "digits, MLP 13,334": ("model={ mlp = { hidden = [13334] } }", "privacy.noise_multiplier=0.005"),
}
"""Of 30, 6,061, 9,235 (a small adapter has 9,216) and 1,000,060 numbers."""


def weights(model: str, ways: tuple[str, ...], kind: str) -> Row:
    """Bytes of a round's messages to and from each site."""
    passed, seen = {"down": 0, "up": 0}, list[dict[str, int]]()
    with room() as folder:
        task = Task.of(folder, "rounds=3", *ways)
        between_apps(folder, task, lambda _: seen.append(dict(passed)), lambda apps: Weighed(apps, passed))
    return sized("messages", model, kind, task, seen)


def wires(model: str, ways: tuple[str, ...], kind: str) -> Row:
    """What a relay between the coordinator and its sites counts, with TLS, headers, signatures and questions."""
    seen: list[dict[str, int]] = []
    with room() as folder:
        task = Task.of(folder, "rounds=5", *ways)
        machines = Machines(folder / "fed", 4, noise_at=task.experiment.privacy.noise_at.value)
        machines.relay = relay = Relay(read_coordinator(machines.room).port)
        with machines:
            machines.sordino(task, lambda _: seen.append(dict(relay.passed)))
    return sized("wire", model, kind, task, seen)


def counted() -> Iterator[Row]:
    """By model, plain and as a secure sum."""
    for model, ways in MODELS.items():
        yield weights(model, ways, "plain")
        yield weights(model, (*ways, *secret(4)), "secure sum")
    for model in ("digits, CNN", "digits, MLP 13,334"):
        yield wires(model, MODELS[model], "plain")
    yield wires("digits, CNN", secret(4), "secure sum")


def sized(what: str, model: str, kind: str, task: Task, seen: list[dict[str, int]]) -> Row:
    """Bytes of a round and site, as a multiple of the model as float32; the median round after the first."""
    clients, vector = len(task.plan.clients), 4 * task.plan.parameters
    row: Row = {"bytes": what, "model": model, "kind": kind, "numbers": task.plan.parameters, "vector": vector}
    for way in ("down", "up"):
        each = [(after[way] - before[way]) / clients for before, after in pairwise(seen)]
        row |= {way: round(median(each)), f"{way}_over_vector": round(median(each) / vector, 3)}
    return say(row)


def main(arguments: list[str] | None = None) -> None:
    """Print the rows, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=["near", "far", "bytes"], default=["near", "far", "bytes"])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sites", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--flower-rounds", type=int, default=3, help="each starts a process per site")
    parser.add_argument("--systems", nargs="+", default=["sordino", "secure sum", "flower"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[Row] = []
    if "near" in options.parts:
        rows += near(options.clients, options.rounds, options.repeats)
    if "far" in options.parts:
        for sites in options.sites:
            rows += far(sites, options.rounds, options.flower_rounds, options.systems)
    if "bytes" in options.parts:
        rows += counted()
    for row in rows:
        print(json.dumps(row), file=sys.stderr)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
