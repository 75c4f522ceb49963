"""What every database under a ledger does alike: transactions, refusals, and one layout."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, insert, inspect, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from sordino.core.errors import PrivacyError
from sordino.ledger import schema

GENESIS = "0" * 64
"""What the first event of a history follows."""


class Store(ABC):
    """The database of one ledger: durable, one writer at a time, unusable from a forked process.

    Args:
        engine: Connections to it.
        place: What messages call it; holds no credentials.
        read_only: Never write.
    """

    def __init__(self, engine: Engine, place: dict[str, str], *, read_only: bool) -> None:
        self.engine, self.place, self.read_only = engine, place, read_only
        self._pid = os.getpid()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _prepare(self) -> None:
        """Find the ledger, bring it to the present layout, or make it."""

    @abstractmethod
    def write(self) -> AbstractContextManager[Connection]:
        """A transaction that no other writer overlaps, durable when the block ends; undone by any error.

        Raises:
            PrivacyError: The database cannot be written, or cannot keep what it is given; nothing was released.
        """

    @abstractmethod
    def read(self) -> AbstractContextManager[Connection]:
        """One consistent snapshot."""

    def close(self) -> None:
        """Give the connections back."""
        if self._pid == os.getpid():
            self.engine.dispose()

    @contextmanager
    def transaction(self, **options: Any) -> Iterator[Connection]:
        """One transaction under the given execution options; whatever stops it is a refusal in one line."""
        if self._pid != os.getpid():
            raise self.refusal("it was opened by another process; open it again after a fork")
        try:
            with self.engine.connect() as db:
                db = db.execution_options(**options)  # noqa: PLW2901 - the same connection, with options
                with db.begin():
                    yield db
        except IntegrityError as error:
            raise PrivacyError.about(
                "ledger", f"was stopped by the database's own guard ({self.reason(error)}); nothing was released"
            ) from error
        except SQLAlchemyError as error:
            raise self.refusal(self.reason(error)) from error

    def reason(self, error: SQLAlchemyError) -> str:
        """The database's own words, in one line."""
        return next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)

    def refusal(self, reason: str) -> PrivacyError:
        """The error of a database that cannot be used."""
        return PrivacyError.about("ledger", f"cannot be used ({reason}); nothing was released", **self.place)

    def make(self, db: Connection, tables: MetaData, guards: Iterator[str]) -> None:
        """Write the present layout into an empty database, in the caller's transaction."""
        tables.create_all(db)
        for guard in guards:
            db.exec_driver_sql(guard)
        db.execute(insert(schema.head).values(id=1, version=schema.VERSION, seq=0, hash=GENESIS))

    def is_made(self, db: Connection) -> bool:
        """Whether a ledger is there."""
        return inspect(db).has_table("head")

    def layout(self, db: Connection) -> int:
        """The version of the tables."""
        return int(db.execute(select(schema.head.c.version)).scalar_one())

    def check_layout(self, db: Connection) -> None:
        """Refuse what is no ledger, or has another layout.

        Raises:
            PrivacyError: It is, or does not.
        """
        if not self.is_made(db):
            raise PrivacyError.about("ledger", "is not a ledger", **self.place)
        version = self.layout(db)
        if version != schema.VERSION:
            raise PrivacyError.about(
                "ledger",
                f"has another layout than {schema.VERSION}",
                "open it once for writing, or with its own release",
                version=version,
            )
