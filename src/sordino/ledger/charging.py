"""Charging releases: reserve, then commit or forfeit, one set-based statement per step whatever the number of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from sqlalchemy import BigInteger, ColumnElement, Connection, Text, bindparam, func, insert, select, tuple_, update

from sordino.core.errors import PrivacyError
from sordino.ledger import currencies, history, schema, scopes
from sordino.ledger.account import Account
from sordino.ledger.admission import Known, Short, kind_ids, refuse_divided, shut
from sordino.privacy.permits import Line

account, admission, allowance = schema.account, schema.admission, schema.allowance
charge, line, kind, run_table = schema.charge, schema.charge_line, schema.kind, schema.run


@dataclass(frozen=True)
class Header:
    """What one charge is for."""

    txid: str
    run: str
    round: int | None
    purpose: str
    fence: int
    test: bool


@dataclass(frozen=True)
class Item:
    """One line with its account and what it pays if it is live. `derived` where it pays for what it contains."""

    line: Line
    account: Account
    account_id: int
    units: int | None
    derived: bool = False


def priced(item: Line, terms: Account, account_id: int) -> Item:
    """A line with what it costs. Runs outside any transaction."""
    units = currencies.units(item.key, terms, item.count) if terms.live else None
    return Item(item, terms, account_id, units)


def above(items: Sequence[Item], quotas: Sequence[str], known: Known) -> list[Item]:
    """What live accounts pay that contain those that are charged, or are quotas: for their worst person."""
    terms = {name: account for name, (_, account) in known.items()}
    leaves: dict[str, dict[str, int]] = {}
    for item in items:
        leaves.setdefault(item.account.name, {})[item.line.key] = item.line.count
    found = []
    for payer in [*scopes.payers(leaves, terms), *quotas]:
        number, account = known[payer]
        if account.live:
            for key, count in sorted(scopes.live_lines(payer, leaves, terms).items()):
                line = Line(payer, account.unit, key, count)
                found.append(Item(line, account, number, currencies.units(key, account, count), derived=True))
    return found


def reserve(
    db: Connection,
    header: Header,
    items: Sequence[Item],
    containers: Sequence[int] = (),
    consents: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the charge and hold its budget in the caller's transaction.

    Args:
        db: The transaction.
        header: What the charge is for.
        items: Who pays what.
        containers: Numbers of the accounts that contain those that pay: all of them must be open too.
        consents: Signed grants of silos, by account.

    Raises:
        PrivacyError: The charge exists already.
        ConfigError: An account that is named contains others by now.
        Short: An account cannot pay.
    """
    row = db.execute(select(charge.c.state, charge.c.run).where(charge.c.txid == header.txid)).one_or_none()
    if row is not None:
        raise repeated(header.txid, row.state)
    refuse_divided(db, [item.account.name for item in items if not item.derived])
    if closed_among(db, items, containers):
        raise Short
    kinds = kind_ids(db, {item.line.key for item in items})
    body = {"run": header.run, "round": header.round, "purpose": header.purpose, "fence": header.fence}
    ts = history.append(db, "reserved", {**body, "test": header.test, **_told(items, consents)}, header.txid)
    db.execute(insert(charge).values(**body, txid=header.txid, test=header.test, state="reserved", reserved_at=ts))
    db.execute(
        insert(line),
        [
            {
                "txid": header.txid,
                "account_id": item.account_id,
                "kind_id": kinds[item.line.key],
                "count": item.line.count,
                "units": item.units,
                "derived": item.derived,
                "consent": consents.get(item.account.name),
            }
            for item in items
        ],
    )
    plan_lines = sum(item.units is None for item in items)
    filters = {item.account_id for item in items if item.units is not None}
    if plan_lines and hold_allowances(db, header.txid, header.run) != plan_lines:
        raise Short
    if filters and hold_units(db, header.txid) != len(filters):
        raise Short


def closed_among(db: Connection, items: Sequence[Item], containers: Sequence[int]) -> Any:
    """An account that is frozen or retired pays for nothing more, whatever its plan allows; nor does what it holds."""
    return shut(db, {item.account_id for item in items}.union(containers))


def repeated(txid: str, state: str) -> PrivacyError:
    """A release whose draw may already have happened is never drawn twice."""
    if state == "committed":
        return PrivacyError.about(
            "reserve", "was committed", "publish the same bytes again: `artefact(txid)`", txid=txid
        )
    return PrivacyError.about(
        "reserve", f"is {state}: its noise may already be drawn", "charge a new release", txid=txid
    )


