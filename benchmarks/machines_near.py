"""The digits of machines.py in this process: simulated, by letters, and as messages between Flower's apps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import machines_flower
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from machines_task import DELTA, EPSILON, Clock, Task

from sordino.core.types import Adjacency
from sordino.experiment import config
from sordino.experiment.flower.local_grid import RUN, LocalGrid
from sordino.experiment.flower_app import client_app, server_app
from sordino.experiment.progress import Progress
from sordino.experiment.remote.federation import Federation
from sordino.experiment.run import run
from sordino.experiment.site.member import Member
from sordino.federation.engines.flower import GridPost
from sordino.federation.post import Post, Within
from sordino.ledger import Account
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import open_silo

Told: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True)
class Silos:
    """A coordinator's key and its silos, newly enrolled in a folder."""

    folder: Path
    task: Task

    def enrol(self) -> None:
        """Make the keys, ledgers and rules."""
        privacy, key = self.task.plan.experiment.privacy, SigningKey.generate("coordinator")
        key.save(self.folder / "coordinator.pem")
        for name in self.task.plan.clients:
            rules = self.at(name) / "silo.toml"
            account = Account(name, privacy.unit, Adjacency.ADD_REMOVE, EPSILON, DELTA)
            enrol(self.at(name), account, coordinators=[key.public])
            text = rules.read_text(encoding="utf-8").replace('["silo"]', f'["{privacy.noise_at.value}"]')
            rules.write_text(text, encoding="utf-8")

    def at(self, name: str) -> Path:
        """A silo's folder."""
        return self.folder / "silos" / name

    @contextmanager
    def members(self) -> Iterator[dict[str, Member]]:
        """Every silo as an object that answers letters."""
        self.enrol()
        peers = {name: SigningKey.load(self.at(name) / "key.pem").public for name in self.task.plan.clients}
        with ExitStack() as stack:
            ledgers = {name: stack.enter_context(open_silo(self.at(name))) for name in peers}
            yield {name: Member(ledger, self.at(name), peers=peers) for name, ledger in ledgers.items()}

    def run(self, post: Post, members: Mapping[str, Member], told: Told) -> None:
        """The task over letters."""
        words: list[str] = []
        keys = {name: member.silo.key.public for name, member in members.items()}
        key = SigningKey.load(self.folder / "coordinator.pem")
        alone(
            self.task, self.folder, told, Federation(self.task.experiment, post, key, keys, wait=0, tell=words.append)
        )
        if words:
            raise SystemExit("\n".join(words))


def alone(task: Task, folder: Path, told: Told, federation: Federation | None = None) -> None:
    """The task, from this process."""
    run(task.plan, task.population, "", folder / "runs", base=folder, progress=told, federation=federation)


def simulated(folder: Path, task: Task, told: Told) -> None:
    """The engine in process."""
    alone(task, folder, told)


def with_silo_ledgers(folder: Path, task: Task, told: Told) -> None:
    """The same, each silo with a ledger of its own."""
    Silos(folder, task).enrol()
    table = config.Enforcement(silos="silos", key="coordinator.pem")
    experiment = replace(task.plan.experiment, enforcement=table)
    alone(replace(task, plan=replace(task.plan, experiment=experiment)), folder, told)


def by_letters(folder: Path, task: Task, told: Told) -> None:
    """Silos that answer letters, carried by a function call."""
    silos = Silos(folder, task)
    with silos.members() as members:
        silos.run(Within({name: member.answer for name, member in members.items()}), members, told)


def between_apps(
    folder: Path, task: Task, told: Told, grid: Callable[[Mapping[int, ClientApp]], LocalGrid] = LocalGrid
) -> None:
    """The same letters as messages between Flower's apps."""
    silos = Silos(folder, task)
    with silos.members() as members:
        apps = {number: client_app(member.answer) for number, member in enumerate(members.values(), 1)}
        app = server_app(lambda over: silos.run(GridPost(over), members, told))
        app(grid(apps), Context(RUN, 0, {}, RecordDict(), {}))


def fedavg(folder: Path, task: Task, told: Clock) -> None:
    """Flower's own app over the same grid."""
    clients, rounds = len(task.plan.clients), task.experiment.count
    apps: dict[int, ClientApp] = dict.fromkeys(range(1, clients + 1), machines_flower.client)
    settings = {"clients": clients, "rounds": rounds, "times": str(folder / "times")}

    class Timed(LocalGrid):
        """Its rounds end when the replies are there; the app's own lines are for other processes."""

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            asked = list(messages)
            replies = super().send_and_receive(asked, timeout=timeout)
            if asked:  # it asks for evaluations, too, of nobody
                told()
            return replies

    machines_flower.server(Timed(apps), Context(RUN, 0, {}, RecordDict(), settings))


@contextmanager
def quiet() -> Iterator[None]:
    """Flower's log of every round goes nowhere."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


FEDAVG, SECRET = "Flower's FedAvg, apps on a grid", "a secure sum between Flower's apps on a grid"
SYSTEMS: dict[str, tuple[Callable[[Path, Task, Clock], None], tuple[str, ...]]] = {
    FEDAVG: (fedavg, ()),
    "Sordino simulated, as `auto` chooses": (simulated, ()),
    "Sordino simulated, one client after another": (simulated, ("simulation.cohort='loop'",)),
    "the same, a ledger at each silo": (with_silo_ledgers, ("simulation.cohort='loop'",)),
    "silos that answer letters": (by_letters, ()),
    "the same letters between Flower's apps on a grid": (between_apps, ()),
    SECRET: (between_apps, ()),
}
