"""The SQLite file under a ledger: durable, one writer at a time. The only file that knows SQLite.

Another database needs `write` (a transaction that excludes other writers), `read` (one consistent snapshot)
and triggers that keep the history append-only; everything else in the room is portable SQLAlchemy Core.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, event, insert, inspect, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import migrations, schema

GENESIS = "0" * 64

_FIXED = ("event", "charge_line", "admission", "admission_line", "kind", "policy", "checkpoint", "witness")
_KEPT = (*_FIXED, "head", "account", "allowance", "run", "charge", "outbox")
_RULES = {
    "account": "NEW.spent_units < OLD.spent_units OR NEW.delta_spent_units < OLD.delta_spent_units"
    " OR (NEW.limit_units <> OLD.limit_units OR NEW.delta_limit_units <> OLD.delta_limit_units)"
    " AND NEW.policy <= OLD.policy OR NEW.policy < OLD.policy"
    " OR NEW.scope <> OLD.scope OR NEW.parent IS NOT OLD.parent OR NEW.overlap IS NOT OLD.overlap"
    " OR OLD.state = 'retired' AND NEW.state <> 'retired'"
    " OR NEW.name <> OLD.name OR NEW.unit <> OLD.unit OR NEW.adjacency <> OLD.adjacency"
    " OR NEW.currency <> OLD.currency OR NEW.rdp_order IS NOT OLD.rdp_order OR NEW.test <> OLD.test",
    "allowance": "NEW.spent < OLD.spent OR NEW.allowed <> OLD.allowed",
    "run": "NEW.fence <= OLD.fence",
    "charge": "OLD.state <> 'reserved' OR NEW.fence <> OLD.fence OR NEW.run <> OLD.run",
    "outbox": "NEW.sha256 <> OLD.sha256 OR (OLD.published_at IS NOT NULL AND NEW.published_at IS NULL)",
    "head": "NEW.seq <> OLD.seq + 1",
}


def _triggers() -> Iterator[str]:
    stop = "BEGIN SELECT RAISE(ABORT, '{}'); END"
    for table in _KEPT:
        message = stop.format(f"{table}: rows are never deleted")
        yield f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} {message}"
    for table in _FIXED:
        yield f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table} {stop.format(f'{table}: append only')}"
    for table, broken in _RULES.items():
        message = stop.format(f"{table}: spent never falls, terms never change")
        yield f"CREATE TRIGGER {table}_forward BEFORE UPDATE ON {table} WHEN {broken} {message}"


def _guard(db: sqlite3.Connection) -> None:
    for trigger in _triggers():
        db.execute(trigger)


class Store:
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
            raise ConfigError.about("ledger", "must be a file on a local disk", path=text)
        self.path, self.read_only, self.busy_s = Path(path), read_only, busy_s
        self._pid = os.getpid()
        self._engine = create_engine("sqlite://", creator=self._connection, poolclass=QueuePool)
        event.listen(self._engine, "begin", _begin)
        self._prepare()

    def _prepare(self) -> None:
        if self.read_only and not self.path.is_file():
            raise PrivacyError.about("ledger", "does not exist", file=self.path.name)
        if self.path.is_file() and not self.read_only:
            self._migrate()
        if self.path.is_file():
            with self.read() as db:
                if self.read_only or inspect(db).has_table("head"):
                    self._check_version(db)
                    return
        with self.write() as db:
            if not inspect(db).has_table("head"):
                schema.metadata.create_all(db)
                for trigger in _triggers():
                    db.exec_driver_sql(trigger)
                db.execute(insert(schema.head).values(id=1, version=schema.VERSION, seq=0, hash=GENESIS))
            self._check_version(db)

    def _migrate(self) -> None:
        with self.read() as db:
            version = db.execute(select(schema.head.c.version)).scalar_one() if inspect(db).has_table("head") else None
        if version is not None and version < schema.VERSION:
            self._engine.dispose()  # a reader's connection would hold the tables that are rebuilt
            migrations.migrate(self.path, version, _guard)

    def _check_version(self, db: Connection) -> None:
        if not inspect(db).has_table("head"):
            raise PrivacyError.about("ledger", "is not a ledger", file=self.path.name)
        version = db.execute(select(schema.head.c.version)).scalar_one()
        if version != schema.VERSION:
            raise PrivacyError.about(
                "ledger",
                f"has another layout than {schema.VERSION}",
                "open it once for writing, or with its own release",
                version=version,
            )

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
            _demand(db, "journal_mode = WAL", "wal")
            # NORMAL may lose the last commits when the power fails: a release without its charge.
            db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that no other writer overlaps, durable when the block ends; undone by any error."""
        if self.read_only:
            raise self._refusal("it was opened read-only")
        with self._transaction("IMMEDIATE") as db:
            yield db

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self._transaction("DEFERRED") as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        if self._pid != os.getpid():
            raise self._refusal("it was opened by another process; open it again after a fork")
        try:
            with self._engine.connect() as db:
                db = db.execution_options(sordino_begin=begin)  # noqa: PLW2901 - the same connection, with options
                with db.begin():
                    yield db
        except IntegrityError as error:
            raise PrivacyError.about(
                "ledger", f"was stopped by the database's own guard ({error.orig}); nothing was released"
            ) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._refusal(str(getattr(error, "orig", None) or error).splitlines()[0]) from error

    def _refusal(self, reason: str) -> PrivacyError:
        return PrivacyError.about("ledger", f"cannot be used ({reason}); nothing was released", file=self.path.name)

    def close(self) -> None:
        """Give the file back."""
        if self._pid == os.getpid():
            self._engine.dispose()


def _begin(db: Connection) -> None:
    # A deferred transaction that reads and then writes fails with "busy" and invites check-then-act.
    db.exec_driver_sql(f"BEGIN {db.get_execution_options().get('sordino_begin', 'DEFERRED')}")


def _demand(db: sqlite3.Connection, pragma: str, answer: str) -> None:
    got = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    if got != answer:
        raise PrivacyError.about("ledger", f"`{pragma}` was answered {got!r}", "keep the ledger on a local disk")
