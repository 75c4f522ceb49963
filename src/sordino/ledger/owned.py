"""The part of a ledger that knows whose a run is, and what to do with charges that an earlier owner left."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, insert, update

from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import admission, charging, checkpoints, history, reading, schema
from sordino.ledger import consents as beside
from sordino.ledger.admitting import Admitting
from sordino.ledger.keys import SigningKey
from sordino.ledger.stores import Place
from sordino.privacy.permits import Reservation


class Owned(Admitting):
    """The part of a ledger that guards runs by fences; see `Ledger`."""

    def __init__(
        self,
        path: Place,
        *,
        read_only: bool = False,
        busy_s: float = 30.0,
        key: SigningKey | None = None,
        checkpoint_every: int = checkpoints.EVERY,
    ) -> None:
        super().__init__(path, read_only=read_only, busy_s=busy_s, key=key, checkpoint_every=checkpoint_every)
        self._fences: dict[str, int] = {}
        self._quotas: dict[str, tuple[str, ...]] = {}
        self._open: dict[str, tuple[str, Reservation]] = {}

    def open_run(self, run: str, given: int | None = None, *, held: bool = False) -> int:
        """Take over a run, at every start and restart. Returns its fence, higher than all before.

        Args:
            run: Whose releases.
            given: The fence that another ledger gave: a silo adopts its coordinator's. Left out, the next one.
            held: Only if this process is the newest owner already, and raises its own fence.

        Raises:
            PrivacyError: The fence given, or a higher one, was here before: whoever gives it is not the newest owner.
                Or the run was taken over from the one who held it.
        """
        if not run:
            raise ConfigError.about("open_run", "must be a text", run=run)
        table = schema.run
        with self._store.write() as db:
            if held:
                self._guard(db, run)
            last = reading.fence(db, run)
            fence = last + 1 if given is None else given
            if fence <= last:
                raise PrivacyError.about(
                    "open_run", f"is not above {last}, which was here before", "find the newer owner", fence=fence
                )
            if last == 0:
                db.execute(insert(table).values(name=run, fence=fence))
            else:
                db.execute(update(table).where(table.c.name == run).values(fence=fence))
            history.append(db, "run-opened", {"run": run, "fence": fence} | ({} if given is None else {"given": True}))
        self._fences[run] = fence
        return fence

    def found(self, txid: str, artefact: bytes, consents: Mapping[str, str], absent: Collection[str] = ()) -> None:
        """Commit a charge that an earlier process of the run reserved, and whose bytes its silos still hold.

        Their own ledgers permitted the noise; nothing is drawn, and no reservation is made. Before `forfeit_open`.

        Args:
            txid: The charge.
            artefact: What the silos' bytes come to.
            consents: As for `commit`, and at least one.
            absent: As for `commit`.

        Raises:
            PrivacyError: It is not reserved, or not by an earlier process of a run that is open here; or as for
                `commit`.
            VerificationError: A text is no grant of this charge.
        """
        digest = hashlib.sha256(artefact).hexdigest()
        with self._store.write() as db:
            charge = reading.charge(db, txid)
            if charge is None:
                raise PrivacyError.about("found", "was never reserved", "nothing was released", txid=txid)
            self._guard(db, charge.run)
            if charge.state == "committed" and reading.digest(db, txid) == digest:
                return
            if charge.state != "reserved":
                raise PrivacyError.about("found", f"is {charge.state} already", "nothing was released", txid=txid)
            if charge.fence >= self._fences[charge.run] or not consents:
                rule = "was reserved by this process" if consents else "has no silo's consent"
                raise PrivacyError.about("found", rule, "nothing was released", txid=txid)
            # A silo that had not been asked yet grants it to this process; one that had drawn never grants it again.
            told = beside.write(db, charge, consents, absent, newest=self._fences[charge.run])
            charging.settle(db, txid, charge.run, "committed", {"sha256": digest, "found": True, **told})
            db.execute(insert(schema.outbox).values(txid=txid, sha256=digest, payload=bytes(artefact)))

    def consent(self, txid: str, account: str, text: str) -> bool:
        """Keep a grant that came after its charge was settled: its silo was absent, and charged it later.

        Args:
            txid: The charge.
            account: Whose line.
            text: The grant.

        Returns:
            Whether it is news.

        Raises:
            PrivacyError: The line waits for no grant, or has another one; or the run was taken over.
            VerificationError: The text is no grant of this charge.
        """
        with self._store.write() as db:
            charge = reading.charge(db, txid)
            if charge is None:
                raise PrivacyError.about("consent", "was never reserved", txid=txid)
            self._guard(db, charge.run)
            news = beside.late(db, charge, account, text, self._fences[charge.run])
            if news:
                history.append(db, "consented", {"txid": txid, "account": account, "consent": text})
        return news

    def require_owned(self, run: str) -> None:
        """Return only if this process is the run's newest owner: for who goes on without a charge.

        Raises:
            PrivacyError: The run was taken over.
        """
        with self._store.read() as db:
            self._guard(db, run)

    def forfeit_open(self, run: str, only: Collection[str] | None = None) -> list[str]:
        """Count every reserved, uncommitted charge of a run as spent: its noise may have been seen. Returns them.

        Args:
            run: Whose charges.
            only: The charges that are meant; left out, all.
        """
        with self._store.write() as db:
            self._guard(db, run)
            open_ = [charge.txid for charge in reading.charges(db, run) if charge.state == "reserved"]
            open_ = [txid for txid in open_ if only is None or txid in only]
            for txid in open_:
                charging.settle(db, txid, run, "forfeited", {})
        for txid in open_:
            self._open.pop(txid, None)
        return open_

    def _remembered(self, run: str) -> tuple[str, ...]:
        """The live quotas with which a run was admitted; they never change, so they are read once."""
        if run not in self._quotas:
            with self._store.read() as db:
                found = admission.quotas(db, run)
            if found is None:
                return ()
            self._quotas[run] = tuple(found)
        return self._quotas[run]

    def _guard(self, db: Connection, run: str) -> None:
        mine = self._fences.get(run)
        if mine is None:
            raise PrivacyError.about("ledger", "is not open here", "call `open_run` first", run=run)
        if reading.fence(db, run) != mine:
            raise PrivacyError.about(
                "ledger", "was taken over by a newer process; this one releases nothing more", run=run
            )
