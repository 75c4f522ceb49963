"""A federation as real processes on loopback, for machines.py: TLS, node keys, signed code, and a relay that counts.

Each process is started by the command that its folder's script has.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from federations import free_ports
from machines_near import Told
from machines_task import DELTA, EPSILON, Clock, Task

from sordino.core.types import Unit
from sordino.experiment.deploy import at_rest, bundle, flower_code, layout, local, signatures
from sordino.experiment.deploy.federation import Coordinator, Federation, Isolation, Site
from sordino.experiment.flower.coordinating import Patience, connected
from sordino.experiment.flower.coordinating import federation as described
from sordino.experiment.run import run

PYPROJECT = """
[project]
name = "fedavg"
version = "1.0.0"
description = "FedAvg on digits."
license = "Apache-2.0"
dependencies = ["flwr>=1.42"]
[tool.flwr.app]
publisher = "benchmark"
[tool.flwr.app.components]
serverapp = "machines_flower:server"
clientapp = "machines_flower:client"
[tool.flwr.app.config]
clients = ""
rounds = ""
times = ""
"""


def fedavg() -> bytes:
    """The bundle of Flower's own app."""
    text = Path(__file__).with_name("machines_flower.py").read_text(encoding="utf-8")
    return bundle.packed({"pyproject.toml": PYPROJECT, "machines_flower.py": text})


@dataclass
class Machines:
    """A federation's folder, and its processes while it is up.

    Args:
        folder: A new one.
        sites: How many.
        isolation: `process`: a long-lived trainer at each site. `subprocess`: Flower's own way, one per message.
        noise_at: What sites allow.
    """

    folder: Path
    sites: int
    isolation: Isolation = "process"
    noise_at: str = "coordinator"
    relay: Relay | None = None
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        port, inside, *nodes = free_ports(2 + self.sites)
        each = {
            f"client-{i}": Site(EPSILON, DELTA, unit=Unit.CLIENT, port=node, isolation=self.isolation)
            for i, node in enumerate(nodes)
        }
        layout.write(Federation(each, "digits", Coordinator(port=port, inside=inside)), self.folder)
        for at in layout.site_folders(self.folder).values():
            rules = at / "silo.toml"
            rules.write_text(rules.read_text().replace('["silo"]', f'["{self.noise_at}"]'), encoding="utf-8")
        self.code = bundle.fab() if self.isolation == "process" else fedavg()
        local.sign_all(self.folder, self.code)

    @property
    def names(self) -> dict[int, str]:
        """What each process is, by its number: all nodes alike, all trainers alike."""
        return {part.pid: name.rpartition(" ")[2] for name, part in self._started.items()}

    @property
    def room(self) -> Path:
        """The coordinator's folder."""
        return self.folder / "coordinator"

    def __enter__(self) -> Self:
        superlink = f"localhost:{layout.read_coordinator(self.room).port}"
        for name, command in local.commands(self.folder).items():
            words = [f"localhost:{self.relay.port}" if self.relay and w == superlink else w for w in command]
            with (self.folder / f"{name}.log").open("wb") as log:
                self._started[name] = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        end = time.monotonic() + 300
        while True:
            ended = [name for name, part in self._started.items() if part.poll() is not None]
            if ended or time.monotonic() > end:
                raise SystemExit(f"not up, see {self.folder}: {ended}")
            nodes = local.status(self.folder).nodes
            ready = all(nodes.get(f"client-{i}") == "online" for i in range(self.sites))
            if ready and (self.isolation == "subprocess" or self._trainers()):
                return
            time.sleep(0.5)

    def _trainers(self) -> bool:
        logs = self.folder.glob("*trainer.log")
        return sum("is ready" in log.read_text(errors="replace") for log in logs) == self.sites

    def __exit__(self, *_: object) -> None:
        for part in reversed(self._started.values()):
            part.terminate()
        for part in self._started.values():
            try:
                part.wait(20)
            except subprocess.TimeoutExpired:
                part.kill()
                part.wait()
        self._started.clear()
        at_rest.remove(at_rest.place(self.room))

    def sordino(self, task: Task, told: Told) -> dict[str, Any]:
        """A run of ours; its summary."""
        words: list[str] = []
        whole = described(self.room, task.experiment, Patience(), words.append)
        with connected(self.room, whole, task.plan.digest) as federation:
            runs = self.folder / "runs"
            done = run(task.plan, task.population, "", runs, base=self.folder, progress=told, federation=federation)
        if words:
            raise SystemExit("\n".join(words))
        return done.summary

    def flower(self, rounds: int, told: Clock) -> None:
        """A run of Flower's app, as the coordinator's machine starts one: a process of its own."""
        mine, times = layout.read_coordinator(self.room), self.folder / "times"
        times.write_text("")
        config = {"clients": str(self.sites), "rounds": str(rounds), "times": str(times)}
        with flower_code.state(at_rest.place(self.room)) as opened:
            number = flower_code.stored_run(opened, self.code, signatures.read(self.room, self.code), config)
            token = flower_code.claim(opened, number)
        command = [str(Path(sys.executable).parent / "flwr-serverapp")]
        command += ["--runtime-api-address", f"127.0.0.1:{mine.inside}", "--token", token]
        command += ["--root-certificates", str(self.room / "ca.pem")]
        quiet = {
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(self.folder / "home"),
        }
        seen = 0
        with (self.folder / "server.log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | quiet)
            while server.poll() is None:
                for line in times.read_text().splitlines()[seen:]:
                    told.at(float(line))
                    seen += 1
                time.sleep(0.1)
        if seen != rounds + 1:
            raise SystemExit(f"Flower's app ended after {seen} of {rounds + 1} moments: see {self.folder}/server.log")


class Relay:
    """Carries bytes between sites and the coordinator unread, and counts them: TLS, headers, signatures and all.

    Args:
        to: The coordinator's port.
    """

    def __init__(self, to: int) -> None:
        self._to, self.passed = to, {"up": 0, "down": 0}
        self._line = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._line.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            site, _ = self._line.accept()
            coordinator = self._reached()
            for way, pair in (("up", (site, coordinator)), ("down", (coordinator, site))):
                threading.Thread(target=self._carry, args=(way, *pair), daemon=True).start()

    def _reached(self) -> socket.socket:
        """The coordinator, once it listens: a node whose line is cut ends."""
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                time.sleep(0.2)

    def _carry(self, way: str, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(2**18):
                self.passed[way] += len(content)
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)
