"""The long-lived process of a site: it holds data, ledger and model, and answers one letter at a time.

Flower's node asks it for work on loopback, or a thin app reaches it over a socket of the folder. Either way no code
that comes from the coordinator runs in it, and what is not in the silo's rules does not happen.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.core import tables
from sordino.core.errors import ConfigError, EngineError
from sordino.experiment.remote.signing import signed_only
from sordino.experiment.site.member import Member
from sordino.experiment.site.wire import receive, send
from sordino.federation.post import Answering, Letter, refusal
from sordino.ledger.keys import VerifyKey
from sordino.ledger.silo import open_silo

FILE = "site.toml"

SILENT_S = 60.0
"""How long a caller may send nothing, and how long it may take to read its answer: others wait for it meanwhile."""


@dataclass(frozen=True)
class SiteTable:
    """What the process needs of `site.toml`; `sordino deploy init` writes it, and more for the node.

    Args:
        data: Where the silo's data lies, as the data set's `path`; empty: as the experiment says.
        port: The node's on loopback, where work is asked for; 0: there is none.
        socket: The socket in the folder.
        isolation: `process` if work is asked for at the port; `subprocess` if an app comes by the socket.
    """

    data: str = ""
    port: int = 0
    socket: str = "trainer.sock"
    isolation: str = "process"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def here(self) -> dict[str, Any]:
        """Options of the data set that hold at this site."""
        return {**self.options, **({"path": self.data} if self.data else {})}


def read_site(folder: Path) -> SiteTable:
    """The site's own settings; the defaults where there is no file.

    Raises:
        ConfigError: It cannot be read.
    """
    file = folder / FILE
    if not file.exists():
        return SiteTable()
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigError.about("site", f"cannot be read: {problem}", file=str(file)) from None
    known = {name: value for name, value in table.items() if name in SiteTable.__dataclass_fields__}
    return tables.build(SiteTable, known, "site")


def serve(folder: Path, *, say: Callable[[str], None] = print, stop: threading.Event | None = None) -> None:
    """Answer letters until the process is told to end.

    Args:
        folder: The site's, as `sordino deploy init` or `sordino silo enroll` makes it.
        say: Told each step: public facts only.
        stop: Set to end; left out, a signal ends it.

    Raises:
        ConfigError: The folder is not a site's.
        EngineError: Another process serves it.
    """
    site, ending = read_site(folder), stop or _signalled()
    with _alone(folder), open_silo(folder) as silo:
        member = Member(silo, folder, peers=peers(folder), data=site.here, say=say)
        answering = one_at_a_time(signed_only(member.answer, lambda: silo.rules, silo.key))
        say(f"site {silo.name} is ready")
        with listening(folder / site.socket, answering):
            if site.port and site.isolation == "process":
                from sordino.experiment.flower.executor import work

                work(folder, site.port, answering, ending, say)
            else:
                ending.wait()


def peers(folder: Path) -> dict[str, VerifyKey]:
    """The other silos' public keys, as they lie in the site's own folder."""
    files = sorted((folder / "silos").glob("*.pub"))
    return {file.stem: VerifyKey.parse(file.read_text(encoding="utf-8").strip()) for file in files}


def one_at_a_time(answering: Answering) -> Answering:
    """The same, for letters that come from several threads: a ledger's object belongs to one at a time."""
    turn = threading.Lock()

    def answer(letter: Letter) -> Letter:
        with turn:
            return answering(letter)

    return answer


@contextlib.contextmanager
def listening(path: Path, answering: Answering) -> Iterator[None]:
    """Answer letters over a socket that only this user can reach, in a thread."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        before = os.umask(0o077)
        try:
            line.bind(str(path))
        except OSError as problem:
            raise EngineError.about("site", f"cannot listen: {problem.strerror}", socket=str(path)) from None
        finally:
            os.umask(before)
        line.listen(16)
        threading.Thread(target=_accept, args=(line, answering), daemon=True).start()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _accept(line: socket.socket, answering: Answering) -> None:
    while True:
        try:
            caller, _ = line.accept()
        except OSError:
            return  # closed: the process ends
        with caller, contextlib.suppress(OSError):
            caller.settimeout(SILENT_S)
            try:
                answer = answering(receive(caller))
            except EngineError as problem:
                answer = refusal(problem)
            send(caller, answer)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process per folder: two would each believe that the other's open charges are theirs to forfeit."""
    import fcntl

    with (folder / ".serving").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EngineError.about(
                "site", "is served by another process", "stop that one", folder=str(folder)
            ) from None
        yield


def _signalled() -> threading.Event:
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    return ending
