"""All of a federation on this machine, for a try: each part a process of its own, as on its own machine.

`up` writes who it started to `up.json` before it waits, so that `down` ends them all even if `up` itself was killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sordino.core.errors import EngineError
from sordino.experiment.deploy import at_rest, bundle, checking, flower_code, layout, processes, signatures
from sordino.ledger.keys import SigningKey
from sordino.ledger.rules import read_rules
from sordino.ledger.silo import FILE as RULES

UP = "up.json"
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Part:
    """One process of a federation.

    Args:
        name: What it is, e.g. "north node".
        pid: Its number, and that of its group.
        began: When it began, as the system counts: tells it from a later process of the same number.
    """

    name: str
    pid: int
    began: int

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return _began(self.pid) == self.began


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
    folder: Path, *, wait_s: float = 120.0, code: bytes | None = None, say: Callable[[str], None] = print
) -> list[Part]:
    """Start everything, and return once every site's node is online.

    Args:
        folder: A federation's.
        wait_s: How long to wait for that.
        code: The bundle to sign for every site; that of the code that runs here, if none is given.
        say: Gets a line for each step.

    Raises:
        EngineError: Something runs already, or a process ended; all of them are stopped then.
    """
    folder = folder.resolve()
    if not _stat(os.getpid()):
        raise EngineError.about("deploy", "needs Linux to keep track of what it starts", "use the compose file")
    if any(part.alive for part in parts(folder)):
        raise EngineError.about("deploy", "is up already", "stop it with `sordino deploy down`", folder=str(folder))
    for name, number in ports(folder).items():
        if checking.taken(number):
            raise EngineError.about("deploy", f"is taken by another program, but {name} needs it", port=number)
    sign_all(folder, bundle.fab() if code is None else code)
    (folder / "logs").mkdir(exist_ok=True)
    started: list[Part] = []
    try:
        for name, command in commands(folder).items():
            started.append(_start(folder, name, command))
            _write(folder, started)
        _wait_for_nodes(folder, started, time.monotonic() + wait_s, say)
    except BaseException:
        down(folder)
        raise
    return started


def _start(folder: Path, name: str, command: list[str]) -> Part:
    log = str(folder / "logs" / f"{name.replace(' ', '-')}.log")
    # In a session of its own: an interrupt at the keyboard reaches `up` only, which then stops all in order.
    pid = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Part(name, pid, _began(pid) or 0)


def _wait_for_nodes(folder: Path, started: list[Part], end: float, say: Callable[[str], None]) -> None:
    seen: set[str] = set()
    wanted = set(layout.site_folders(folder))
    while seen < wanted:
        for part in started:
            if not part.alive:
                log = folder / "logs" / f"{part.name.replace(' ', '-')}.log"
                raise EngineError.about("deploy", f"{part.name} has ended", f"see {log}")
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
        What was stopped, by name.
    """
    folder = folder.resolve()
    mine = [part for part in parts(folder) if part.alive]
    family = {pid: began for part in mine for pid, began in _family(part.pid).items()}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, began in family.items():
            if _began(pid) == began:
                os.kill(pid, number)
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end and any(_began(pid) == began for pid, began in family.items()):
            time.sleep(0.1)
    room = folder / "coordinator"
    database = at_rest.place(room, layout.read_coordinator(room).database)
    at_rest.scrub(database, force=True)
    at_rest.remove(database)
    (folder / UP).unlink(missing_ok=True)
    return [part.name for part in mine]


def again(folder: Path, name: str) -> Part:
    """Kill one process and all that it started, without a warning, and start it anew: as a crash and a supervisor do.

    Args:
        folder: A federation's that is up.
        name: The process, as in `parts`.
    """
    folder = folder.resolve()
    known = {part.name: part for part in parts(folder)}
    for pid, began in _family(known[name].pid).items() if known[name].alive else ():
        if _began(pid) == began:
            os.kill(pid, signal.SIGKILL)
    while known[name].alive:
        time.sleep(0.02)
    known[name] = _start(folder, name, commands(folder)[name])
    _write(folder, known.values())
    return known[name]


def parts(folder: Path) -> list[Part]:
    """What `up` started here."""
    try:
        return [Part(**one) for one in json.loads((folder / UP).read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []


def status(folder: Path) -> dict[str, str]:
    """What runs, and how each site's node stands, by name."""
    folder = folder.resolve()
    found = {part.name: "runs" if part.alive else "has ended" for part in parts(folder)}
    found |= {f"{name} in Flower": seen for name, seen in _nodes(folder).items()}
    return found


def _write(folder: Path, started: Iterable[Part]) -> None:
    text = json.dumps([{"name": part.name, "pid": part.pid, "began": part.began} for part in started])
    (folder / UP).write_text(text, encoding="utf-8")


def _stat(pid: int) -> list[str]:
    """Fields of a process after its name, from its state on; none if it is gone or only waits to be buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def _began(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _family(root: int) -> dict[int, int]:
    """A process and all that it started, with when each began."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdigit() else []
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = {}, [root]
    while waiting:
        pid = waiting.pop()
        began = _began(pid)
        if began is not None:
            found[pid] = began
        waiting += children.get(pid, [])
    return found
