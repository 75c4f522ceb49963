"""Admitting a frozen plan: every account pays for the whole plan before its first release, or none does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from sqlalchemy import Connection, insert, select, update

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import NoiseAt
from sordino.ledger import amounts, history, pricing, schema, scopes
from sordino.ledger.account import Account
from sordino.ledger.refusals import Refusal, closed

account, admission, kind = schema.account, schema.admission, schema.kind
line, allowance, quota = schema.admission_line, schema.allowance, schema.quota


Known: TypeAlias = Mapping[str, tuple[int, Account]]
"""All accounts of a ledger by name, with their numbers."""


@dataclass(frozen=True)
class Terms:
    """What a plan says of itself: whose it is, its digest, its δ, and where its noise is added."""

    run: str
    digest: str
    delta: float
    noise_at: NoiseAt


@dataclass(frozen=True)
class Request:
    """What one account is asked to pay for a plan. `counts` is empty where it pays for what it contains."""

    account: Account
    account_id: int
    counts: pricing.Counts
    epsilon: float
    accountant: str
    epsilon_units: int
    delta_units: int


def request(terms: Account, account_id: int, counts: pricing.Counts, delta: float) -> Request:
    """A plan's price for one account. Runs outside any transaction: accounting may take seconds."""
    where = f"account {terms.name!r}"
    price = pricing.price(counts, delta, terms.adjacency)
    if price.epsilon == float("inf"):
        raise BudgetRefused.about(where, f"the plan has no finite epsilon at delta={delta:g}", "add noise")
    return Request(
        account=terms,
        account_id=account_id,
        counts=counts,
        epsilon=float(price.epsilon),
        accountant=str(price.accountant),
        epsilon_units=amounts.charge(where, price.epsilon, amounts.EPSILON),
        delta_units=amounts.charge(where, delta, amounts.DELTA),
    )


def above(payer: str, plan: Mapping[str, pricing.Counts], delta: float, known: Known) -> Request:
    """What a container or quota is asked to pay for a plan: the price of its worst person."""
    number, terms = known[payer]
    where = f"account {payer!r}"
    paid = scopes.plan_price(payer, plan, delta, {name: account for name, (_, account) in known.items()})
    return Request(
        account=terms,
        account_id=number,
        counts=(),
        epsilon=float(paid.epsilon),
        accountant=paid.accountant,
        epsilon_units=amounts.charge(where, paid.epsilon, amounts.EPSILON),
        delta_units=amounts.charge(where, delta, amounts.DELTA),
    )


def earlier(db: Connection, terms: Terms, plan: Mapping[str, pricing.Counts]) -> bool:
    """Whether this very plan was admitted before.

    Raises:
        PrivacyError: The run was admitted with another plan.
    """
    row = db.execute(select(admission).where(admission.c.run == terms.run)).one_or_none()
    if row is None:
        return False
    known = Terms(row.run, row.digest, row.delta, NoiseAt(row.noise_at))
    if (known, allowed(db, terms.run)) != (terms, dict(plan)):
        raise PrivacyError.about(
            "admit", "was admitted with another plan", "a changed plan is a new run", run=terms.run, digest=row.digest
        )
    return True


def quotas(db: Connection, run: str) -> list[str] | None:
    """The live accounts that pay for every release of a run; none at all if it was not admitted."""
    number = db.execute(select(admission.c.id).where(admission.c.run == run)).scalar()
    if number is None:
        return None
    named = select(account.c.name).join_from(quota, account).where(quota.c.admission_id == number)
    return list(db.execute(named.order_by(account.c.name)).scalars())


def allowed(db: Connection, run: str) -> dict[str, pricing.Counts]:
    """Event keys and counts that a run may release, by account."""
    rows = db.execute(
        select(account.c.name, kind.c.key, allowance.c.allowed)
        .join_from(admission, allowance)
        .join(account)
        .join(kind)
        .where(admission.c.run == run)
    )
    found: dict[str, list[tuple[str, int]]] = {}
    for name, key, count in rows:
        found.setdefault(name, []).append((key, count))
    return {name: tuple(sorted(pairs)) for name, pairs in found.items()}


class Short(Exception):
    """An account cannot pay: undoes the transaction, so that the reason is worked out without holding the lock."""


