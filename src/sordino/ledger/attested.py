"""The part of a ledger that gives evidence: checkpoints where a key is given, proofs, and what silos have seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.ledger import checkpoints, witnesses
from sordino.ledger.answers import Answers
from sordino.ledger.checkpoints import Growth, Inclusion
from sordino.ledger.claim import Claim
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.merkle import Frontier
from sordino.ledger.stores import Place, Store


class Sealing(Store):
    """A store whose transactions end with a checkpoint where one is due.

    Args:
        store: The database.
        key: Of the ledger's owner.
        every: After how many events a checkpoint is due.
    """

    def __init__(self, store: Store, key: SigningKey, every: int) -> None:
        self._store, self._key, self._every, self._tree = store, key, every, Frontier()
        super().__init__(store.engine, store.place, read_only=store.read_only)

    def _prepare(self) -> None:
        with self._store.read() as db:
            self._tree = checkpoints.signed_tree(db, self._key, self._tree)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._store.write() as db:
            yield db
            tree = checkpoints.write(db, self._key, self._tree, every=self._every)
        self._tree = tree  # only now is the checkpoint durable

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._store.read() as db:
            yield db

    def seal(self) -> None:
        """Sign whatever is new."""
        with self._store.write() as db:
            tree = checkpoints.write(db, self._key, self._tree, every=1)
        self._tree = tree

    def close(self) -> None:
        self._store.close()


class Attested(Answers):
    """The part of a ledger that gives evidence; see `Ledger`."""

    def __init__(
        self,
        path: Place,
        *,
        read_only: bool = False,
        busy_s: float = 30.0,
        key: SigningKey | None = None,
        checkpoint_every: int = checkpoints.EVERY,
    ) -> None:
        checks.count("ledger", checkpoint_every=checkpoint_every)
        if checkpoint_every > checkpoints.EVERY:
            raise ConfigError.about("ledger", f"must be at most {checkpoints.EVERY}", checkpoint_every=checkpoint_every)
        super().__init__(path, read_only=read_only, busy_s=busy_s)
        self._key = key
        if key is not None and not read_only:
            self._store = Sealing(self._store, key, checkpoint_every)

    def checkpoint(self) -> str:
        """The newest checkpoint as a signed note; with a key, it covers everything that has happened.

        Raises:
            ConfigError: There is none, and no key to sign one.
            VerificationError: The history is not the one that was signed last: it was rewritten or put back.
        """
        return self.growth(0).note

    def growth(self, since: int) -> Growth:
        """The newest checkpoint, and the proof of it for a silo that has seen the first `since` events.

        Raises:
            ConfigError: There is no checkpoint, and no key to sign one.
            VerificationError: The silo has seen more than there is; or as for `checkpoint`.
        """
        self._seal()
        with self._store.read() as db:
            return checkpoints.growth(db, since)

    def inclusion(self, seq: int) -> Inclusion:
        """Proof that event `seq` is in the signed history.

        Raises:
            ConfigError: There is no such event, or no checkpoint that covers it.
        """
        self._seal()
        with self._store.read() as db:
            return checkpoints.inclusion(db, seq)

    def witnessed(self, note: str, signature: str, by: VerifyKey) -> bool:
        """Keep a silo's countersignature of a checkpoint of this ledger; whether it is new.

        Raises:
            VerificationError: It is not by that silo, or of another history.
        """
        with self._store.write() as db:
            return witnesses.keep(db, note, signature, by)

    def compare_with(self, notes: Sequence[str], keys: Sequence[VerifyKey] = ()) -> int:
        """Ask what silos have seen before going on, e.g. after a restart or a restore.

        Args:
            notes: From `Witness.seen` of each silo, or `witnesses.read` of its file.
            keys: Public keys of this ledger's owner; none for that of the key that it was opened with.

        Returns:
            How many events of this ledger silos have seen; 0 if none has seen any.

        Raises:
            VerificationError: A silo has seen a later event, or another history: this ledger must not go on.
        """
        own = [self._key.public] if self._key else []
        with self._store.read() as db:
            return witnesses.compare(db, notes, list(keys) or own)

    def claims(self, run: str) -> list[Claim]:
        """What the run may have cost the people of each account that paid for it, by account name."""
        self._seal()
        return super().claims(run)

    def claim(self, run: str, account: str) -> Claim:
        """What the run may have cost the people of one account.

        Raises:
            PrivacyError: The account paid nothing for it.
        """
        self._seal()
        return super().claim(run, account)

    def _seal(self) -> None:
        if isinstance(self._store, Sealing):
            self._store.seal()
