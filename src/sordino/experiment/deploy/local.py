"""All of a federation on this machine, for a try: each part a process of its own, as on its own machine.

`up` starts one process that starts all others, and starts them again if they end: see `keeping`. `down` ends whatever
carries the folder's mark, even if `up` and that process were killed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.core.errors import EngineError
from sordino.experiment.deploy import (
    at_rest,
    bundle,
    checking,
    flower_code,
    keeping,
    layout,
    marks,
    processes,
    signatures,
)
from sordino.experiment.deploy.keeping import KEEPER, Part, parts
from sordino.ledger.keys import SigningKey
from sordino.ledger.rules import read_rules
from sordino.ledger.silo import FILE as RULES


def commands(folder: Path) -> dict[str, list[str]]:
    """What runs, by name: the coordinator first, then each site's node, and its trainer where it has one."""
    room = folder / "coordinator"
    mine = layout.read_coordinator(room)
    serve = [sys.executable, "-m", "sordino.cli", "deploy", "serve"]
    found = {"coordinator": [*serve, str(room), "--listen", "127.0.0.1"]}
    for name, at in layout.site_folders(folder).items():
        found[f"{name} node"] = [*serve, str(at), "--superlink", f"localhost:{mine.port}"]
        if layout.read_site(at).isolation == "process":
            found[f"{name} trainer"] = processes.trainer_command(at)
    return found


def ports(folder: Path) -> dict[str, int]:
    """The ports of loopback that are used, by who uses them."""
    mine = layout.read_coordinator(folder / "coordinator")
    nodes = {f"{name}'s node": layout.read_site(at).port for name, at in layout.site_folders(folder).items()}
    return {"the coordinator": mine.port, "its own run": mine.inside, **nodes}


def sign_all(folder: Path, code: bytes) -> None:
    """Sign code with every site's own key, as only someone who holds all folders can: for a try."""
    for name, at in layout.site_folders(folder).items():
        key = SigningKey.load(at / read_rules(at / RULES).key)
        target = folder / "coordinator" / signatures.FOLDER / f"{name}.json"
        target.write_text(signatures.sign(key, code).json(), encoding="utf-8")


def up(
    folder: Path,
    *,
    wait_s: float = 120.0,
    code: bytes | None = None,
    say: Callable[[str], None] = print,
    stopping: Callable[[], bool] = lambda: False,
) -> list[Part]:
    """Start everything, and return once every site's node is online. From then on, what ends is started again.

    Args:
        folder: A federation's.
        wait_s: How long to wait for that.
        code: The bundle to sign for every site; that of the code that runs here, if none is given.
        say: Gets a line for each step.
        stopping: Asked while it waits whether to give up.

    Raises:
        KeyboardInterrupt: It was to give up; all is stopped.
        EngineError: Something runs already, or a process ended before that; all of them are stopped then.
    """
    folder = folder.resolve()
    if marks.began(os.getpid()) is None:
        raise EngineError.about("deploy", "needs Linux to keep track of what it starts", "use the compose file")
    if marks.marked(folder):
        raise EngineError.about("deploy", "is up already", "stop it with `sordino deploy down`", folder=str(folder))
    for name, number in ports(folder).items():
        if checking.taken(number):
            raise EngineError.about("deploy", f"is taken by another program, but {name} needs it", port=number)
    sign_all(folder, bundle.fab() if code is None else code)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / keeping.UP).unlink(missing_ok=True)
    pid = keeping.start(folder, KEEPER, [sys.executable, "-m", "sordino.experiment.deploy.keeping", str(folder)])
    try:
        _wait_for_nodes(folder, pid, time.monotonic() + wait_s, say, stopping)
    except BaseException:
        down(folder)
        raise
    return parts(folder)


