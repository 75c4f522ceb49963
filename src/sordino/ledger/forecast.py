"""When a budget ends: how many more runs fit, when an account is used up at its present rate.

All numbers come from what was charged, so nothing is priced again and nothing is spent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from sordino.ledger import amounts, reading, schema, tiers

account, admission, paid = schema.account, schema.admission, schema.admission_line
charge, line = schema.charge, schema.charge_line

RECENT = 10
"""The present rate is that of so many last runs."""


@dataclass(frozen=True)
class Spending:
    """What one run was charged on one account, in units of epsilon (or of its currency) and of delta."""

    run: str
    at: datetime
    units: int
    delta_units: int


@dataclass(frozen=True)
class Outlook:
    """What is to come for one account.

    Args:
        account: Its name.
        scope: Whose budget it is.
        state: Whether it pays at all.
        run: The last run that it paid for: the present plan; none if it never paid.
        runs: How many more such runs fit it and all that contain it; none if it never paid.
        by: The account that ends first: itself, or one that contains it.
        binding: What ends there: epsilon or delta of plans, units of its currency, or that it is frozen, retired or
            past its retention.
        per_day: Epsilon (or units of its currency) a day over the last runs until now; none below two runs.
        used_up: When at this rate no further such run fits the account itself; none where there is no rate.
        kept_until: When the policy's retention ends for a block's records; none where their age ends nothing.
    """

    account: str
    scope: str
    state: str
    run: str | None = None
    runs: int | None = None
    by: str | None = None
    binding: str | None = None
    per_day: float | None = None
    used_up: datetime | None = None
    kept_until: datetime | None = None


def outlooks(db: Connection, now: datetime | None = None) -> list[Outlook]:
    """The outlook of every account, by name. A live account in the middle of a run counts what that has cost so far."""
    spent, now = _spendings(db), now or datetime.now(UTC)
    rows = list(db.execute(select(account).order_by(account.c.name)).mappings())
    present = reading.installed(db)
    policy = None if present is None else present.policy
    ends = {row["name"]: tiers.kept_until(policy, reading.terms(row)) for row in rows}
    own = {row["name"]: _outlook(row, spent.get(row["id"], []), now, ends[row["name"]]) for row in rows}
    parents = {row["name"]: row["parent"] for row in rows}
    return [_held_back(name, own, parents) for name in own]


def tightest(found: Sequence[Outlook]) -> Outlook | None:
    """The account of which the fewest runs fit; None if none has paid yet."""
    return min((one for one in found if one.runs is not None), key=lambda one: one.runs or 0, default=None)


def _outlook(row: Any, spent: list[Spending], now: datetime, until: datetime | None) -> Outlook:
    name, scope, state = row["name"], row["scope"], row["state"]
    if not spent:
        return Outlook(name, scope, state, kept_until=until)
    last = spent[-1]
    room = {
        "units" if row["currency"] != "plan" else "epsilon": (
            row["limit_units"] - row["spent_units"] - row["held_units"]
        )
        // last.units
    }
    if last.delta_units:
        room["delta"] = (row["delta_limit_units"] - row["delta_spent_units"]) // last.delta_units
    if state != "open" or (until is not None and now >= until):
        room = {state if state != "open" else "retention": 0}
    ends = min(room, key=lambda what: room[what])
    rate = _rate(spent, now)
    return Outlook(
        *(name, scope, state, last.run, room[ends], name, ends),
        per_day=None if rate is None else rate / 10**amounts.EPSILON,
        used_up=None if rate is None else _later(now, room[ends] * last.units / rate),
        kept_until=until,
    )


def _held_back(name: str, own: dict[str, Outlook], parents: dict[str, str | None]) -> Outlook:
    """An account pays no more runs than those that contain it do."""
    found, above = own[name], parents[name]
    while above is not None:
        outer = own[above]
        if found.runs is not None and outer.runs is not None and outer.runs < found.runs:
            found = replace(found, runs=outer.runs, by=above, binding=outer.binding)
        above = parents[above]
    return found


def _rate(spent: list[Spending], now: datetime) -> float | None:
    """Units a day from the first of the last runs until now. What that run itself cost came before."""
    recent = spent[-RECENT:]
    days = (max(now, recent[-1].at) - recent[0].at) / timedelta(days=1)
    return sum(run.units for run in recent[1:]) / days if len(recent) > 1 and days > 0 else None


def _later(now: datetime, days: float) -> datetime | None:
    try:
        return now + timedelta(days=days)
    except OverflowError:  # after the year 9999
        return None


def _spendings(db: Connection) -> dict[int, list[Spending]]:
    """What each run was charged, by account number, oldest first."""
    told = db.execute(select(schema.event.c.body, schema.event.c.ts).where(schema.event.c.kind == "admitted"))
    times = {json.loads(body)["run"]: datetime.fromisoformat(ts) for body, ts in told}
    found: dict[int, list[Spending]] = {}
    plans = db.execute(
        select(paid.c.account_id, admission.c.run, paid.c.epsilon_units, paid.c.delta_units)
        .join_from(paid, admission)
        .order_by(admission.c.id)
    )
    for number, run, units, delta_units in plans:
        found.setdefault(number, []).append(Spending(run, times[run], units, delta_units))
    started = func.min(charge.c.reserved_at)
    live = db.execute(
        select(line.c.account_id, charge.c.run, started, func.sum(line.c.units))
        .join_from(line, charge)
        .where(line.c.units.is_not(None), charge.c.state != "aborted")
        .group_by(line.c.account_id, charge.c.run)
        .order_by(started)
    )
    for number, run, at, units in live:
        found.setdefault(number, []).append(Spending(run, datetime.fromisoformat(at), int(units), 0))
    return found
