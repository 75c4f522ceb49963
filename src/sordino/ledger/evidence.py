"""What a history shows about itself, and what it must agree with that others have kept.

Each kind of tampering leaves a trace:

edit, deletion, reorder     the chain of hashes breaks at that event
the same, hashes made anew  the next checkpoint's root differs; without the owner's key it cannot be made again
truncation, roll-back       a silo, or a hash kept elsewhere, knows a later event
fork, rewriting by owner    a silo knows another root
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sordino.core.errors import VerificationError
from sordino.ledger import checkpoints, history, merkle, witnesses
from sordino.ledger.checkpoints import Checkpoint
from sordino.ledger.keys import VerifyKey
from sordino.ledger.notes import Note
from sordino.ledger.stores import GENESIS

Body: TypeAlias = dict[str, Any]

_LINKED = ("seq", "ts", "kind", "txid", "body", "prev")


@dataclass(frozen=True)
class Known:
    """What a reader knows from elsewhere.

    Args:
        hashes: Seen earlier, e.g. in claims.
        owners: Public keys of the ledger's owner.
        silos: Public keys of its witnesses.
        notes: Checkpoints that silos have seen.
    """

    hashes: Sequence[str] = ()
    owners: Sequence[VerifyKey] = ()
    silos: Sequence[VerifyKey] = ()
    notes: Sequence[str] = ()


@dataclass
class Evidence:
    """What was found.

    Args:
        problems: In plain words.
        signed: How many events, from the first, a checkpoint of a known owner covers.
        seen: How many of them each known silo has countersigned.
    """

    problems: list[str] = field(default_factory=list)
    signed: int = 0
    seen: dict[str, int] = field(default_factory=dict)


def examine(rows: Sequence[Body], known: Known) -> Evidence:
    """Check the links of a history, its checkpoints and countersignatures, and what others have seen of it.

    Args:
        rows: Its events as they are stored, by number.
        known: What the reader knows from elsewhere.
    """
    found = Evidence(list(_chain(rows)))
    hashes = {GENESIS, *(row["hash"] for row in rows)}
    for digest in known.hashes:
        if digest not in hashes:
            found.problems.append(f"history: the hash {digest} seen earlier is not in it: rolled back")
    leaves = [_leaf(row) for row in rows]
    texts = _signed(rows, leaves, known.owners, found)
    _countersigned(rows, texts, known.silos, found)
    try:
        found.problems += witnesses.contradictions(witnesses.sightings(known.notes, known.owners), leaves)
    except VerificationError as error:
        found.problems.append(f"a silo's note: {error}")
    return found


def _chain(rows: Sequence[Body]) -> Iterator[str]:
    migrated = (row["seq"] for row in rows if row["kind"] == "migrated" and str(row["body"]).startswith('{"from":1,'))
    escaped = next(migrated, 0)
    expected, prev = 1, GENESIS
    for row in rows:
        seq = row["seq"]
        if seq != expected:
            gone = f"event {expected} is" if seq == expected + 1 else f"events {expected} to {seq - 1} are"
            yield f"history: {gone} missing"
        if row["prev"] != prev:
            yield f"history: event {seq} does not follow the one before it"
        if not _is_linked(row, escaped=seq < escaped):
            yield f"history: event {seq} was edited"
        expected, prev = seq + 1, row["hash"]


def _is_linked(row: Body, *, escaped: bool) -> bool:
    try:
        return bool(history.link(**{name: row[name] for name in _LINKED}, escaped=escaped) == row["hash"])
    except (TypeError, ValueError):  # bytes where a text must stand
        return False


def _leaf(row: Body) -> bytes:
    try:
        return bytes.fromhex(row["hash"])
    except (ValueError, TypeError):
        return b""  # the chain is broken there, and no signed root has such a leaf


def _signed(
    rows: Sequence[Body], leaves: Sequence[bytes], owners: Sequence[VerifyKey], found: Evidence
) -> dict[int, str]:
    """Check every checkpoint; the texts of those that hold, by size."""
    said = [(row["seq"], *_checkpoint(row, owners)) for row in rows if row["kind"] == "checkpoint"]
    roots = merkle.roots(leaves, [point.size for _, point, _ in said if point])
    origin = next((point.origin for _, point, _ in said if point), "")
    texts, covered = {}, 0
    for seq, point, forged in said:
        if point is None:
            found.problems.append(f"history: event {seq} (checkpoint) is forged: {forged}")
        elif point.origin != origin:
            found.problems.append(f"history: event {seq} (checkpoint) is of another ledger, {point.origin}")
        elif roots.get(point.size) != point.root:
            which = f"events {covered + 1} to {point.size}"
            found.problems.append(f"history: {which} are not those that event {seq} (checkpoint) signed: rewritten")
        else:
            covered = max(covered, point.size)
            texts[point.size] = point.text
    if owners:
        found.signed = covered
        found.problems += _uncovered(rows, covered)
    return texts


def _checkpoint(row: Body, owners: Sequence[VerifyKey]) -> tuple[Checkpoint | None, str]:
    """What a checkpoint says, or why it is none."""
    try:
        body = json.loads(row["body"])
        note = Note.parse(body["note"])
        point = checkpoints.trusted(note, owners) if owners else Checkpoint.parse(note.text)
        if (body["size"], body["root"]) != (point.size, point.root.hex()):
            return None, "it does not say what its note says"
    except (VerificationError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, str(error)
    return point, ""


def _uncovered(rows: Sequence[Body], covered: int) -> Iterator[str]:
    """A ledger with a key never has so many events without a checkpoint."""
    if not covered:
        if rows:
            yield "history: no checkpoint of its owner covers any of it"
        return
    late = [row["seq"] for row in rows if row["seq"] > covered and row["kind"] not in checkpoints.EVIDENCE]
    if len(late) >= checkpoints.EVERY:
        yield f"history: no checkpoint of its owner covers events {late[0]} to {late[-1]}"


def _countersigned(rows: Sequence[Body], texts: dict[int, str], silos: Sequence[VerifyKey], found: Evidence) -> None:
    for row in rows:
        if row["kind"] != "witnessed":
            continue
        try:
            body = json.loads(row["body"])
            size, name, signature = body["size"], body["name"], body["signature"]
            for key in silos:
                if key.name == name and size in texts:
                    Note(texts[size]).with_cosignature(name, signature).check_cosignature(key)
                    found.seen[name] = max(size, found.seen.get(name, 0))
        except (VerificationError, ValueError, KeyError, TypeError) as error:
            found.problems.append(f"history: event {row['seq']} (witnessed) is forged: {error}")
