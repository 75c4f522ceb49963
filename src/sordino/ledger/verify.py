"""Whether a ledger agrees with itself, and with what others have kept of it.

Replays the history and compares every balance, charge and byte. What a ledger alone cannot show is a history that was
wiped, rolled back or rewritten as a whole: that takes something kept elsewhere, a hash from a claim (`expect`), the
owner's public key (`keys`) or what silos have seen (`witnesses`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, select

from sordino.core.errors import SordinoError
from sordino.core.types import Unit
from sordino.ledger import evidence, grants, history, schema
from sordino.ledger.evidence import Body, Evidence, Known
from sordino.ledger.keys import VerifyKey
from sordino.ledger.replay import Replay
from sordino.ledger.repricing import underpriced
from sordino.ledger.stores import GENESIS, Place, open_store
from sordino.privacy.permits import Line


@dataclass(frozen=True)
class Report:
    """What was found.

    Args:
        ok: Nothing is wrong.
        problems: What is, in plain words, with the number of the event.
        counts: How many events of each kind were replayed.
        signed: How many events, from the first, a checkpoint under the given keys covers.
        seen: How many of them each given silo has countersigned.
    """

    ok: bool
    problems: tuple[str, ...]
    counts: dict[str, int]
    signed: int = 0
    seen: dict[str, int] = field(default_factory=dict)


def verify(
    path: Place,
    *,
    expect: Sequence[str] = (),
    keys: Sequence[VerifyKey] = (),
    silos: Sequence[VerifyKey] = (),
    witnesses: Sequence[str] = (),
    reprice: bool = False,
) -> Report:
    """Check a ledger without writing to it.

    Args:
        path: The file, or a PostgreSQL URL.
        expect: Hashes seen earlier, e.g. in claims: each must lie in the history, or it was rolled back.
        keys: Public keys of the ledger's owner. With them, every checkpoint must be signed by one, and no more than
            99 events may follow the last. Without any, signatures are not checked.
        silos: Public keys of silos that have countersigned, or granted charges: their grants are checked.
        witnesses: Checkpoints that silos have seen, see `witnesses.read`: each must agree with the history.
        reprice: Also compute every price again with today's accountant: none may have been charged too little.

    Returns:
        The problems; none if the ledger agrees with itself and with what is given. One that cannot be read is a
        problem too.
    """
    known = Known(hashes=expect, owners=keys, silos=silos, notes=witnesses)
    try:
        store = open_store(path, read_only=True)
    except SordinoError as error:
        return Report(ok=False, problems=(str(error),), counts={})
    try:
        with store.read() as db:
            return _examine(db, known, reprice=reprice)
    except SordinoError as error:
        return Report(ok=False, problems=(str(error),), counts={})
    finally:
        store.close()


def report(rows: Sequence[Body], found: Evidence, problems: Sequence[str]) -> Report:
    """The evidence and further problems as a report."""
    said = (*found.problems, *problems)
    counts = dict(Counter(row["kind"] for row in rows))
    return Report(ok=not said, problems=said, counts=counts, signed=found.signed, seen=found.seen)


def ends(rows: Sequence[Body], seq: int, digest: str) -> Iterator[str]:
    """Whether a history ends where the head says."""
    last = (rows[-1]["seq"], rows[-1]["hash"]) if rows else (0, GENESIS)
    if last != (seq, digest):
        yield f"history: it ends at event {last[0]}, the ledger's head is {seq}: truncated"


def _examine(db: Connection, known: Known, *, reprice: bool) -> Report:
    rows = history.rows(db)
    head = db.execute(select(schema.head)).one()
    found = evidence.examine(rows, known)
    problems = list(ends(rows, head.seq, head.hash))
    replay = Replay()
    for row in rows:
        problems += replay.play(row)
    try:
        problems += replay.overdrawn()
        for table, expected in replay.tables().items():
            problems += compare(table.name, expected, _stored(db, table))
        problems += underpriced(replay) if reprice else ()
        problems += unasked(replay)
        problems += _granted(replay, {key.name: key for key in known.silos})
    except (KeyError, TypeError, ValueError, AttributeError):
        problems.append("history: it tells of values that no table can hold")
    problems += _bytes(db)
    return report(rows, found, problems)


def unasked(replay: Replay) -> Iterator[str]:
    """Releases of runs with consenting silos that one of them neither granted nor was absent from."""
    runs = {
        replay.charges[txid]["run"]
        for txid, lines in replay.lines.items()
        if any(item["consent"] is not None or item["absent"] for item in lines)
    }
    for txid, lines in replay.lines.items():
        if replay.charges[txid]["run"] in runs and replay.charges[txid]["state"] == "committed":
            for item in lines:
                if item["consent"] is None and not item["absent"] and not item["derived"]:
                    yield f"charge {txid}: account {item['account']!r} paid without a silo's consent"


def _granted(replay: Replay, keys: Mapping[str, VerifyKey]) -> Iterator[str]:
    """What is wrong with the grants of the silos whose keys are given, beside the charges that carry them."""
    for txid, lines in replay.lines.items():
        for line in lines:
            text = line["consent"]
            if not keys or text is None or grants.by(text) not in {*keys, None}:
                continue
            unit = Unit(replay.accounts[line["account"]]["unit"])
            charged = [Line(line["account"], unit, line["key"], line["count"])]
            yield from grants.problems({line["account"]: text}, txid, charged, keys)


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


def compare(table: str, expected: list[Body], stored: list[Body]) -> Iterator[str]:
    """What a table holds that does not follow from the history, and what it lacks."""
    told, held = Counter(map(_form, expected)), Counter(map(_form, stored))
    for row in held - told:
        yield f"{table}: the row {dict(sorted(row))} does not follow from the history"
    for row in told - held:
        yield f"{table}: the history tells of {dict(sorted(row))}, which is not there"


def _form(row: Body) -> frozenset[tuple[str, Any]]:
    try:
        return frozenset(row.items())
    except TypeError:  # a list where no column can hold one
        return frozenset((name, str(value)) for name, value in row.items())


def _bytes(db: Connection) -> Iterator[str]:
    for row in db.execute(select(schema.outbox)):
        if row.payload is None and row.published_at is None:
            yield f"outbox: the bytes of {row.txid} are gone before they were published"
        if row.payload is not None and hashlib.sha256(row.payload).hexdigest() != row.sha256:
            yield f"outbox: the bytes of {row.txid} are not those that were committed"
