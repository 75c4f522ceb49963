"""What a ledger answers: accounts, balances, charges, claims. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from sqlalchemy import select

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import claim, consents, forecast, history, reading, schema
from sordino.ledger.account import Account, Balance
from sordino.ledger.blocks import Blocks
from sordino.ledger.claim import Claim
from sordino.ledger.forecast import Outlook
from sordino.ledger.history import Entry
from sordino.ledger.reading import Charge
from sordino.ledger.stores import Place, open_store


class Answers:
    """A ledger's file and what it tells; see `Ledger`."""

    def __init__(self, path: Place, *, read_only: bool = False, busy_s: float = 30.0) -> None:
        self._store = open_store(path, read_only=read_only, busy_s=busy_s)
        self._terms: dict[str, tuple[int, Account]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._store.close()

    def accounts(self) -> list[Account]:
        """All accounts, by name."""
        with self._store.read() as db:
            return [terms for _, terms in reading.accounts(db).values()]

    def artefact(self, txid: str) -> bytes | None:
        """The committed bytes of a charge: the same ones after any restart. None if not committed or published."""
        with self._store.read() as db:
            return reading.artefact(db, txid)

    def state(self, txid: str) -> str | None:
        """`reserved`, `committed`, `forfeited`, `aborted`, or None for a charge that does not exist."""
        with self._store.read() as db:
            return reading.state(db, txid)

    def charges(self, run: str) -> list[Charge]:
        """A run's charges, oldest first."""
        with self._store.read() as db:
            return reading.charges(db, run)

    def consents(self, txid: str) -> dict[str, str]:
        """The silos' signed grants that stand beside a charge's lines, by account."""
        with self._store.read() as db:
            return reading.consents(db, txid)

    def absent(self, txid: str) -> list[str]:
        """The accounts of a charge whose silos did not answer: charged here, with no grant unless it came later."""
        with self._store.read() as db:
            return consents.absent(db, txid)

    def admitted(self, run: str) -> str | None:
        """The digest of the plan that a run was admitted with; none if it was not."""
        with self._store.read() as db:
            return reading.admitted(db, run)

    def runs(self) -> list[str]:
        """Every run that was ever opened, by name."""
        with self._store.read() as db:
            return list(db.execute(select(schema.run.c.name).order_by(schema.run.c.name)).scalars())

    def history(self) -> list[Entry]:
        """Every event ever written, oldest first."""
        with self._store.read() as db:
            return history.entries(db)

    def balance(self, account: str) -> Balance:
        """What an account may lose, has lost and has left."""
        self._accounts([account])
        with self._store.read() as db:  # the limit may have been raised since
            return reading.balance(db, *reading.accounts(db, [account])[account])

    def outlooks(self, now: datetime | None = None) -> list[Outlook]:
        """How many more runs of the present plan fit each account, and when it is used up (see `forecast`)."""
        with self._store.read() as db:
            return forecast.outlooks(db, now)

    def blocks(self, silo: str) -> Blocks:
        """The blocks of a silo: which of them a range of records is charged to.

        Raises:
            ConfigError: It has none.
        """
        return Blocks.of(self.accounts(), silo)

    def room(self, account: str) -> int:
        """What an account has left, in whole units of 1e-12 of its currency."""
        self._accounts([account])
        with self._store.read() as db:
            return reading.room(db, account)

    def claims(self, run: str) -> list[Claim]:
        """What the run may have cost the people of each account that paid for it, by account name."""
        with self._store.read() as db:
            return claim.claims(db, run)

    def claim(self, run: str, account: str) -> Claim:
        """What the run may have cost the people of one account.

        Raises:
            PrivacyError: The account paid nothing for it.
        """
        with self._store.read() as db:
            found = claim.claims(db, run, account)
        if not found:
            raise PrivacyError.about("claim", "paid nothing for this run", account=account, run=run)
        return found[0]

    def spent(self, run: str, account: str) -> float:
        """ε of what the run has charged so far, for showing progress: never a guarantee (see `Claim`)."""
        return self.claim(run, account).spent_so_far

    def _accounts(self, names: Iterable[str]) -> dict[str, tuple[int, Account]]:
        names = list(names)
        if not self._terms.keys() >= set(names):  # terms never change, so they are read once
            with self._store.read() as db:
                self._terms = reading.accounts(db)
        for name in names:
            if name not in self._terms:
                raise ConfigError.about("ledger", "is not open", checks.nearest(name, self._terms), account=name)
        return self._terms