_TXID, _RUN = bindparam("charged", type_=Text), bindparam("of_run", type_=Text)
_KEPT = bindparam("kept", type_=BigInteger)


def _count() -> Any:
    mine = (line.c.txid == _TXID) & (line.c.account_id == allowance.c.account_id)
    return select(line.c.count).where(mine, line.c.kind_id == allowance.c.kind_id).scalar_subquery()


def _allowances() -> tuple[ColumnElement[bool], ...]:
    number = select(admission.c.id).where(admission.c.run == _RUN).scalar_subquery()
    lines = select(line.c.account_id, line.c.kind_id).where(line.c.txid == _TXID, line.c.units.is_(None))
    return allowance.c.admission_id == number, tuple_(allowance.c.account_id, allowance.c.kind_id).in_(lines)


def _filters() -> ColumnElement[bool]:
    return account.c.id.in_(select(line.c.account_id).where(line.c.txid == _TXID, line.c.units.is_not(None)))


def _units() -> Any:
    mine = (line.c.txid == _TXID) & (line.c.account_id == account.c.id)
    return select(func.sum(line.c.units)).where(mine).scalar_subquery()


# Written once: a statement takes longer to build than to run.
_HOLD_ALLOWANCES = (
    update(allowance)
    .where(*_allowances())
    .where(allowance.c.held + allowance.c.spent + _count() <= allowance.c.allowed)
    .values(held=allowance.c.held + _count())
)
_HOLD_UNITS = (
    update(account)
    .where(_filters())
    .where(account.c.spent_units + account.c.held_units + _units() <= account.c.limit_units)
    .values(held_units=account.c.held_units + _units())
)
_SETTLE_ALLOWANCES = (
    update(allowance)
    .where(*_allowances())
    .values(held=allowance.c.held - _count(), spent=allowance.c.spent + _KEPT * _count())
)
_SETTLE_UNITS = (
    update(account)
    .where(_filters())
    .values(held_units=account.c.held_units - _units(), spent_units=account.c.spent_units + _KEPT * _units())
)


def hold_allowances(db: Connection, txid: str, run: str) -> int:
    """Hold what a frozen plan allows; a row moves only if its allowance still covers it. Returns how many moved."""
    return int(db.execute(_HOLD_ALLOWANCES, {"charged": txid, "of_run": run}).rowcount)


def hold_units(db: Connection, txid: str) -> int:
    """Hold units of live accounts; one moves only if its limit still covers them. Returns how many moved."""
    return int(db.execute(_HOLD_UNITS, {"charged": txid}).rowcount)


def settle(
    db: Connection, txid: str, run: str, state: Literal["committed", "forfeited", "aborted"], body: dict[str, Any]
) -> str:
    """Turn what a charge holds into what is spent, or give it back if it was aborted. Returns the time."""
    kept = 0 if state == "aborted" else 1
    ts = history.append(db, state, body, txid)
    db.execute(_SETTLE_ALLOWANCES, {"charged": txid, "of_run": run, "kept": kept})
    db.execute(_SETTLE_UNITS, {"charged": txid, "kept": kept})
    moved = db.execute(
        update(charge).where(charge.c.txid == txid, charge.c.state == "reserved").values(state=state, settled_at=ts)
    )
    if moved.rowcount != 1:
        raise PrivacyError.about("ledger", "is not reserved", txid=txid)
    return ts


def _told(items: Sequence[Item], consents: Mapping[str, str]) -> dict[str, Any]:
    """The lines as the history tells them: those that were named, those of accounts that contain them, and grants."""
    told: dict[str, Any] = {"lines": _grouped([item for item in items if not item.derived])}
    derived = _grouped([item for item in items if item.derived])
    return told | ({"above": derived} if derived else {}) | ({"consents": dict(consents)} if consents else {})


def _grouped(items: Sequence[Item]) -> list[list[Any]]:
    """Accounts charged alike stand together, so that a thousand silos are one line of the history."""
    groups: dict[tuple[str, int, int | None], list[str]] = {}
    for item in items:
        groups.setdefault((item.line.key, item.line.count, item.units), []).append(item.account.name)
    return [[*terms, names] for terms, names in groups.items()]
