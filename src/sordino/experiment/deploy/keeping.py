"""Keep a federation's processes running on this machine: `python -m sordino.experiment.deploy.keeping FOLDER`.

up ─► the keeper ─► coordinator, nodes, trainers: its children, each in a session of its own
                    one that ends is started again, after a pause that grows; every step stands in `up.json`

Only `down` ends the keeper. Where it is killed, the others go on, and `down` finds them by their mark.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sordino.experiment.deploy import marks

UP, KEEPER = "up.json", "keeper"
LONGEST_S = 30.0
"""The longest pause before a start. Flower refuses a node for up to 60 s, while it takes the last one for alive."""

STEADY_S = 60.0
"""What ran for so long begins with the shortest pause again."""


@dataclass(frozen=True)
class Part:
    """One process of a federation.

    Args:
        name: What it is, e.g. "north node".
        pid: Its number, and that of its group.
        began: When it began, as the system counts: tells it from a later process of the same number.
        starts: How often it was started.
        ended: How it ended the last time, in words; empty: it did not yet.
    """

    name: str
    pid: int
    began: int
    starts: int = 1
    ended: str = ""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return marks.began(self.pid) == self.began


def pause(ends: int) -> float:
    """How long to wait before the next start of what has ended so often in a row, in seconds.

    >>> [pause(ends) for ends in (1, 2, 3, 6, 100)]
    [1.0, 2.0, 4.0, 30.0, 30.0]
    """
    return min(2.0 ** min(ends - 1, 10), LONGEST_S)


def parts(folder: Path) -> list[Part]:
    """What was started for a folder, the keeper first; none if nothing was."""
    try:
        return [Part(**one) for one in json.loads((folder / UP).read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []


def log_of(folder: Path, name: str) -> Path:
    """Where a part's output goes."""
    return folder / "logs" / f"{name.replace(' ', '-')}.log"


def start(folder: Path, name: str, command: list[str]) -> int:
    """Start a process with a folder's mark, in the background, with its output in the folder's logs."""
    # In a session of its own: an interrupt at the keyboard reaches `up` only, which then stops all in order.
    return os.posix_spawn(
        command[0],
        command,
        marks.environment(folder),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_of(folder, name)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def ended(pid: int) -> str:
    """How a child has ended, in words, and end what it left behind; empty: it runs."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return ""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # before it is buried, so that its number is still its own
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


class Keeper:
    """Starts what has to run, and starts again what has ended.

    Args:
        folder: The federation's.
        commands: What runs, by name.
        say: Gets a line for each end and each new start.
        clock: Seconds.
    """

    def __init__(
        self,
        folder: Path,
        commands: Mapping[str, list[str]],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._commands, self._say, self._clock = folder, commands, say, clock
        self._running: dict[str, Part] = {}
        self._due = dict.fromkeys(commands, clock())
        self._since: dict[str, float] = {}
        self._ends = dict.fromkeys(commands, 0)
        self._known = {KEEPER: Part(KEEPER, os.getpid(), marks.began(os.getpid()) or 0)}
        self._write()

    def step(self) -> None:
        """Look once at every part."""
        for name, part in list(self._running.items()):
            if how := ended(part.pid):
                del self._running[name]
                self._lost(name, how)
        for name, due in list(self._due.items()):
            if due <= self._clock():
                del self._due[name]
                self._begin(name)

    def _lost(self, name: str, how: str) -> None:
        steady = self._clock() - self._since[name] > STEADY_S
        self._ends[name] = 1 if steady else self._ends[name] + 1
        wait = pause(self._ends[name])
        self._due[name] = self._clock() + wait
        self._known[name] = replace(self._known[name], ended=how)
        self._write()
        self._say(f"{name} has ended ({how}); starts again in {wait:g} s")

    def _begin(self, name: str) -> None:
        before = self._known.get(name, Part(name, 0, 0, starts=0))
        pid = start(self._folder, name, self._commands[name])
        part = replace(before, pid=pid, began=marks.began(pid) or 0, starts=before.starts + 1)
        self._running[name] = self._known[name] = part
        self._since[name] = self._clock()
        self._write()
        if part.starts > 1:
            self._say(f"{name}: start {part.starts}")

    def _write(self) -> None:
        write(self._folder, self._known.values())


def write(folder: Path, known: Iterable[Part]) -> None:
    """Write who runs, so that a reader sees all of it or what stood there before."""
    draft = folder / f".{UP}"
    draft.write_text(json.dumps([asdict(part) for part in known]), encoding="utf-8")
    draft.replace(folder / UP)


def main() -> None:
    """Keep the folder of the first argument, until a signal comes."""
    from sordino.experiment.deploy.local import commands

    folder = Path(sys.argv[1])

    def say(words: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), words, flush=True)  # noqa: T201 - the keeper's log

    keeper = Keeper(folder, commands(folder), say)
    while True:
        keeper.step()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
