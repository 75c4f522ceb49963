"""The SQLite file under a ledger: durable, one writer at a time. The only file that knows SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import QueuePool

from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import migrations, schema
from sordino.ledger.stores import rules
from sordino.ledger.stores.store import Store

DURABLE = "FULL"
"""NORMAL may lose the last commits when the power fails: a release without its charge."""


class SQLite(Store):
    """One ledger file on a local disk.

    Args:
        path: The file; made if it does not exist, unless `read_only`.
        read_only: Never write; works on a read-only medium too.
        busy_s: How long to wait for another process's transaction, in seconds.

    Raises:
        PrivacyError: The file cannot be opened, or its disk cannot hold a durable ledger.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, busy_s: float = 30.0) -> None:
        text = str(path)
        if "://" in text or ":memory:" in text or not text:
            raise ConfigError.about("ledger", "must be a file on a local disk, or postgresql://…", path=text)
        self.path, self.busy_s = Path(path), busy_s
        engine = create_engine("sqlite://", creator=self._connection, poolclass=QueuePool)
        event.listen(engine, "begin", _begin)
        super().__init__(engine, {"file": self.path.name}, read_only=read_only)

    def _prepare(self) -> None:
        if self.read_only and not self.path.is_file():
            raise PrivacyError.about("ledger", "does not exist", file=self.path.name)
        if self.path.is_file() and not self.read_only:
            self._migrate()
        if self.path.is_file():
            with self.read() as db:
                if self.read_only or self.is_made(db):
                    self.check_layout(db)
                    return
        with self.write() as db:
            if not self.is_made(db):
                self.make(db, schema.metadata, _triggers())
            self.check_layout(db)

    def _migrate(self) -> None:
        with self.read() as db:
            version = self.layout(db) if self.is_made(db) else None
        if version is not None and version < schema.VERSION:
            self.engine.dispose()  # a reader's connection would hold the tables that are rebuilt
            migrations.migrate(self.path, version, _guard)

    def _connection(self) -> sqlite3.Connection:
        mode = "rwc"
        if self.read_only:
            wal = self.path.with_name(self.path.name + "-wal")
            # A medium that cannot be written cannot hold the shared-memory file that WAL readers need.
            still = not os.access(self.path.parent, os.W_OK) and not wal.exists()
            mode = "ro&immutable=1" if still else "ro"
        db = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self.busy_s,
            isolation_level=None,
            check_same_thread=False,
        )
        if not self.read_only:
            _demand(db, "journal_mode = WAL", "journal_mode", "wal")
            _demand(db, f"synchronous = {DURABLE}", "synchronous", 2)
        db.execute("PRAGMA foreign_keys = ON")
        return db

    @contextmanager
    def write(self) -> Iterator[Connection]:
        if self.read_only:
            raise self.refusal("it was opened read-only")
        with self.transaction(sordino_begin="IMMEDIATE") as db:
            yield db

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.transaction(sordino_begin="DEFERRED") as db:
            yield db


def _begin(db: Connection) -> None:
    # A deferred transaction that reads and then writes fails with "busy" and invites check-then-act.
    db.exec_driver_sql(f"BEGIN {db.get_execution_options().get('sordino_begin', 'DEFERRED')}")


def _demand(db: sqlite3.Connection, wish: str, pragma: str, answer: str | int) -> None:
    db.execute(f"PRAGMA {wish}")
    got = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    if got != answer:
        raise PrivacyError.about(
            "ledger", f"`{wish}` was answered {got!r}: commits may be lost", "keep the ledger on a local disk"
        )


def _triggers() -> Iterator[str]:
    for name, table, before, broken, message in rules.guards("IS NOT"):
        when = "" if broken is None else f"WHEN {broken} "
        yield f"CREATE TRIGGER {name} BEFORE {before} ON {table} {when}BEGIN SELECT RAISE(ABORT, '{message}'); END"


def _guard(db: sqlite3.Connection) -> None:
    for trigger in _triggers():
        db.execute(trigger)