def admit(
    db: Connection,
    terms: Terms,
    requests: Sequence[Request],
    told: Mapping[str, Any],
    containers: Sequence[int] = (),
    quotas: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Charge all accounts in the caller's transaction; the history tells `told` beside the plan.

    Args:
        db: The transaction.
        terms: The plan.
        requests: Who pays what.
        told: What else the history says.
        containers: Numbers of the accounts that contain those that pay: all of them must be open too.
        quotas: Live accounts with their numbers that will pay for every release of the run.

    Raises:
        Short: One of them cannot pay.
        ConfigError: One that is named contains others by now.
    """
    refuse_divided(db, [item.account.name for item in requests if item.counts])
    if shut(db, containers) is not None:
        raise Short
    plan = asdict(terms) | {"noise_at": str(terms.noise_at)}
    db.execute(insert(admission).values(**plan))
    number = db.execute(select(admission.c.id).where(admission.c.run == terms.run)).scalar_one()
    kinds = kind_ids(db, {key for item in requests for key, _ in item.counts})
    db.execute(
        insert(line),
        [
            {
                "admission_id": number,
                "account_id": item.account_id,
                "epsilon": item.epsilon,
                "accountant": item.accountant,
                "epsilon_units": item.epsilon_units,
                "delta_units": item.delta_units,
                "derived": not item.counts,
            }
            for item in requests
        ],
    )
    db.execute(
        insert(allowance),
        [
            {"admission_id": number, "account_id": item.account_id, "kind_id": kinds[key], "allowed": count}
            for item in requests
            for key, count in item.counts
        ],
    )
    if pay(db, number) != len(requests):
        raise Short
    if quotas:
        db.execute(insert(quota), [{"admission_id": number, "account_id": one} for one in quotas.values()])
    also = {"quotas": sorted(quotas)} if quotas else {}
    history.append(db, "admitted", {**plan, "lines": _grouped(requests), **also, **told})


def refuse_divided(db: Connection, named: Sequence[str]) -> None:
    """Refuse to charge accounts by themselves that contain others, as they stand in this transaction.

    Raises:
        ConfigError: One does; another process may have opened its part a moment ago.
    """
    name = db.execute(select(account.c.parent).where(account.c.parent.in_(named))).scalar()
    if name is not None:
        raise ConfigError.about("ledger", "is charged through the accounts that it contains", account=name)


def shut(db: Connection, numbers: Collection[int]) -> Any:
    """One of these accounts that is frozen or retired; None if all are open."""
    columns = select(account.c.name, account.c.state)
    return db.execute(columns.where(account.c.id.in_(numbers), account.c.state != "open")).first()


def kind_ids(db: Connection, keys: set[str]) -> dict[str, int]:
    """The number of each event key; new keys are written."""
    found = {row.key: row.id for row in db.execute(select(kind).where(kind.c.key.in_(keys)))}
    missing = sorted(keys - found.keys())
    if missing:
        db.execute(insert(kind), [{"key": key} for key in missing])
        found |= {row.key: row.id for row in db.execute(select(kind).where(kind.c.key.in_(missing)))}
    return found


def pay(db: Connection, number: int) -> int:
    """The guarded update: an account moves only if its limits hold afterwards. Returns how many moved."""
    mine = (line.c.admission_id == number) & (line.c.account_id == account.c.id)
    epsilon = select(line.c.epsilon_units).where(mine).scalar_subquery()
    delta = select(line.c.delta_units).where(mine).scalar_subquery()
    paid = db.execute(
        update(account)
        .where(account.c.id.in_(select(line.c.account_id).where(line.c.admission_id == number)))
        .where(account.c.currency == "plan", account.c.state == "open")
        .where(account.c.spent_units + account.c.held_units + epsilon <= account.c.limit_units)
        .where(account.c.delta_spent_units + delta <= account.c.delta_limit_units)
        .values(
            spent_units=account.c.spent_units + epsilon,
            delta_spent_units=account.c.delta_spent_units + delta,
        )
    )
    return int(paid.rowcount)


def refusal(db: Connection, requests: Sequence[Request], delta: float, containers: Sequence[int] = ()) -> Refusal:
    """Why the first account, in name order, cannot pay, and what would fit."""
    row = shut(db, containers)
    if row is not None:
        return closed(row.name, row.state)
    rows = {row.id: row for row in db.execute(select(account).where(account.c.currency == "plan"))}
    for item in requests:
        row, name = rows[item.account_id], item.account.name
        if row.state != "open":
            return closed(name, row.state)
        left = row.limit_units - row.spent_units - row.held_units
        delta_left = row.delta_limit_units - row.delta_spent_units
        if item.delta_units > delta_left:
            rest = amounts.number(delta_left, amounts.DELTA)
            error = BudgetRefused.about(
                f"account {name!r}",
                f"the plan needs delta={delta:g} and {rest:g} is left",
                "at this delta no number of releases would fit",
            )
            return Refusal(error, name, "delta", delta, rest)
        if item.epsilon_units > left:
            room = amounts.number(left, amounts.EPSILON)
            rule = f"the plan needs epsilon={item.epsilon:.6g} and {room:.6g} of {row.epsilon:g} is left"
            error = BudgetRefused.about(f"account {name!r}", rule, _fitting(item, delta, room))
            return Refusal(error, name, "epsilon", item.epsilon, room)
    return Refusal(
        BudgetRefused.about("admit", "an account could not pay", "try again: budgets have changed"), "", "plan"
    )


def _fitting(item: Request, delta: float, room: float) -> str:
    if not item.counts:
        return f"a plan whose worst person risks {room:.6g} would fit"
    k, n = pricing.fitting(item.counts, delta, item.account.adjacency, room)
    return f"{k} of {n} releases would fit"


def _grouped(requests: Sequence[Request]) -> list[list[Any]]:
    """Accounts that pay the same stand together, so that a thousand silos are one line."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for item in requests:
        terms = (item.epsilon, item.accountant, item.epsilon_units, item.delta_units, item.counts)
        groups.setdefault(terms, []).append(item.account.name)
    return [[*terms[:4], [list(pair) for pair in terms[4]], names] for terms, names in groups.items()]
