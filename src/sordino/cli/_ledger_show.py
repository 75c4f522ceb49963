"""Accounts, history and forecasts as text for people. The same numbers as `--json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sordino.ledger import Entry

WIDTH = 100
TELLING = (
    "account",
    "name",
    "run",
    "round",
    "purpose",
    "epsilon",
    "delta",
    "version",
    "reason",
    "lack",
    "needs",
    "left",
)
"""What of an event's body stands in its line."""


def show_accounts(accounts: list[dict[str, Any]]) -> None:
    """Each account with what it spent, holds and has left; containers before what they contain."""
    for account, depth in _tree(accounts):
        indent = "  " * depth
        marks = "".join(
            f"  {mark}"
            for mark, said in (("TEST", account["test"]), (account["state"].upper(), account["state"] != "open"))
            if said
        )
        click.secho(f"{indent}{account['name']}{marks}", bold=True)
        counted = "" if account["currency"] == "plan" else f", paid in {account['currency']}"
        counted += "" if account["order"] is None else f" at Rényi order {account['order']:g}"
        tier = "" if account["tier"] is None else f", tier {account['tier']}"
        click.echo(f"{indent}  {account['scope']} of {account['unit']}s, {account['adjacency']}{counted}{tier}")
        click.echo(
            f"{indent}  epsilon {account['epsilon_used']:.4g} of {account['epsilon_limit']:.4g} used, "
            f"{account['epsilon_left']:.4g} left; delta {account['delta_used']:.3g} of {account['delta_limit']:.3g}"
        )
        click.echo(
            f"{indent}  releases: {account['committed']} committed, {account['held']} held, "
            f"{account['forfeited']} forfeited, {account['aborted']} aborted"
        )
        if account["kept_until"] is not None:
            click.echo(f"{indent}  read until {account['kept_until'][:10]}, by the policy's retention")
        if account["runs_left"] is not None:
            click.echo(f"{indent}  {_room(account)}")


def _room(account: dict[str, Any]) -> str:
    by = "" if account["held_back_by"] == account["name"] else f" of account {account['held_back_by']!r}"
    runs = account["runs_left"]
    return (
        f"{runs} more run{'' if runs == 1 else 's'} like {account['present_plan']!r} fit, by {account['binding']}{by}"
    )


def _tree(accounts: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Depth first, by name."""
    below: dict[str | None, list[dict[str, Any]]] = {}
    for account in accounts:
        below.setdefault(account["parent"], []).append(account)
    found: list[tuple[dict[str, Any], int]] = []
    waiting = [(account, 0) for account in reversed(below.get(None, []))]
    while waiting:
        account, depth = waiting.pop()
        found.append((account, depth))
        waiting += [(inner, depth + 1) for inner in reversed(below.get(account["name"], []))]
    return found


def show_claims(claims: list[dict[str, Any]]) -> None:
    """The guarantees of every run."""
    for claim in claims:
        click.echo(
            f"run {claim['run']}: account {claim['account']}: epsilon {claim['epsilon']:.4g} "
            f"at delta {claim['delta']:.3g} per {claim['unit']}, {claim['adjacency']}, against {claim['view']}"
            + (" TEST" if claim["test"] else "")
            + ("" if claim["complete"] else " (whole plan; not all of it has run)")
        )


def show_event(entry: Entry) -> None:
    """One event in one line."""
    signed = entry.body.get("signed", {}).get("signatures") or entry.body.get("signatures", {})
    by = f"  signed by {', '.join(sorted(signed))}" if isinstance(signed, dict) and signed else ""
    body = {**entry.body, **entry.body.get("policy", {})} if entry.kind == "policy" else entry.body
    told = ", ".join(f"{key} {_short(body[key])}" for key in TELLING if body.get(key) not in (None, ""))
    told = told or _short(entry.txid or "")
    click.echo(f"{entry.seq:>6}  {entry.ts[:19]}  {entry.kind:<14}  {told}{by}")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def show_outlooks(outlooks: list[dict[str, Any]]) -> None:
    """How many more runs fit each account, and when it is used up."""
    for one in outlooks:
        kept = "" if one["kept_until"] is None else f"; read until {one['kept_until'][:10]}"
        if one["runs"] is None:
            click.echo(f"{one['account']}: has paid nothing yet{kept}")
            continue
        by = "" if one["by"] == one["account"] else f" of {one['by']}"
        click.echo(
            f"{one['account']}: {one['runs']} more like {one['run']!r}, by {one['binding']}{by}; "
            + (
                "no rate yet"
                if one["used_up"] is None
                else f"{one['per_day']:.3g} a day, used up {one['used_up'][:10]}"
            )
            + kept
        )


def show_continual(plan: dict[str, Any]) -> None:
    """What each future run would charge."""
    for step in plan["steps"]:
        for name in step["opened"]:
            click.echo(f"  open {name}")
        click.echo(f"run {step['run']} at {step['at']}: charges {', '.join(step['charges']) or 'nothing'}")
        for name in step["exhausted"]:
            click.secho(f"  exhausted: {name}", fg="yellow")
    click.echo(
        f"at most {plan['most']} runs read one block; a run may cost epsilon {plan['affordable']:.4g} "
        "for ever if every new block has the limit that was given"
    )


def show_policy(policy: dict[str, Any]) -> None:
    """A policy in force."""
    click.secho(f"{policy['name']}, version {policy['version']}", bold=True)
    click.echo(f"  sha256 {policy['sha256']}")
    click.echo(f"  officers: {', '.join(sorted(policy['officers']))}")
    for action, quorum in policy["may"].items():
        click.echo(f"  {action}: {quorum['need']} of {', '.join(quorum['officers'])}")
    people = policy.get("silos_per_person")
    click.echo(f"  a person is in {'an unknown number of' if people is None else f'at most {people}'} silos")
    for name, tier in policy["tiers"].items():
        search = "may search" if tier["may_search"] else "no search"
        click.echo(
            f"  tier {name}: epsilon {tier['epsilon']:g}, delta {tier['delta']:g}, {tier['rounds']} rounds, {search}"
        )
    if policy.get("retention_days") is not None:
        click.echo(f"  a block's records are read for {policy['retention_days']} days after its end")
