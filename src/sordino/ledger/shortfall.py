"""Why a release was refused, and what would fit: worked out after the transaction was undone, without its lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from sordino.core.errors import BudgetRefused
from sordino.ledger import amounts, currencies, schema
from sordino.ledger.charging import Header, Item, closed_among
from sordino.ledger.refusals import Refusal, closed

account, admission, allowance, kind = schema.account, schema.admission, schema.allowance, schema.kind


def refusal(db: Connection, header: Header, items: Sequence[Item], containers: Sequence[int] = ()) -> Refusal:
    """Why the first account, in name order, cannot pay, and what would fit."""
    row = closed_among(db, items, containers)
    if row is not None:
        return closed(row.name, row.state)
    rows = db.execute(
        select(allowance.c.account_id, kind.c.key, allowance.c.allowed, allowance.c.held, allowance.c.spent)
        .join_from(allowance, admission)
        .join(kind)
        .where(admission.c.run == header.run)
    )
    allowed = {(row.account_id, row.key): row for row in rows}
    limits = db.execute(select(account).where(account.c.currency != "plan"))
    room = {row.id: row.limit_units - row.spent_units - row.held_units for row in limits}
    for item in items:
        if item.units is None:
            lacking = _not_allowed(header.run, item, allowed)
            if lacking is not None:
                return lacking
        elif item.units > room[item.account_id]:
            return _over_filter(item, room[item.account_id])
        else:
            room[item.account_id] -= item.units
    error = BudgetRefused.about("reserve", "an account could not pay", "try again: budgets have changed")
    return Refusal(error, "", "plan")


def _not_allowed(run: str, item: Item, allowed: Mapping[tuple[int, str], Any]) -> Refusal | None:
    name, where, key = item.account.name, f"account {item.account.name!r}", item.line.key
    row = allowed.get((item.account_id, key))
    if row is None:
        if any(number == item.account_id for number, _ in allowed):
            error = BudgetRefused.about(where, "the plan has no such release", "reserve what it lists", event=key)
        else:
            error = BudgetRefused.about(where, "has admitted no plan of this run", "admit the plan first", run=run)
        return Refusal(error, name, "plan")
    left = row.allowed - row.held - row.spent
    if left >= item.line.count:
        return None
    rule = f"needs {item.line.count} releases and {left} of the plan's {row.allowed} are left"
    return Refusal(
        BudgetRefused.about(where, rule, f"{left} would fit", event=key), name, "releases", item.line.count, left
    )


def _over_filter(item: Item, room: int) -> Refusal:
    low, high = 0, item.line.count
    while high - low > 1:
        middle = (low + high) // 2
        fits = currencies.units(item.line.key, item.account, middle) <= room
        low, high = (middle, high) if fits else (low, middle)
    needs, left = (amounts.number(units, amounts.EPSILON) for units in (item.units or 0, room))
    order = f" at Rényi order {item.account.order:g}" if item.account.order is not None else ""
    error = BudgetRefused.about(
        f"account {item.account.name!r}",
        f"needs {needs:.6g} of {item.account.currency}{order} and {left:.6g} is left",
        f"{low} of {item.line.count} releases would fit",
    )
    return Refusal(error, item.account.name, "units", needs, left)
