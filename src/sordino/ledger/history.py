"""The append-only history: every event carries the hash of the one before, so an edit breaks the chain."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from sordino.core.errors import PrivacyError
from sordino.ledger import schema

head, event = schema.head, schema.event

# Written once: a statement takes longer to build than to run.
_HEAD = select(head.c.seq, head.c.hash)
_EVENT = insert(event)
_MOVE = update(head).where(head.c.seq == bindparam("before")).values(seq=bindparam("to"), hash=bindparam("link"))


@dataclass(frozen=True)
class Entry:
    """One event of the history."""

    seq: int
    ts: str
    kind: str
    txid: str | None
    body: dict[str, Any]
    prev: str
    hash: str


def canonical(value: object) -> str:
    """Sorted-key JSON without spaces, in ASCII; refuses infinities and NaN.

    Bodies are stored and hashed as this text, never parsed and written again. It is not RFC 8785, whose numbers end
    at 2^53: units of epsilon and delta go beyond, and a body keeps them as they are.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link(seq: int, ts: str, kind: str, txid: str | None, body: str, prev: str, *, escaped: bool = False) -> str:
    """SHA-256 of an event and the hash before it, as canonical JSON (RFC 8785).

    Every value is a text but for `seq`, a small integer: for these Python's encoder writes what RFC 8785 says.
    `escaped` is the form of layout 1, which differs where a text is not ASCII.
    """
    event_ = {"seq": seq, "ts": ts, "kind": kind, "txid": txid, "body": body, "prev": prev}
    text = json.dumps(event_, sort_keys=True, separators=(",", ":"), ensure_ascii=escaped)
    return hashlib.sha256(text.encode()).hexdigest()


def now() -> str:
    """The time as ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def append(db: Connection, kind: str, body: dict[str, Any], txid: str | None = None) -> str:
    """Write an event in the caller's transaction; returns its time."""
    seq, prev = db.execute(_HEAD).one()
    ts, text = now(), canonical(body)
    digest = link(seq + 1, ts, kind, txid, text, prev)
    row = {"seq": seq + 1, "ts": ts, "kind": kind, "txid": txid, "body": text, "prev": prev, "hash": digest}
    db.execute(_EVENT, row)
    moved = db.execute(_MOVE, {"before": seq, "to": seq + 1, "link": digest})
    if moved.rowcount != 1:
        raise PrivacyError.about("ledger", "another writer moved the history; nothing was released")
    return ts


def entries(db: Connection) -> list[Entry]:
    """The whole history, oldest first."""
    rows = db.execute(select(event).order_by(event.c.seq))
    return [Entry(**{**row, "body": json.loads(row["body"])}) for row in rows.mappings()]


def rows(db: Connection) -> list[dict[str, Any]]:
    """The whole history as it is stored, oldest first."""
    return [dict(row) for row in db.execute(select(event).order_by(event.c.seq)).mappings()]


def last_hash(db: Connection) -> str:
    """The hash over the whole history."""
    return str(db.execute(select(head.c.hash)).scalar_one())
