"""Databases under a ledger, behind one class: `Store`. A path is SQLite, `postgresql://…` is PostgreSQL.

`write` is a transaction that excludes other writers, `read` one consistent snapshot, and triggers keep the history
append-only; everything else in the room is portable SQLAlchemy Core.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from sordino.ledger.stores.store import GENESIS, Store

__all__ = ["GENESIS", "Place", "Store", "is_url", "open_store"]

Place: TypeAlias = str | Path
"""Where a ledger is: a file, or a PostgreSQL URL."""


def is_url(place: Place) -> bool:
    """Whether it names a server and not a file.

    >>> is_url("postgresql://ward@db.example/ledger"), is_url("books/ledger.db")
    (True, False)
    """
    return isinstance(place, str) and place.startswith(("postgresql:", "postgres:"))


def open_store(place: Place, *, read_only: bool = False, busy_s: float = 30.0) -> Store:
    """Open the database of a ledger; made if nothing is there, unless `read_only`.

    Args:
        place: A file, or `postgresql://user@host/database`.
        read_only: Never write.
        busy_s: How long to wait for another process's transaction, in seconds.

    Raises:
        ConfigError: The place makes no sense, or its driver is not installed.
        PrivacyError: It cannot be opened, or cannot keep what it is given.
    """
    if is_url(place):
        from sordino.ledger.stores.postgresql import PostgreSQL

        return PostgreSQL(str(place), read_only=read_only, busy_s=busy_s)
    from sordino.ledger.stores.sqlite import SQLite

    return SQLite(place, read_only=read_only, busy_s=busy_s)
