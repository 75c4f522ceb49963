"""Folders of a federation of real processes on loopback, for benchmarks and tests that start some."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SORDINO = [sys.executable, "-m", "sordino.cli"]
PORTS, EACH = range(20_000, 32_000), 1_500
"""Below those that Linux gives to whoever asks for any; and so many for each of the processes that run tests."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, drawn at random, so that two who choose at once hardly meet."""
    place = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) * EACH % len(PORTS)
    found: set[int] = set()
    while len(found) < count:
        number = secrets.choice(PORTS[place : place + EACH])
        try:
            socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            continue
        found.add(number)
    return list(found)


def folders(home: Path, names: Sequence[str], each: str, head: str = "") -> Path:
    """A federation's folders.

    Args:
        home: Where they go, as `fed`.
        names: Of the sites.
        each: Lines of every site's table.
        head: Lines of the file's own.
    """
    port, inside, *ports = free_ports(2 + len(names))
    sites = "".join(f"[sites.{name}]\nport = {number}\n{each}" for name, number in zip(names, ports, strict=True))
    (home / "federation.toml").write_text(f"{head}[coordinator]\nport = {port}\ninside = {inside}\n{sites}")
    command = [*SORDINO, "deploy", "init", home / "fed", "--config", home / "federation.toml"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return home / "fed"
