"""Answers from a ledger, each from one consistent snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from sordino.core.types import Unit
from sordino.ledger import amounts, currencies, history, schema
from sordino.ledger.account import Account, Balance
from sordino.ledger.officers import Installed
from sordino.ledger.policy import Policy
from sordino.privacy.permits import Line

account = schema.account
charge_table, line, kind, outbox = schema.charge, schema.charge_line, schema.kind, schema.outbox

# Asked in every round, so written once: a statement takes longer to build than to run.
_FENCE = select(schema.run.c.fence).where(schema.run.c.name == bindparam("asked"))
_STATE = select(charge_table.c.state).where(charge_table.c.txid == bindparam("asked"))

TERMS = ("name", "unit", "adjacency", "epsilon", "delta", "currency", "scope", "parent", "overlap", "test", "tier")
"""Columns that are an account's terms under their own names."""


@dataclass(frozen=True)
class Charge:
    """One charge: what was paid for, and what became of it."""

    txid: str
    run: str
    round: int | None
    purpose: str
    state: str
    fence: int
    test: bool
    lines: tuple[Line, ...]


def accounts(db: Connection, names: Iterable[str] | None = None) -> dict[str, tuple[int, Account]]:
    """Accounts with their numbers, in name order."""
    query = select(account).order_by(account.c.name)
    if names is not None:
        query = query.where(account.c.name.in_(list(names)))
    return {row["name"]: (row["id"], terms(row)) for row in db.execute(query).mappings()}


def terms(row: Any) -> Account:
    """The account that a row describes."""
    return Account.of({**{name: row[name] for name in TERMS}, "order": row["rdp_order"]})


def paid_itself(db: Connection, name: str) -> bool:
    """Whether an account was ever charged by itself, and not through accounts that it contains."""
    number = select(account.c.id).where(account.c.name == name).scalar_subquery()
    admitted = select(schema.allowance.c.account_id).where(schema.allowance.c.account_id == number)
    charged = select(line.c.account_id).where(line.c.account_id == number, ~line.c.derived)
    return any(db.execute(query.limit(1)).first() is not None for query in (admitted, charged))


def installed(db: Connection) -> Installed | None:
    """The policy in force."""
    body = db.execute(select(schema.policy.c.body).order_by(schema.policy.c.version.desc()).limit(1)).scalar()
    if body is None:
        return None
    written = select(history.event.c.hash).where(history.event.c.kind == "policy")
    digest = db.execute(written.order_by(history.event.c.seq.desc()).limit(1)).scalar_one()
    return Installed(Policy.parse(body), digest)


def fence(db: Connection, run: str) -> int:
    """A run's fence; 0 if it was never opened."""
    return db.execute(_FENCE, {"asked": run}).scalar_one_or_none() or 0


def state(db: Connection, txid: str) -> str | None:
    """A charge's state."""
    return db.execute(_STATE, {"asked": txid}).scalar_one_or_none()


def digest(db: Connection, txid: str) -> str | None:
    """SHA-256 of the committed bytes."""
    return db.execute(select(outbox.c.sha256).where(outbox.c.txid == txid)).scalar_one_or_none()


def artefact(db: Connection, txid: str) -> bytes | None:
    """The committed bytes, until they are published."""
    return db.execute(select(outbox.c.payload).where(outbox.c.txid == txid)).scalar_one_or_none()


def charge(db: Connection, txid: str) -> Charge | None:
    """One charge, without its lines' detail if it has none."""
    return next(iter(_charges(db, charge_table.c.txid == txid)), None)


def consents(db: Connection, txid: str) -> dict[str, str]:
    """The grants beside a charge's lines, by account."""
    query = select(account.c.name, line.c.consent).join_from(line, account).where(line.c.txid == txid)
    return {row.name: row.consent for row in db.execute(query.where(line.c.consent.is_not(None)))}


def admitted(db: Connection, run: str) -> str | None:
    """The digest of the plan that a run was admitted with."""
    table = schema.admission
    return db.execute(select(table.c.digest).where(table.c.run == run)).scalar_one_or_none()


def charges(db: Connection, run: str) -> list[Charge]:
    """A run's charges, oldest first."""
    return _charges(db, charge_table.c.run == run)


def _charges(db: Connection, where: Any) -> list[Charge]:
    rows = db.execute(
        select(line.c.txid, account.c.name, account.c.unit, kind.c.key, line.c.count)
        .join_from(line, account)
        .join(kind)
        .join(charge_table)
        .where(where)
        .order_by(account.c.name, kind.c.key)
    )
    lines: dict[str, list[Line]] = {}
    for txid, name, unit, key, count in rows:
        lines.setdefault(txid, []).append(Line(name, Unit(unit), key, count))
    names = ("txid", "run", "round", "purpose", "state", "fence", "test")
    written = (history.event.c.txid == charge_table.c.txid) & (history.event.c.kind == "reserved")
    found = db.execute(select(charge_table).join(history.event, written).where(where).order_by(history.event.c.seq))
    return [Charge(**{n: row[n] for n in names}, lines=tuple(lines.get(row["txid"], ()))) for row in found.mappings()]


def room(db: Connection, name: str) -> int:
    """What an account has left, in whole units of its currency."""
    row = db.execute(select(account).where(account.c.name == name)).one()
    return int(row.limit_units - row.spent_units - row.held_units)


def balance(db: Connection, number: int, terms: Account) -> Balance:
    """What an account may lose, has lost and has left."""
    row = db.execute(select(account).where(account.c.id == number)).one()
    units = row.spent_units + row.held_units
    if terms.live:
        used, delta_used = currencies.epsilon(units, terms), terms.delta if units else 0.0
        left, delta_left = max(0.0, terms.epsilon - used), terms.delta - delta_used
    else:
        used, left = amounts.number(units, amounts.EPSILON), amounts.number(row.limit_units - units, amounts.EPSILON)
        delta_used = amounts.number(row.delta_spent_units, amounts.DELTA)
        delta_left = amounts.number(row.delta_limit_units - row.delta_spent_units, amounts.DELTA)
    rows = db.execute(
        select(charge_table.c.state, func.sum(line.c.count))
        .join_from(line, charge_table)
        .where(line.c.account_id == number)
        .group_by(charge_table.c.state)
    )
    counts = {state: int(count) for state, count in rows}
    return Balance(
        epsilon_limit=terms.epsilon,
        delta_limit=terms.delta,
        epsilon_used=used,
        delta_used=delta_used,
        epsilon_left=left,
        delta_left=delta_left,
        held=counts.get("reserved", 0),
        committed=counts.get("committed", 0),
        forfeited=counts.get("forfeited", 0),
        aborted=counts.get("aborted", 0),
        state=row.state,
    )
