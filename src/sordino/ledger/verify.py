"""Does a ledger file agree with itself? Replays the history and compares every balance, charge and byte.

What a file alone cannot show is a history that was wiped or rolled back as a whole: that takes a copy of an
earlier hash, such as the one in a claim, kept elsewhere (`expect`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, select

from sordino.core.errors import PrivacyError
from sordino.ledger import history, schema
from sordino.ledger.office import Body
from sordino.ledger.replay import Replay
from sordino.ledger.stores import GENESIS, Place, open_store


@dataclass(frozen=True)
class Report:
    """What was found. `counts` says how many events of each kind were replayed."""

    ok: bool
    problems: tuple[str, ...]
    counts: dict[str, int]


def verify(path: Place, *, expect: Sequence[str] = (), reprice: bool = False) -> Report:
    """Check a ledger file without writing to it.

    Args:
        path: The file.
        expect: Hashes seen earlier, e.g. in claims: each must lie in the history, or it was rolled back.
        reprice: Also compute every price again with today's accountant: none may have been charged too little.

    Returns:
        The problems in plain words; none if the file agrees with itself. A file that cannot be read is a problem too.
    """
    try:
        store = open_store(path, read_only=True)
    except PrivacyError as error:
        return Report(ok=False, problems=(str(error),), counts={})
    try:
        with store.read() as db:
            problems, counts = _examine(db, expect, reprice=reprice)
    except PrivacyError as error:
        return Report(ok=False, problems=(str(error),), counts={})
    finally:
        store.close()
    return Report(ok=not problems, problems=tuple(problems), counts=counts)


def _examine(db: Connection, expect: Sequence[str], *, reprice: bool) -> tuple[list[str], dict[str, int]]:
    rows = [dict(row) for row in db.execute(select(schema.event).order_by(schema.event.c.seq)).mappings()]
    head = db.execute(select(schema.head)).one()
    problems = list(_chain(rows, head.seq, head.hash))
    seen = {GENESIS, *(row["hash"] for row in rows)}
    problems += [
        f"history: the hash {digest} seen earlier is not in it: rolled back" for digest in expect if digest not in seen
    ]
    replay = Replay()
    for row in rows:
        problems += replay.play(row)
    problems += replay.overdrawn()
    for table, expected in replay.tables().items():
        problems += _compare(table.name, expected, _stored(db, table))
    problems += _bytes(db)
    if reprice:
        problems += replay.underpriced()
    return problems, dict(Counter(row["kind"] for row in rows))


def _chain(rows: Iterable[Body], seq: int, digest: str) -> Iterator[str]:
    expected, prev = 1, GENESIS
    for row in rows:
        if row["seq"] != expected:
            yield f"history: event {expected} is missing"
        if row["prev"] != prev:
            yield f"history: event {row['seq']} does not follow the one before it"
        if history.link(**{key: row[key] for key in ("seq", "ts", "kind", "txid", "body", "prev")}) != row["hash"]:
            yield f"history: event {row['seq']} was edited"
        expected, prev = row["seq"] + 1, row["hash"]
    if (expected - 1, prev) != (seq, digest):
        yield f"history: it ends at event {expected - 1}, the ledger's head is {seq}: truncated"


_NUMBERS = {
    "account_id": ("account", schema.account, "name"),
    "admission_id": ("run", schema.admission, "run"),
    "kind_id": ("key", schema.kind, "key"),
}


def _stored(db: Connection, table: Table) -> list[Body]:
    """A table's rows with names in place of row numbers."""
    columns: list[Any] = []
    joined: Any = table
    for column in table.columns:
        if column.name in _NUMBERS:
            name, other, text = _NUMBERS[column.name]
            joined = joined.outerjoin(other, other.c.id == column)
            columns.append(other.c[text].label(name))
        elif column.name not in ("id", "payload"):
            columns.append(column)
    return [dict(row) for row in db.execute(select(*columns).select_from(joined)).mappings()]


def _compare(table: str, expected: list[Body], stored: list[Body]) -> Iterator[str]:
    def form(row: Body) -> str:
        return history.canonical(row)

    told, held = Counter(map(form, expected)), Counter(map(form, stored))
    for row in held - told:
        yield f"{table}: the row {row} does not follow from the history"
    for row in told - held:
        yield f"{table}: the history tells of {row}, which is not there"


def _bytes(db: Connection) -> Iterator[str]:
    for row in db.execute(select(schema.outbox)):
        if row.payload is None and row.published_at is None:
            yield f"outbox: the bytes of {row.txid} are gone before they were published"
        if row.payload is not None and hashlib.sha256(row.payload).hexdigest() != row.sha256:
            yield f"outbox: the bytes of {row.txid} are not those that were committed"
