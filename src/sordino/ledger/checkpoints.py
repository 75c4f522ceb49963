"""Checkpoints: the ledger's owner signs how many events there were and the Merkle root over them.

Whoever rewrites the history later cannot make its checkpoints again without the key; whoever has the key cannot make
those agree that silos have kept (`witnesses`). The event `checkpoint` follows right behind the events it covers.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, insert, select

from sordino.core.errors import ConfigError, VerificationError
from sordino.ledger import history, merkle, schema
from sordino.ledger.keys import SigningKey, VerifyKey, decoded
from sordino.ledger.merkle import Frontier
from sordino.ledger.notes import Note

EVERY = 100
"""At most so many events follow the last checkpoint of a ledger that has a key."""

EVIDENCE = ("checkpoint", "witnessed")
"""Events about the history itself; they alone call for no new checkpoint."""

AT_ONCE = ("published",)
"""Events that call for a checkpoint in their own transaction."""

event, checkpoint = schema.event, schema.checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says.

    Args:
        origin: The ledger: the name of its owner's key. One key signs for one ledger.
        size: How many events there were.
        root: Merkle root over their hashes.

    Source:
        C2SP tlog-checkpoint v1.0.0.
    """

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text of its note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """The inverse of `text`.

        Raises:
            VerificationError: It is not the text of a checkpoint.
        """
        lines = text.split("\n")
        try:
            found = cls(lines[0], int(lines[1]), decoded(lines[2]))
        except (IndexError, ValueError):
            found = None
        if found is None or found.text != text or found.size < 1 or len(found.root) != 32:
            raise VerificationError.about("checkpoint", "is not a checkpoint's text")
        return found


@dataclass(frozen=True)
class Growth:
    """A checkpoint for a silo, with the proof that the history it saw before has only grown since.

    Args:
        note: The signed checkpoint.
        since: The size that the proof starts from; 0 for a silo that has seen nothing.
        proof: Hashes in base64; none if `since` is 0 or the checkpoint's own size.
    """

    note: str
    since: int
    proof: tuple[str, ...]


@dataclass(frozen=True)
class Inclusion:
    """Proof that an event is in the history that a checkpoint covers."""

    note: str
    seq: int
    hash: str
    proof: tuple[str, ...]

    def check(self, key: VerifyKey) -> None:
        """Return only if the ledger's owner signed a history in which this event has this place.

        Raises:
            VerificationError: They did not.
        """
        found = trusted(Note.parse(self.note), [key])
        proof = [decoded(text) for text in self.proof]
        merkle.check_inclusion(bytes.fromhex(self.hash), self.seq - 1, found.size, proof, found.root)


def trusted(note: Note, keys: Sequence[VerifyKey]) -> Checkpoint:
    """The checkpoint of a note that its ledger's owner signed with one of these keys.

    Raises:
        VerificationError: It is no checkpoint, or no key of that owner signed it.
    """
    found = Checkpoint.parse(note.text)
    mine = [key for key in keys if key.name == found.origin]
    for key in mine[:-1]:
        try:
            note.check(key)
        except VerificationError:
            continue
        return found
    if not mine:
        raise VerificationError.about("checkpoint", "is of a ledger whose key is not known", origin=found.origin)
    note.check(mine[-1])
    return found


def leaves(db: Connection, after: int = 0, until: int | None = None) -> list[bytes]:
    """Hashes of the events, oldest first."""
    query = select(event.c.hash).where(event.c.seq > after).order_by(event.c.seq)
    if until is not None:
        query = query.where(event.c.seq <= until)
    return [bytes.fromhex(digest) for digest in db.execute(query).scalars()]


def last(db: Connection) -> Row[tuple[int, str, str]] | None:
    """The newest checkpoint's row."""
    return db.execute(select(checkpoint).order_by(checkpoint.c.seq.desc()).limit(1)).one_or_none()


