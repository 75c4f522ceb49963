"""Databases under a ledger, behind one class: `Store`. A path is SQLite, `postgresql://…` is PostgreSQL.

`write` is a transaction that excludes other writers, `read` one consistent snapshot, and triggers keep the history
append-only; everything else in the room is portable SQLAlchemy Core.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from sordino.core.errors import ConfigError
from sordino.ledger.stores.store import GENESIS, Store

__all__ = ["GENESIS", "Place", "Store", "exists", "is_url", "label", "located", "open_store"]

Place: TypeAlias = str | Path
"""Where a ledger is: a file, or a PostgreSQL URL."""


def is_url(place: Place) -> bool:
    """Whether it names a server and not a file.

    >>> is_url("postgresql://ward@db.example/ledger"), is_url("books/ledger.db")
    (True, False)
    """
    return isinstance(place, str) and place.startswith(("postgresql:", "postgres:"))


def located(text: str, base: Path) -> Place:
    """Where a ledger is that a file names: a URL, or a path that starts at the file's folder.

    Raises:
        ConfigError: A URL holds a password: such a file is copied beside every result.
    """
    if not is_url(text):
        return base / text
    from sordino.ledger.stores.postgresql import parsed

    if parsed(text).password or "password" in parsed(text).query:
        raise ConfigError.about("ledger", "holds a password", "keep it in ~/.pgpass or PGPASSWORD", ledger=label(text))
    return text


def label(place: Place) -> str:
    """What messages call it: without the name or password of whoever asks.

    >>> label("postgresql://ward:secret@db.example:5433/ledger")
    'db.example:5433/ledger'
    """
    if not is_url(place):
        return str(place)
    from sordino.ledger.stores.postgresql import parsed, public

    return public(parsed(str(place)))


def exists(place: Place) -> bool:
    """Whether a ledger is there.

    Raises:
        PrivacyError: The server cannot be asked.
    """
    if not is_url(place):
        return Path(place).exists()
    from sordino.ledger.stores.postgresql import PostgreSQL

    return PostgreSQL.exists(str(place))


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
