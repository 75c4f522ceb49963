"""Which processes of this machine were started for a federation's folder: each carries a mark in its environment.

A process hands its environment on to what it starts. So the mark finds all of them, whoever their parent now is, and
though every file that lists them is gone. Linux only.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from sordino.core.errors import EngineError

MARK = "SORDINO_UP"
_PATIENCE_S = 15.0


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process that is started for a folder."""
    return {**os.environ, MARK: str(folder.resolve())}


def began(pid: int) -> int | None:
    """When a process began, as the system counts: tells it from a later one of the same number; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])  # a zombie only waits to be buried


def marked(folder: Path) -> dict[int, int]:
    """All processes that were started for a folder, with when each began; the oldest first."""
    line, found = f"{MARK}={folder.resolve()}".encode(), {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "environ").read_bytes()
        except OSError:
            continue  # gone meanwhile, or another user's
        start = began(int(entry.name))
        if start is not None and line in content.split(b"\0") and int(entry.name) != os.getpid():
            found[int(entry.name)] = start
    return dict(sorted(found.items(), key=lambda one: one[1]))


def end(folder: Path, patience_s: float = _PATIENCE_S) -> list[int]:
    """End all of them: they are asked, and after a while they are killed.

    The oldest is the one that would start the others again, and goes first. What began meanwhile is found as well.

    Returns:
        The numbers of those that there were.

    Raises:
        EngineError: One does not end.
    """
    told: set[tuple[int, int]] = set()
    late = time.monotonic() + patience_s
    while family := marked(folder):
        if time.monotonic() > late + patience_s:
            raise EngineError.about("deploy", "do not end", "look at them with ps", processes=[*family])
        for pid, start in family.items():
            if time.monotonic() > late:
                send(pid, start, signal.SIGKILL)
            elif (pid, start) not in told:
                told.add((pid, start))
                send(pid, start, signal.SIGTERM)
        time.sleep(0.1)
    return [pid for pid, _ in sorted(told)]


def send(pid: int, start: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it is gone or another one has its number."""
    if began(pid) == start:
        with suppress(ProcessLookupError):  # it may end between the two
            os.kill(pid, number)
