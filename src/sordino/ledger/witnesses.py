"""Witnesses: silos keep the checkpoints that they have seen, so that not even the ledger's owner can rewrite it.

A silo countersigns a checkpoint only if it continues the last one that it has seen. The owner of the ledger keeps the
countersignatures; the silo keeps the checkpoints, and a coordinator asks for them before it goes on (`compare`).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, insert, select

from sordino.core.errors import ConfigError, VerificationError
from sordino.ledger import checkpoints, history, merkle, schema
from sordino.ledger.checkpoints import Checkpoint
from sordino.ledger.keys import SigningKey, VerifyKey, decoded
from sordino.ledger.notes import Note


@dataclass(frozen=True)
class Witness:
    """A silo's memory of a coordinator's ledger, in a small file of its own.

    Args:
        path: The file, one JSON object per line; made at the first checkpoint.
        key: The silo's.
        ledgers: Public keys of the ledgers that it follows.
    """

    path: Path
    key: SigningKey = field(repr=False)
    ledgers: Sequence[VerifyKey]

    def seen(self, origin: str) -> str | None:
        """The last note of a ledger, with this silo's countersignature; none if it has seen none.

        Raises:
            VerificationError: The file is damaged.
        """
        notes = [note for note in read(self.path) if Checkpoint.parse(Note.parse(note).text).origin == origin]
        return notes[-1] if notes else None

    def size(self, origin: str) -> int:
        """How many events of a ledger it has seen: where the next proof must start."""
        note = self.seen(origin)
        return Checkpoint.parse(Note.parse(note).text).size if note else 0

    def see(self, note: str, proof: Sequence[str] = ()) -> str:
        """Take a checkpoint and countersign it.

        Args:
            note: The ledger's signed checkpoint.
            proof: That the history grew from what was seen last, see `Ledger.growth`.

        Returns:
            The countersignature, in base64, for `Ledger.witnessed`. It is given out after the file was written.

        Raises:
            VerificationError: The ledger was put back or forked, or the checkpoint is forged; nothing was kept.
        """
        given = Note.parse(note)
        new = checkpoints.trusted(given, self.ledgers)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two processes of one silo must not countersign two histories
            before = self.seen(new.origin)
            if before is not None:
                old = Note.parse(before)
                if not self._follows(Checkpoint.parse(old.text), new, proof):
                    return old.signatures[-1][1]
            signed = Note(given.text, tuple(s for s in given.signatures if s[0] == new.origin)).cosigned(self.key)
            _append(file, str(signed))
        return signed.signatures[-1][1]

    def _follows(self, old: Checkpoint, new: Checkpoint, proof: Sequence[str]) -> bool:
        """Whether it is news; raises if it contradicts what was seen."""
        if new.size < old.size:
            raise VerificationError.about(
                f"witness {self.key.name}",
                f"has seen event {old.size} of {old.origin}: rolled back",
                "find the newer ledger",
                size=new.size,
            )
        if new.size == old.size:
            if new.root != old.root:
                raise self._forked(old)
            return False
        try:
            merkle.check_consistency(old.size, old.root, new.size, new.root, [decoded(text) for text in proof])
        except VerificationError as error:
            raise self._forked(old) from error
        return True

    def _forked(self, old: Checkpoint) -> VerificationError:
        rule = f"has seen other events of {old.origin} up to event {old.size}: forked or rewritten"
        return VerificationError.about(f"witness {self.key.name}", rule, "compare the histories, or send a new proof")


def read(path: str | Path) -> list[str]:
    """All notes of a witness's file, oldest first; each carries the silo's countersignature.

    Raises:
        VerificationError: The file is damaged.
    """
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    # A last line without its end was cut by a crash before its countersignature was given out.
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    try:
        return [str(json.loads(line)["note"]) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise VerificationError.about("witness", "is damaged", "restore it", file=str(path)) from error


def _append(file: BinaryIO, note: str) -> None:
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)
    file.write(json.dumps({"note": note}).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


def keep(db: Connection, note: str, signature: str, by: VerifyKey) -> bool:
    """Write a silo's countersignature of one of this ledger's checkpoints; whether it is new.

    Raises:
        VerificationError: It is not by that silo, or of another history.
    """
    table, text = schema.witness, Note.parse(note).text
    found = Checkpoint.parse(text)
    row = db.execute(select(schema.checkpoint.c.note).where(schema.checkpoint.c.seq == found.size)).one_or_none()
    if row is None or Note.parse(row.note).text != text:
        raise VerificationError.about("witnessed", "is not a checkpoint of this ledger", size=found.size)
    Note(text).with_cosignature(by.name, signature).check_cosignature(by)
    mine = (table.c.seq == found.size) & (table.c.name == by.name)
    if db.execute(select(table.c.seq).where(mine)).one_or_none() is not None:
        return False
    history.append(db, "witnessed", {"size": found.size, "name": by.name, "signature": signature})
    db.execute(insert(table).values(seq=found.size, name=by.name, signature=signature))
    return True


@dataclass(frozen=True)
class Sighting:
    """What somebody says to have seen of a ledger."""

    by: str
    checkpoint: Checkpoint


def sightings(notes: Sequence[str], keys: Sequence[VerifyKey]) -> list[Sighting]:
    """What silos have seen of the ledgers of these keys; notes of other ledgers are left out.

    Args:
        notes: Checkpoints with the silos' countersignatures, see `read`.
        keys: Of the ledgers' owners. Without any, all notes count and signatures are not checked.

    Raises:
        VerificationError: A note is damaged, or bears an owner's name but not its signature.
    """
    owners, found = {key.name for key in keys}, []
    for text in notes:
        note = Note.parse(text)
        seen = Checkpoint.parse(note.text)
        if seen.origin in owners or not keys:
            if keys:
                checkpoints.trusted(note, keys)
            by = [name for name, _ in note.signatures if name != seen.origin]
            found.append(Sighting(by[-1] if by else "somebody", seen))
    return found


def contradictions(seen: Sequence[Sighting], leaves: Sequence[bytes]) -> list[str]:
    """What was seen that a history of these events is not."""
    roots = merkle.roots(leaves, [sighting.checkpoint.size for sighting in seen])
    problems = []
    for sighting in seen:
        size = sighting.checkpoint.size
        if size not in roots:
            problems.append(
                f"history: it ends at event {len(leaves)}, {sighting.by} has seen event {size}: rolled back"
            )
        elif roots[size] != sighting.checkpoint.root:
            problems.append(f"history: {sighting.by} has seen other events up to event {size}: forked or rewritten")
    return problems


def compare(db: Connection, notes: Sequence[str], keys: Sequence[VerifyKey]) -> int:
    """How many events of this ledger silos have seen; 0 if none has seen any.

    Raises:
        VerificationError: A silo has seen what this ledger is not: it was put back to an earlier state, or there is
            another one.
        ConfigError: No key to check the notes with.
    """
    if not keys:
        raise ConfigError.about("compare_with", "needs the ledger's key", "open it with `key` or give its public half")
    seen = sightings(notes, keys)
    problems = contradictions(seen, checkpoints.leaves(db))
    if problems:
        remedy = "nothing was released; find the newer ledger: runs with these silos share one, which `ledger` names"
        raise VerificationError.about("ledger", "; ".join(problems), remedy)
    return max((sighting.checkpoint.size for sighting in seen), default=0)
