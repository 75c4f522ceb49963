"""Accounts and who may change them: anybody who holds the file, or officers by signed orders once a policy is in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import blocks, currencies, history, office, officers, reading, schema, scopes
from sordino.ledger.account import Account
from sordino.ledger.admission import Terms
from sordino.ledger.attested import Attested
from sordino.ledger.officers import Installed, Signed
from sordino.ledger.policy import Policy

table, event = schema.account, schema.event


class Governed(Attested):
    """The part of a ledger that opens and closes accounts; see `Ledger`."""

    def install(self, policy: Policy, signatures: Mapping[str, str]) -> None:
        """Put a policy in force. Installing the present one again changes nothing.

        Args:
            policy: Version 1, or the one that follows the present version.
            signatures: Under `policy.message`, by officer.

        Raises:
            PrivacyError: It is not the next version, or too few officers of the version before signed it.
            VerificationError: A signature is not its officer's.
        """
        with self._store.write() as db:
            present = reading.installed(db)
            if present is not None and present.policy == policy:
                return
            signers = office.may_install(present, policy, signatures)
            told = {name: signatures[name] for name in signers}
            db.execute(insert(schema.policy).values(**office.stored(policy, signers, told)))
            history.append(db, "policy", {"policy": policy.plain(), "signatures": told})

    def policy(self) -> Installed | None:
        """The policy in force."""
        with self._store.read() as db:
            return reading.installed(db)

    def open_account(self, account: Account, order: Signed | None = None) -> None:
        """Open an account; opening it again with the same terms changes nothing.

        Args:
            account: Its terms.
            order: Under a policy: signed by those who may `open`, with `account.terms()`.

        Raises:
            PrivacyError: It is open with other terms: a limit that can be raised is no limit. Or the order is missing.
        """
        self.open_accounts([account], [] if order is None else [order])

    def open_accounts(self, accounts: Iterable[Account], orders: Iterable[Signed] = ()) -> None:
        """Open many accounts in one transaction: all or none (see `open_account`)."""
        asked = [(account, currencies.limits(account)) for account in accounts]
        signed = {order.order.account: order for order in orders}
        with self._store.write() as db:
            known = {name: terms for name, (_, terms) in reading.accounts(db).items()}
            held, present = blocks.among(known), reading.installed(db)
            for account, limits in asked:
                if known.get(account.name, account) != account:
                    raise PrivacyError.about(
                        "ledger", "is open with other terms", "they never change", account=account.name
                    )
                if account.name not in known:
                    scopes.check(account, known)
                    blocks.check(account, known, held)
                    if account.parent is not None and reading.paid_itself(db, account.parent):
                        raise PrivacyError.about(
                            f"account {account.name!r}",
                            "would not know what its people paid already, when its parent was charged by itself",
                            "open it inside of an account that was not",
                            parent=account.parent,
                        )
                    if present is not None:
                        present.policy.check_account(account)
                    elif account.tier is not None:
                        raise ConfigError.about("open", "needs a policy", "install one", tier=account.tier)
                    terms = account.terms()
                    told = _obey(db, present, signed.get(account.name), "open", account.name, terms)
                    row = {"rdp_order" if name == "order" else name: value for name, value in terms.items()}
                    version = 0 if present is None else present.policy.version
                    db.execute(insert(table).values(**row, **limits, policy=version))
                    history.append(db, "account-opened", {**terms, **limits, **told}, _name(told))
                    known[account.name] = account
                    held |= blocks.among({account.name: account})
        self._terms = {}

    def freeze(self, account: str, *, reason: str = "", order: Signed | None = None) -> None:
        """Let an account, and all that it contains, pay for nothing more until it is thawed.

        What is reserved already may still be committed: its noise may be drawn. Freezing it again changes nothing.

        Args:
            account: Its name.
            reason: Stands in the history.
            order: Under a policy: signed by those who may `freeze`, with the terms `{"reason": reason}`.

        Raises:
            PrivacyError: It is retired, or the order is missing.
        """
        self._move("freeze", account, reason, order)

    def thaw(self, account: str, *, reason: str = "", order: Signed | None = None) -> None:
        """Let a frozen account pay again (see `freeze`)."""
        self._move("thaw", account, reason, order)

    def retire(self, account: str, *, reason: str = "", order: Signed | None = None) -> None:
        """Close an account for ever (see `freeze`): its records are trained on no more. What it paid stays paid."""
        self._move("retire", account, reason, order)

    def raise_limit(self, account: str, *, epsilon: float, delta: float, order: Signed) -> None:
        """Raise what an account may lose, as a policy allows that is newer than the one its limit stands under.

        An account that was opened without a policy keeps its limit: nobody was named then who might raise it.

        Args:
            account: Its name.
            epsilon: The new limit; not below the present one.
            delta: The new limit; not below the present one.
            order: Signed by those who may `raise`, with the terms `{"epsilon": epsilon, "delta": delta}`.

        Raises:
            PrivacyError: No newer policy is in force, the account is retired, or the order does not order this.
        """
        terms = {"epsilon": float(epsilon), "delta": float(delta)}
        with self._store.write() as db:
            row, before = _account(db, account)
            present = reading.installed(db)
            after = dataclasses.replace(before, epsilon=terms["epsilon"], delta=terms["delta"])
            if after.epsilon < before.epsilon or after.delta < before.delta or after == before:
                raise ConfigError.about(
                    f"account {account!r}", f"raises nothing above {before.epsilon:g}, {before.delta:g}", **terms
                )
            _check_newer(row, present)
            told = _obey(db, present, order, "raise", account, terms)
            limits = {**terms, **currencies.limits(after)}
            version = present.policy.version if present else 0
            db.execute(update(table).where(table.c.id == row.id).values(**limits, policy=version))
            history.append(db, "limit-changed", {"account": account, **limits, **told}, _name(told))
        self._terms = {}

    def _approved(self, db: Connection, plan: Terms, approval: Signed | None) -> dict[str, Any]:
        """What the history says of a plan's approval; nothing where the policy does not ask for one."""
        present = reading.installed(db)
        if approval is None and (present is None or not present.policy.approves):
            return {}
        return _obey(db, present, approval, "approve", plan.run, {"plan": plan.digest})

    def _move(self, action: str, account: str, reason: str, order: Signed | None) -> None:
        move = next(move for move in office.MOVES if move.action == action)
        with self._store.write() as db:
            row, _ = _account(db, account)
            if row.state == move.after:
                return
            if row.state not in move.before:
                raise PrivacyError.about(f"account {account!r}", f"is {row.state}", f"nothing to {action}")
            terms = {"reason": str(reason)}
            told = _obey(db, reading.installed(db), order, action, account, terms)
            db.execute(update(table).where(table.c.id == row.id).values(state=move.after))
            history.append(db, move.kind, {"account": account, **terms, **told}, _name(told))