def _wait_for_nodes(
    folder: Path, keeper: int, end: float, say: Callable[[str], None], stopping: Callable[[], bool]
) -> None:
    seen: set[str] = set()
    wanted = set(layout.site_folders(folder))
    while seen < wanted:
        if stopping():
            raise KeyboardInterrupt
        lost = [part.name for part in parts(folder) if part.starts > 1 or not part.alive]
        lost += [] if marks.began(keeper) else [KEEPER]
        if lost:
            log = keeping.log_of(folder, lost[0])
            raise EngineError.about("deploy", f"{lost[0]} has ended", f"see {log}")
        if time.monotonic() > end:
            missing = ", ".join(sorted(wanted - seen))
            raise EngineError.about("deploy", f"is not online in time: {missing}", f"see {folder / 'logs'}")
        for name in sorted({name for name, state in _nodes(folder).items() if state == "online"} - seen):
            say(f"{name} is online")
            seen.add(name)
        time.sleep(0.5)


def _nodes(folder: Path) -> dict[str, str]:
    """How each site's node stands, once the coordinator listens: before that, it may be making its database."""
    room = folder / "coordinator"
    mine = layout.read_coordinator(room)
    database = at_rest.place(room, mine.database)
    try:
        socket.create_connection(("127.0.0.1", mine.inside), timeout=1.0).close()
    except OSError:
        return {}
    with flower_code.state(database) as opened:
        return {name: seen for name, (_, seen) in sorted(flower_code.nodes(opened).items())}


def down(folder: Path) -> list[str]:
    """Stop everything that `up` started, and all that those started; then empty and remove the database.

    Returns:
        What was stopped, by name; by number, if the list of names is lost.

    Raises:
        EngineError: A process does not end.
    """
    folder = folder.resolve()
    room = folder / "coordinator"
    database = at_rest.place(room, layout.read_coordinator(room).database)
    mine = [part.name for part in parts(folder) if part.alive]
    found = marks.end(folder)
    at_rest.scrub(database, force=True)
    at_rest.remove(database)
    (folder / keeping.UP).unlink(missing_ok=True)
    return mine or [f"process {pid}" for pid in found]


def kill(folder: Path, name: str) -> None:
    """Kill one process and all that it started, without a warning, as a crash does. The keeper starts it anew.

    Args:
        folder: A federation's that is up.
        name: The process, as in `parts`.
    """
    part = next(part for part in parts(folder.resolve()) if part.name == name)
    if part.alive:
        os.killpg(part.pid, signal.SIGKILL)
    while part.alive:
        time.sleep(0.02)


@dataclass(frozen=True)
class Status:
    """How a federation stands that was started here.

    Args:
        parts: What was started, the keeper first; empty: nothing.
        nodes: Each site's node as the coordinator sees it: `online`, `offline` or `registered` (never seen).
    """

    parts: tuple[Part, ...]
    nodes: Mapping[str, str]

    @property
    def kept(self) -> bool:
        """Whether what ends is started again."""
        return any(part.name == KEEPER and part.alive for part in self.parts)

    @property
    def words(self) -> dict[str, str]:
        """For people, by name."""
        told = {part.name: _words(part, kept=self.kept) for part in self.parts}
        return told | {f"{name} in Flower": seen for name, seen in self.nodes.items()}

    def to_plain(self) -> dict[str, Any]:
        """JSON-able."""
        told = [
            {"name": part.name, "pid": part.pid, "runs": part.alive, "starts": part.starts, "ended": part.ended}
            for part in self.parts
        ]
        return {"kept": self.kept, "processes": told, "nodes": dict(self.nodes)}


def status(folder: Path) -> Status:
    """What runs, and how each site's node stands."""
    folder = folder.resolve()
    return Status(tuple(parts(folder)), _nodes(folder))


def _words(part: Part, *, kept: bool) -> str:
    before = f" (start {part.starts}, after {part.ended})" if part.starts > 1 else ""
    if part.alive:
        return f"runs{before}"
    if part.name == KEEPER:
        return "has ended: nothing starts again; `sordino deploy down`, then `up`"
    how = f" ({part.ended})" if part.ended else ""
    return f"has ended{how}{', starts again soon' if kept else ''}"
