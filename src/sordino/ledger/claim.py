"""A claim: what a ledger says was lost. Minted by a ledger only; whatever prints a guarantee prints one of these."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import currencies, history, pricing, reading, schema
from sordino.ledger.account import Account

account, admission, allowance = schema.account, schema.admission, schema.allowance
charge_table, line, kind = schema.charge, schema.charge_line, schema.kind

_MINT = object()

VIEWS = {
    NoiseAt.SILO: "everybody outside the silo",
    NoiseAt.SUM: "whoever sees sums only",
    NoiseAt.COORDINATOR: "whoever sees released models; the coordinator is trusted",
    None: "whoever sees the releases",
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The guarantee of one run for the people of one account, with the events behind it.

    Args:
        mint: Proof that a ledger makes it.
        run: Whose releases.
        account: Whose people.
        plan: Digest of the frozen plan; none under a live filter.
        unit: Whose presence is hidden.
        adjacency: The neighbouring relation.
        noise_at: Where noise was added, hence against whom epsilon holds; not known under a live filter.
        epsilon: The guarantee: that of the whole plan, or the limit of the live filter, because when a run stopped
            may depend on what it had released. Every report prints this one.
        delta: Its failure probability.
        accountant: How epsilon was computed.
        planned: Event keys and counts that the plan was charged for; empty under a live filter.
        events: Event keys and counts as charged: reserved, committed or forfeited.
        spent_so_far: The price of `events` alone, as if exactly they had been planned. Progress, not a guarantee.
        complete: Every planned release was charged; a live filter never is.
        test: Simulation: the noise may have been predictable, so this is no guarantee at all.
        ledger_sha256: Hash over the ledger's history when the claim was made.
    """

    mint: InitVar[object]
    run: str
    account: str
    plan: str | None
    unit: Unit
    adjacency: Adjacency
    noise_at: NoiseAt | None
    epsilon: float
    delta: float
    accountant: str
    planned: tuple[tuple[str, int], ...]
    events: tuple[tuple[str, int], ...]
    spent_so_far: float
    complete: bool
    test: bool
    ledger_sha256: str

    @property
    def view(self) -> str:
        """Against whom epsilon holds."""
        return VIEWS[self.noise_at]

    def __post_init__(self, mint: object) -> None:
        if mint is not _MINT:
            raise PrivacyError.about("claim", "cannot be made by hand", "ask the ledger that charged the releases")


def claims(db: Connection, run: str, name: str | None = None) -> list[Claim]:
    """A run's claims by account name; equal lists of events are priced once."""
    only = () if name is None else (account.c.name == name,)
    charged: dict[int, list[tuple[str, int]]] = {}
    units: dict[int, int] = {}
    rows = db.execute(
        select(line.c.account_id, kind.c.key, func.sum(line.c.count), func.sum(line.c.units))
        .join_from(line, charge_table)
        .join(kind)
        .join(account)
        .where(charge_table.c.run == run, charge_table.c.state != "aborted", ~line.c.derived, *only)
        .group_by(line.c.account_id, kind.c.key)
        .order_by(kind.c.key)
    )
    for number, key, count, cost in rows:
        charged.setdefault(number, []).append((key, int(count)))
        units[number] = units.get(number, 0) + int(cost or 0)
    admitted = {
        row["account_id"]: row
        for row in db.execute(
            select(admission, schema.admission_line)
            .join_from(admission, schema.admission_line)
            .where(admission.c.run == run, ~schema.admission_line.c.derived)
        ).mappings()
    }
    planned = _planned(db, run, name)
    seal = history.last_hash(db)
    found = []
    for number, terms in reading.accounts(db, None if name is None else [name]).values():
        if number not in charged and number not in admitted:
            continue
        done = tuple(charged.get(number, ()))
        grant = admitted.get(number)
        shared = {
            "run": run,
            "account": terms.name,
            "unit": terms.unit,
            "adjacency": terms.adjacency,
            "events": done,
            "test": terms.test,
            "ledger_sha256": seal,
        }
        if terms.live or grant is None:
            made = _filter_claim(terms, units.get(number, 0), shared)
        else:
            made = _plan_claim(terms, grant, planned[number], shared)
        found.append(made)
    return found


def _planned(db: Connection, run: str, name: str | None) -> dict[int, pricing.Counts]:
    only = () if name is None else (account.c.name == name,)
    rows = db.execute(
        select(allowance.c.account_id, kind.c.key, allowance.c.allowed)
        .join_from(allowance, admission)
        .join(kind)
        .join(account)
        .where(admission.c.run == run, *only)
        .order_by(kind.c.key)
    )
    found: dict[int, pricing.Counts] = {}
    for number, key, count in rows:
        found[number] = (*found.get(number, ()), (key, int(count)))
    return found


def _plan_claim(terms: Account, grant: Any, planned: pricing.Counts, shared: dict[str, Any]) -> Claim:
    done = shared["events"]
    return Claim(
        mint=_MINT,
        plan=grant["digest"],
        noise_at=NoiseAt(grant["noise_at"]),
        epsilon=grant["epsilon"],
        delta=grant["delta"],
        accountant=grant["accountant"],
        planned=planned,
        spent_so_far=pricing.price(done, grant["delta"], terms.adjacency).epsilon if done else 0.0,
        complete=done == planned,
        **shared,
    )


def _filter_claim(terms: Account, units: int, shared: dict[str, Any]) -> Claim:
    return Claim(
        mint=_MINT,
        plan=None,
        noise_at=None,
        epsilon=terms.epsilon,
        delta=terms.delta,
        accountant=f"{terms.currency} filter" + (f", order {terms.order:g}" if terms.order is not None else ""),
        planned=(),
        spent_so_far=currencies.epsilon(units, terms),
        complete=False,
        **shared,
    )
