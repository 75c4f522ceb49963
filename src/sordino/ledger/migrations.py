"""Bring a ledger of an earlier layout to the present one, in one transaction or not at all.

Nothing that was charged changes: rows stay, new columns take the values that earlier layouts meant, and the history
goes on with an event that says what happened. A SQLite file gets its tables anew; PostgreSQL changes its own
(`stores.postgresql`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from sordino.core.errors import PrivacyError
from sordino.ledger import history, schema

MEANT: dict[str, dict[str, str | int]] = {
    "account": {"scope": "silo", "state": "open", "policy": 0},
    "admission_line": {"derived": False},
    "charge_line": {"derived": False, "absent": False},
}
"""What earlier layouts meant by columns that they did not have; `repr` of each is SQL."""


def migrate(path: Path, version: int, triggers: Callable[[sqlite3.Connection], None]) -> None:
    """Rebuild a file of layout `version` in the present layout.

    Args:
        path: The ledger file.
        version: Its layout.
        triggers: Puts the guards of the present layout on its tables.

    Raises:
        PrivacyError: The layout is unknown, or rows of the file contradict each other; nothing was changed.
    """
    if not 1 <= version < schema.VERSION:
        raise PrivacyError.about(
            "ledger", f"has another layout than {schema.VERSION}", "use its release", version=version
        )
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = OFF")  # tables are replaced one by one; all references are checked below
        db.execute("PRAGMA legacy_alter_table = ON")
        db.execute("BEGIN IMMEDIATE")
        if db.execute("SELECT version FROM head").fetchone()[0] == version:  # nobody else was first
            _rebuild(db)
            triggers(db)
            _note(db, version)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    finally:
        db.close()


def _rebuild(db: sqlite3.Connection) -> None:
    dialect = sqlite.dialect()
    kinds = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'index') AND sql IS NOT NULL"
    for kind, name in db.execute(kinds).fetchall():
        db.execute(f"DROP {kind} {name}")
    old = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    for name in old:
        db.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    for table in schema.metadata.sorted_tables:
        db.execute(str(CreateTable(table).compile(dialect=dialect)))
        if table.name in old:
            _copy(db, table.name)
    for name in old:
        db.execute(f"DROP TABLE old_{name}")
    for table in schema.metadata.sorted_tables:
        for index in table.indexes:
            db.execute(str(CreateIndex(index).compile(dialect=dialect)))
    broken = db.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise PrivacyError.about("ledger", "has rows that refer to nothing", "restore it", rows=broken[:3])


def _copy(db: sqlite3.Connection, table: str) -> None:
    columns = [row[1] for row in db.execute(f"PRAGMA table_info(old_{table})")]
    meant = {name: value for name, value in MEANT.get(table, {}).items() if name not in columns}
    into = ", ".join([*columns, *meant])
    taken = ", ".join([*columns, *(repr(value) for value in meant.values())])
    db.execute(f"INSERT INTO {table} ({into}) SELECT {taken} FROM old_{table}")  # noqa: S608 - names of our own tables


def _note(db: sqlite3.Connection, version: int) -> None:
    row = event(version, *db.execute("SELECT seq, hash FROM head").fetchone())
    db.execute(f"INSERT INTO event ({', '.join(row)}) VALUES (:{', :'.join(row)})", row)  # noqa: S608 - our own names
    db.execute("UPDATE head SET seq = :seq, hash = :hash, version = :version", {**row, "version": schema.VERSION})


def event(version: int, seq: int, prev: str) -> dict[str, str | int | None]:
    """The row of the history that says from which layout a ledger came.

    Args:
        version: The layout that it had.
        seq: Number of its last event.
        prev: Hash of its last event.
    """
    ts, text = history.now(), history.canonical({"from": version, "to": schema.VERSION})
    digest = history.link(seq + 1, ts, "migrated", None, text, prev)
    names = ("seq", "ts", "kind", "txid", "body", "prev", "hash")
    return dict(zip(names, (seq + 1, ts, "migrated", None, text, prev, digest), strict=True))
