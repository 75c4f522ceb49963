"""Accounts and who may change them: opening, for now by anybody who holds the file."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import insert

from sordino.core.errors import PrivacyError
from sordino.ledger import amounts, currencies, history, reading, schema, scopes
from sordino.ledger.account import Account
from sordino.ledger.attested import Attested


class Governed(Attested):
    """The part of a ledger that opens accounts; see `Ledger`."""

    def open_account(self, account: Account) -> None:
        """Open an account; opening it again with the same terms changes nothing.

        Raises:
            PrivacyError: It is open with other terms: a limit that can be raised is no limit.
        """
        self.open_accounts([account])

    def open_accounts(self, accounts: Iterable[Account]) -> None:
        """Open many accounts in one transaction: all or none (see `open_account`)."""
        asked = [(account, _limits(account)) for account in accounts]
        with self._store.write() as db:
            known = {name: terms for name, (_, terms) in reading.accounts(db).items()}
            for account, limits in asked:
                if known.get(account.name, account) != account:
                    raise PrivacyError.about(
                        "ledger", "is open with other terms", "they never change", account=account.name
                    )
                if account.name not in known:
                    scopes.check(account, known)
                    terms = account.terms()
                    row = {"rdp_order" if name == "order" else name: value for name, value in terms.items()}
                    db.execute(insert(schema.account).values(**row, **limits))
                    history.append(db, "account-opened", {**terms, **limits})
                    known[account.name] = account


def _limits(account: Account) -> dict[str, int]:
    where = f"account {account.name!r}"
    epsilon = amounts.limit(where, account.epsilon, amounts.EPSILON)
    return {
        "limit_units": currencies.limit(account) if account.live else epsilon,
        "delta_limit_units": amounts.limit(where, account.delta, amounts.DELTA) if account.delta else 0,
    }
