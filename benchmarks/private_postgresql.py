"""A PostgreSQL server of one's own: in a temporary folder, reached by a socket file only, gone at the end.

It keeps its promises (fsync is on). In memory they cost nothing, which is what tests want; a benchmark asks for a disk.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made below it
ROOM = 300_000_000
USER = "sordino"
SETTINGS = (
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=16MB",
    "max_wal_size=64MB",
    "dynamic_shared_memory_type=mmap",  # nothing outside its folder
    "jit=off",
)


def binaries() -> Path | None:
    """The folder of a server's programs, newest first; None where there is no server."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((file.parent for file in installed), key=lambda folder: float(folder.parent.name), default=None)


def owner() -> dict[str, Any]:
    """As whom it runs: the server refuses to be root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Server:
    """One server, running or not."""

    CRASH = signal.SIGQUIT

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()

    def make(self) -> None:
        """Lay the database cluster out."""
        terms = ("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1", "-U", USER)
        command = [str(self.programs / "initdb"), "-D", str(self.folder / "data"), *terms]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **owner())

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **owner())
        self._wait()

    def _wait(self, limit_s: float = 60.0) -> None:
        import psycopg

        end = time.monotonic() + limit_s
        while True:
            try:
                return self.run("SELECT 1")
            except psycopg.OperationalError:
                if time.monotonic() > end or (self.process is not None and self.process.poll() is not None):
                    raise RuntimeError((self.folder / "log").read_text(encoding="utf-8")) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT in good order, SIGQUIT as in a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def run(self, *statements: str) -> None:
        """Statements of the server's owner."""
        import psycopg

        with psycopg.connect(f"user={USER} dbname=postgres host={self.folder}", autocommit=True) as db:
            for statement in statements:
                db.execute(statement)  # type: ignore[arg-type]

    def fresh(self, **settings: str) -> str:
        """The URL of an empty schema, with settings of its sessions."""
        name = f"books_{next(self._numbers)}"
        self.run(f"CREATE SCHEMA {name}")
        return self.url(search_path=name, **settings)

    def url(self, **settings: str) -> str:
        """A URL of this server."""
        options = quote(" ".join(f"-c{name}={value}" for name, value in settings.items()))
        return f"postgresql://{USER}@/postgres?host={quote(str(self.folder), safe='')}&options={options}"


@contextmanager
def server(*, in_memory: bool = False) -> Iterator[Server]:
    """A started server; stopped, and its folder deleted, at the end.

    Raises:
        RuntimeError: There is no server program, or it does not start.
    """
    programs = binaries()
    if programs is None:
        raise RuntimeError("no PostgreSQL server on this machine: install it (apt-get install postgresql)")
    roomy = in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    with tempfile.TemporaryDirectory(prefix="pg-", dir=MEMORY if roomy else None, ignore_cleanup_errors=True) as name:
        found = Server(Path(name), programs)
        if "user" in owner():
            os.chown(name, owner()["user"], owner()["group"])
        found.make()
        found.start()
        try:
            yield found
        finally:
            found.stop(signal.SIGQUIT)
