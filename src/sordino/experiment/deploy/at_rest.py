"""Where a coordinator's database lies, and how it is emptied: updates pass through it in plain form.

By default it lies in memory (a tmpfs), in a folder of this user alone: it outlives a killed process, so that a run can
go on, and a power cut leaves nothing. On a disk, `scrub` removes all contents of messages after a run and rewrites the
file; what a disk keeps of overwritten blocks, no program can promise.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

from sordino.core.errors import EngineError, VerificationError

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, checked below

# What messages, their contents and logs pass through; nodes, bundles and the list of runs stay.
_TABLES = (
    "object_push_session_pending",
    "object_push_session_roots",
    "object_push_sessions",
    "object_children",
    "run_objects",
    "objects",
    "message",
    "task_message",
    "task_event",
    "logs",
    "task_logs",
    "series_context",
    "compacted_contexts",
)

# A task whose process gave no sign of life in time has ended, even where Flower has not written that down yet.
_UNDER_WAY = """SELECT count(*) FROM task WHERE finished_at IS NULL AND starting_at IS NOT NULL
                AND julianday(active_until) > julianday('now')"""


def place(folder: Path, chosen: str = "", *, memory: Path = _MEMORY, make: bool = False) -> Path:
    """The database of a coordinator's folder, which need not be there yet.

    Args:
        folder: The coordinator's.
        chosen: A path of the operator's choice, from the coordinator's folder on; empty: in memory, if there is a
            tmpfs, or else in `state/`.
        memory: The tmpfs.
        make: Whether to make the folder that it lies in.

    Raises:
        VerificationError: Somebody else holds that place.
    """
    if chosen:
        path = folder / chosen
    elif memory.is_dir():
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        path = memory / f"sordino-{os.geteuid()}-{name}" / "superlink.db"
    else:
        path = folder / "state" / "superlink.db"
    if make:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.path.lexists(path.parent):
        return path
    found = path.parent.lstat()
    if not chosen and (not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077):
        raise VerificationError.about("database", "is not this user's own folder", "remove it", folder=str(path.parent))
    return path


def files(database: Path) -> list[Path]:
    """The files that SQLite keeps for a database."""
    return [path for path in (database, *(Path(f"{database}{end}") for end in ("-wal", "-shm"))) if path.exists()]


def scrub(database: Path, *, wait_s: float = 30.0, force: bool = False) -> int:
    """Remove the contents of all messages from a database, and every trace of them from its files.

    Safe while the server runs, once its runs have ended.

    Args:
        database: The coordinator's.
        wait_s: How long to wait for others that use the file.
        force: Also when a run is under way, which then cannot go on.

    Returns:
        How many rows were removed.

    Raises:
        EngineError: A run is under way, or the file stayed in use.
    """
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database, timeout=wait_s, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        connection.execute("BEGIN IMMEDIATE")
        if "task" in present and not force and connection.execute(_UNDER_WAY).fetchone() != (0,):
            connection.execute("ROLLBACK")
            raise EngineError.about("scrub", "waits for the run that is under way", "stop it first")
        gone = sum(connection.execute(f"DELETE FROM {name}").rowcount for name in _TABLES if name in present)  # noqa: S608 - our own names
        connection.execute("COMMIT")
        connection.execute("VACUUM")
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise EngineError.about("scrub", "could not empty the log, which is in use", "try again", file=database.name)
    return gone


def remove(database: Path) -> None:
    """Remove the database altogether. Only when no process uses it."""
    for path in files(database):
        path.unlink(missing_ok=True)
    if database.parent.parent == _MEMORY:
        with suppress(FileNotFoundError):
            database.parent.rmdir()