def write(db: Connection, key: SigningKey, known: Frontier, *, every: int) -> Frontier:
    """Sign the history in the caller's transaction, if that is due. Returns the tree that was signed last.

    It is due with the first event, after `every` more, and at once when something was published.

    Args:
        db: A transaction that excludes other writers.
        key: The owner's.
        known: The tree as of this process's last checkpoint, or an empty one.
        every: 1 for "if anything happened at all".

    Raises:
        VerificationError: The history is not the one that was signed last: it was rewritten or put back.
        ConfigError: Another owner's key signed the last checkpoint.
    """
    row = last(db)
    size: int = db.execute(select(schema.head.c.seq)).scalar_one()
    signed = row.seq if row else 0
    if known.size > signed:
        raise VerificationError.about("ledger", f"was put back to event {signed}", signed=known.size)
    late = size - signed >= (every if row else 1)
    if not (_news(db, signed, AT_ONCE) or (late and _news(db, signed))):
        return known
    tree = signed_tree(db, key, known)
    tree = tree.extended(leaves(db, tree.size, size))
    if tree.size != size:
        raise VerificationError.about("ledger", "lacks events of its history", events=tree.size, head=size)
    note = Note(Checkpoint(key.name, size, tree.root()).text).signed(key)
    values = {"root": tree.root().hex(), "note": str(note)}
    history.append(db, "checkpoint", {"size": size, **values})
    db.execute(insert(checkpoint).values(seq=size, **values))
    return tree


def _news(db: Connection, signed: int, kinds: Sequence[str] = ()) -> bool:
    """Whether such an event, or any that is not about the history itself, came after the last checkpoint."""
    wanted = event.c.kind.in_(kinds) if kinds else event.c.kind.not_in(EVIDENCE)
    return db.execute(select(event.c.seq).where(event.c.seq > signed, wanted).limit(1)).first() is not None


def signed_tree(db: Connection, key: SigningKey, known: Frontier) -> Frontier:
    """The tree of the last checkpoint. An owner never signs what contradicts an earlier signature.

    Raises:
        VerificationError: The history is not the one that was signed last.
        ConfigError: Another owner's key signed it.
    """
    row = last(db)
    if row is None:
        return known
    found = Checkpoint.parse(Note.parse(row.note).text)
    if found.origin != key.name:
        raise ConfigError.about("ledger", "is signed by another owner", "give its key", owner=found.origin)
    trusted(Note.parse(row.note), [key.public])
    tree = known.extended(leaves(db, known.size, row.seq))
    if (tree.size, tree.root()) != (found.size, found.root):
        raise VerificationError.about("ledger", f"was rewritten before event {found.size}, which was signed")
    return tree


def growth(db: Connection, since: int) -> Growth:
    """The newest checkpoint, for a silo that has seen the first `since` events.

    Raises:
        VerificationError: The silo has seen more than there is.
        ConfigError: There is no checkpoint.
    """
    row = _demanded(db)
    if since > row.seq:
        raise VerificationError.about("ledger", f"ends at event {row.seq}: it was put back", seen=since)
    if since in (0, row.seq):
        return Growth(row.note, since, ())
    return Growth(row.note, since, _texts(merkle.consistency(leaves(db, 0, row.seq), since)))


def inclusion(db: Connection, seq: int) -> Inclusion:
    """Proof that event `seq` is in the history of the newest checkpoint.

    Raises:
        ConfigError: There is no checkpoint, or it does not cover the event.
    """
    row = _demanded(db)
    if not 1 <= seq <= row.seq:
        raise ConfigError.about("inclusion", f"must lie in 1 to {row.seq}, what the last checkpoint covers", event=seq)
    all_ = leaves(db, 0, row.seq)
    return Inclusion(row.note, seq, all_[seq - 1].hex(), _texts(merkle.inclusion(all_, seq - 1)))


def _demanded(db: Connection) -> Row[tuple[int, str, str]]:
    row = last(db)
    if row is None:
        raise ConfigError.about("ledger", "has no checkpoint", "open it with a key")
    return row


def _texts(proof: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(base64.b64encode(value).decode() for value in proof)
