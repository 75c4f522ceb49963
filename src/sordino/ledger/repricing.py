"""A history's prices and limits, computed again with today's accountant: nothing may have been charged too little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sordino.ledger import amounts, currencies, pricing, reading, scopes
from sordino.ledger.account import Account
from sordino.ledger.office import Body
from sordino.ledger.replay import Replay


def underpriced(replay: Replay) -> Iterator[str]:
    """Prices below, and limits above, what they must be."""
    terms = {name: reading.terms(item) for name, item in replay.accounts.items()}
    yield from _limits(replay, terms)
    yield from _plans(replay, terms)
    for line in (line for lines in replay.lines.values() for line in lines if line["units"] is not None):
        account = terms[line["account"]]
        if line["units"] < currencies.units(line["key"], account, line["count"]):
            yield f"account {account.name!r}: the charge {line['txid']} costs more than was charged"
    for txid, lines in replay.lines.items():
        yield from _above(txid, lines, terms)


def _above(txid: str, lines: Sequence[Body], terms: Mapping[str, Account]) -> Iterator[str]:
    """Live accounts that paid for others, and for less than their worst person."""
    leaves: dict[str, dict[str, int]] = {}
    paid: dict[str, int] = {}
    for line in lines:
        if line["derived"]:
            paid[line["account"]] = paid.get(line["account"], 0) + line["units"]
        else:
            leaves.setdefault(line["account"], {})[line["key"]] = line["count"]
    for name, units in paid.items():
        worst = scopes.live_lines(name, leaves, terms)
        if units < sum(currencies.units(key, terms[name], count) for key, count in worst.items()):
            yield f"account {name!r}: its worst person loses more by the charge {txid} than it paid"


def _limits(replay: Replay, terms: Mapping[str, Account]) -> Iterator[str]:
    for name, account in terms.items():
        if any(replay.accounts[name][key] > units for key, units in currencies.limits(account).items()):
            yield f"account {name!r}: its limit in units is more than its epsilon and delta"


def _plans(replay: Replay, terms: Mapping[str, Account]) -> Iterator[str]:
    plans: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for (run, name, key), item in replay.allowances.items():
        plans.setdefault(run, {}).setdefault(name, []).append((key, item["allowed"]))
    for (run, name), paid in replay.paid.items():
        leaves = {leaf: tuple(sorted(counts)) for leaf, counts in plans.get(run, {}).items()}
        delta = replay.admissions[run]["delta"]
        if paid["derived"]:
            price = scopes.plan_price(name, leaves, delta, terms).epsilon
        else:
            price = pricing.price(leaves[name], delta, terms[name].adjacency).epsilon
        if paid["epsilon_units"] < amounts.charge("verify", price, amounts.EPSILON):
            yield f"account {name!r}: the plan of run {run!r} costs epsilon={price:.6g}, less was charged"
