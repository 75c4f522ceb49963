"""The ledger: may this be released, and how much was lost so far? It charges before anything is drawn.

open_account ─ admit(plan) ─ open_run ─► reserve ─► [noise is drawn] ─► commit(bytes) ─► artefact ─► published
                                            │                             │
                                            └── crash: forfeit_open ──────┘ held counts as spent, nothing is redrawn
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from sqlalchemy import Connection, insert, select, update

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import (
    admission,
    charging,
    history,
    reading,
    refusals,
    schema,
    scopes,
    shortfall,
    tiers,
)
from sordino.ledger import consents as beside
from sordino.ledger.owned import Owned
from sordino.privacy.permits import Line, Reservation, mint_reservation

NOBODY: Mapping[str, str] = MappingProxyType({})


class Ledger(Owned):
    """Accounts and what was charged to them, in one durable file.

    One object belongs to one process. A run's charges are written by the object that opened it last: `open_run`
    raises the run's fence, and whoever holds an older one is refused.

    Args:
        path: The file, or `postgresql://user@host/database`; made if nothing is there, unless `read_only`.
        read_only: Answer questions only.
        busy_s: How long to wait for another process's transaction, in seconds.
        key: Of the ledger's owner, if checkpoints are to be signed. One key's name signs for one ledger.
        checkpoint_every: After how many events, at most 100; besides, with every publication and claim.

    Raises:
        PrivacyError: The file cannot be used; every method raises it too, and then nothing was released.
        VerificationError: From any method, with a key: the history is not the one that was signed last.
    """

    def reserve(
        self,
        txid: str,
        run: str,
        round: int | None,  # noqa: A002 - the glossary's word
        purpose: str,
        lines: Sequence[Line],
        quotas: Sequence[str] = (),
        consents: Mapping[str, str] | None = None,
    ) -> Reservation:
        """Charge releases, durably, before their noise is drawn: every account or none.

        Args:
            txid: The charge's identity, e.g. `transaction(…)`. It is charged and drawn once in a ledger's life.
            run: An open run.
            round: Its number, if the release belongs to one.
            purpose: One of `schema.PURPOSES`.
            lines: Which accounts pay for how many releases of which event. Live accounts that contain them pay too.
            quotas: Live accounts of a run or an analyst that pay too, beside those that the plan was admitted with.
            consents: Signed grants of the silos whose own ledgers charge the same, by account; kept with the lines.

        Raises:
            BudgetRefused: An account does not cover its lines; nothing was written.
            PrivacyError: The charge exists already, the unit is not the account's, the run was taken over. Or an
                account's tier, or the age of its records, forbids it.
        """
        quotas = sorted({*quotas, *self._remembered(run)})
        items = self._items(txid, lines, quotas)
        for quota in quotas:
            if not self._terms[quota][1].live:
                raise ConfigError.about("reserve", "pays whole plans", "name it where they are admitted", account=quota)
        checks.one_of("reserve", schema.PURPOSES, purpose=purpose)
        test = items[0].account.test
        if any(item.account.test != test for item in items):
            raise PrivacyError.about("reserve", "mixes test accounts with real ones", "charge them apart", txid=txid)
        terms = {name: account for name, (_, account) in self._terms.items()}
        above = [self._terms[name][0] for name in scopes.payers({line.account for line in lines}, terms)]
        consents = dict(consents or {})
        for name in consents:
            checks.one_of("reserve", [line.account for line in lines], consents=name)
        header = charging.Header(txid, run, round, purpose, self._fences.get(run, 0), test)
        try:
            with self._store.write() as db:
                self._guard(db, run)
                _allowed(db, items, round)
                charging.reserve(db, header, items, above, consents)
        except admission.Short:
            with self._store.read() as db:
                refusal = shortfall.refusal(db, header, items, above)
            refusals.note(self._store, run, "reserve", refusal)
            raise refusal.error from None
        reservation = mint_reservation(txid, [item.line for item in items if not item.derived], test=test)
        self._open[txid] = (run, reservation)
        return reservation

    def commit(
        self,
        reservation: Reservation,
        artefact: bytes,
        consents: Mapping[str, str] = NOBODY,
        absent: Collection[str] = (),
    ) -> None:
        """Settle a charge together with the bytes that it releases; only then may they leave.

        Committing the same bytes again changes nothing.

        Args:
            reservation: The charge.
            artefact: The bytes.
            consents: Signed grants of silos that were asked after it was reserved, by account.
            absent: Accounts whose silos did not answer; they are charged all the same.

        Raises:
            PrivacyError: The charge is not this ledger's, was forfeited, or was committed with other bytes. Or a
                line has another grant already, or neither a grant nor a silo that is absent.
            VerificationError: A text is no grant of this charge.
        """
        txid, digest = reservation.txid, hashlib.sha256(artefact).hexdigest()
        with self._store.write() as db:
            if self._settle(db, reservation, digest, consents, absent):
                db.execute(insert(schema.outbox).values(txid=txid, sha256=digest, payload=bytes(artefact)))

    def hand_over(self, reservation: Reservation, digest: str) -> None:
        """As `commit` and `published` at once, where somebody else keeps the bytes: a coordinator, for its silo.

        Args:
            reservation: The charge.
            digest: SHA-256 of the bytes, in hexadecimal.

        Raises:
            PrivacyError: As for `commit`; then they must not leave.
        """
        txid = reservation.txid
        with self._store.write() as db:
            if self._settle(db, reservation, digest):
                ts = history.append(db, "published", {"sha256": digest}, txid)
                db.execute(insert(schema.outbox).values(txid=txid, sha256=digest, published_at=ts))
        self._open.pop(txid, None)

    def _settle(
        self,
        db: Connection,
        reservation: Reservation,
        digest: str,
        consents: Mapping[str, str] = NOBODY,
        absent: Collection[str] = (),
    ) -> bool:
        """Turn a reservation into what is spent; whether it is news."""
        txid = reservation.txid
        run, held = self._open.get(txid, ("", None))
        if held is not reservation:
            raise PrivacyError.about(
                "commit", "was not reserved by this ledger object", "nothing was released", txid=txid
            )
        self._guard(db, run)
        state = reading.state(db, txid)
        if state == "committed" and reading.digest(db, txid) == digest:
            if consents.items() <= reading.consents(db, txid).items():
                return False
            raise PrivacyError.about("commit", "has other consents already", "nothing was released", txid=txid)
        if state != "reserved":
            raise PrivacyError.about("commit", f"is {state} already", "nothing was released", txid=txid)
        charge = reading.charge(db, txid) if consents or absent else None
        # Where the same owner raised its fence in between, a silo grants what it had not granted to the new one.
        told = {} if charge is None else beside.write(db, charge, consents, absent, newest=self._fences[run])
        charging.settle(db, txid, run, "committed", {"sha256": digest, **told})
        return True

    def published(self, txid: str) -> None:
        """Note that the bytes have left, and drop them; their digest stays. Saying so again changes nothing.

        Raises:
            PrivacyError: They were not committed.
        """
        table = schema.outbox
        with self._store.write() as db:
            charge = reading.charge(db, txid)
            if charge is None or charge.state != "committed":
                raise PrivacyError.about("published", "is not committed", "commit it before it leaves", txid=txid)
            self._guard(db, charge.run)
            waiting = (table.c.txid == txid) & table.c.published_at.is_(None)
            if db.execute(select(table.c.txid).where(waiting)).one_or_none() is not None:
                ts = history.append(db, "published", {"sha256": reading.digest(db, txid)}, txid)
                db.execute(update(table).where(waiting).values(published_at=ts, payload=None))
        self._open.pop(txid, None)

    def abort(self, reservation: Reservation) -> None:
        """Give back what a charge holds: nothing was drawn under it, and nothing will be.

        Raises:
            PrivacyError: A permit was taken from it, so noise may have been drawn: it counts as spent. Or it is not
                this ledger's, or is settled.
        """
        txid = reservation.txid
        run, held = self._open.get(txid, ("", None))
        if held is not reservation:
            raise PrivacyError.about("abort", "was not reserved by this ledger object", txid=txid)
        if not reservation.void():
            raise PrivacyError.about(
                "abort", "has permits that were taken, so noise may be drawn", "it stays spent", txid=txid
            )
        with self._store.write() as db:
            self._guard(db, run)
            charging.settle(db, txid, run, "aborted", {})
        self._open.pop(txid, None)

    def _items(self, txid: str, lines: Sequence[Line], quotas: Sequence[str]) -> list[charging.Item]:
        if not txid or not lines:
            raise ConfigError.about("reserve", "needs a txid and at least one line", txid=txid, lines=len(lines))
        known = self._payable({line.account for line in lines}, quotas)
        merged: dict[tuple[str, str], int] = {}
        for line in lines:
            checks.count(f"account {line.account!r}", count=line.count)
            if line.unit != known[line.account][1].unit:
                raise PrivacyError.about(
                    f"account {line.account!r}", f"protects a {known[line.account][1].unit}", unit=str(line.unit)
                )
            merged[line.account, line.key] = merged.get((line.account, line.key), 0) + int(line.count)
        items = []
        for (name, key), count in sorted(merged.items()):
            number, terms = known[name]
            items.append(charging.priced(Line(name, terms.unit, key, count), terms, number))
        return [*items, *charging.above(items, quotas, known)]


def _allowed(db: Connection, items: Sequence[charging.Item], number: int | None) -> None:
    """Refuse a release that the policy in force forbids to an account that would pay for it."""
    if not tiers.bound(item.account for item in items):
        return
    present = reading.installed(db)
    policy = None if present is None else present.policy
    for item in items:
        if item.account.live:
            tiers.check_release(policy, item.account, number=number, keys=[item.line.key])
        tiers.check_age(policy, item.account, tiers.now())


def transaction(run: str, round: int | None, purpose: str, digest: str, *part: str | int) -> str:  # noqa: A002 - as above
    """A charge's identity from what it is for: the same release has the same one after a restart.

    >>> transaction("r", 0, "train", "abc") == transaction("r", 0, "train", "abc")
    True
    """
    return hashlib.sha256(history.canonical([run, round, purpose, digest, *part]).encode()).hexdigest()