def _obey(
    db: Connection, present: Installed | None, order: Signed | None, action: str, account: str, terms: Mapping[str, Any]
) -> dict[str, Any]:
    """What the history says of an order that is carried out now, for the first time; nothing without a policy."""
    officers.check(present, order, action, account, terms)
    if order is None:
        return {}
    if db.execute(select(event.c.seq).where(event.c.txid == order.order.digest)).first() is not None:
        raise PrivacyError.about("order", "was carried out before", "write a new one", order=order.order.digest[:16])
    return {"signed": order.plain()}


def _name(told: Mapping[str, Any]) -> str | None:
    """The digest of the order that an event tells of: the database itself lets it stand there once."""
    return Signed.of(told["signed"]).order.digest if told else None


def _check_newer(row: Any, present: Installed | None) -> None:
    where = f"account {row.name!r}"
    if row.state == "retired":
        raise PrivacyError.about(where, "is retired", "open a new block for new records")
    if row.policy == 0:
        raise PrivacyError.about(where, "was opened without a policy, so its limit never rises", "open another account")
    if present is None or present.policy.version <= row.policy:
        raise PrivacyError.about(
            where, f"has a limit of policy {row.policy}, which a newer policy alone may raise", "install its successor"
        )


def _account(db: Connection, name: str) -> tuple[Any, Account]:
    row = db.execute(select(table).where(table.c.name == name)).one_or_none()
    if row is None:
        known = db.execute(select(table.c.name)).scalars()
        raise ConfigError.about("ledger", "is not open", checks.nearest(name, known), account=name)
    return row, reading.terms(row._mapping)  # noqa: SLF001 - SQLAlchemy's documented name
