"""The ledger's verbs that change accounts: open, raise, freeze, thaw, retire; orders and policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sordino.cli._ledger_places import (
    F,
    is_there,
    ledger_argument,
    opened,
    order_option,
    ordered,
    tell_account,
    text_of,
    write_new,
)
from sordino.cli._ledger_policy import policy
from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.ledger import Account
    from sordino.ledger.officers import Installed

ACTIONS = ("open", "raise", "freeze", "thaw", "retire", "approve")


def _terms(function: F) -> F:
    """The terms of an account."""
    for option in reversed(
        (
            click.option("--epsilon", type=float, help="What it may lose in all."),
            click.option("--delta", type=float, help="What it may lose in all; 0 for a pure budget."),
            click.option("--tier", help="This tier of the policy bounds each plan; gives epsilon and delta."),
            click.option(
                "--scope", default="silo", show_default=True, help="Or federation, domain, block, run, analyst."
            ),
            click.option("--parent", help="The account that contains it."),
            click.option("--overlap", type=int, help="In at most how many of those it contains one unit is."),
            click.option("--currency", default="plan", show_default=True, help="plan, rdp, gdp, zcdp or pure."),
            click.option("--alpha", type=float, help="The Rényi order of an rdp account."),
            click.option("--unit", default="record", show_default=True, help="record, user or client."),
            click.option("--adjacency", default="add_remove", show_default=True, help="Or replace_one, zero_out."),
            click.option("--test", is_flag=True, help="For simulation: no guarantee."),
        )
    ):
        function = option(function)
    return function


def _account(present: Installed | None, name: str, terms: dict[str, Any]) -> Account:
    from sordino.core.checks import one_of
    from sordino.core.errors import ConfigError
    from sordino.core.types import Adjacency, Unit
    from sordino.ledger import Account

    terms = dict(terms)
    tier, alpha = terms["tier"], terms.pop("alpha")
    if tier is not None:
        if present is None:
            raise ConfigError.about("open", "needs a policy", "install one, or give epsilon and delta", tier=tier)
        found = present.policy.tier(tier)
        terms["epsilon"], terms["delta"] = terms["epsilon"] or found.epsilon, terms["delta"] or found.delta
    if terms["epsilon"] is None or (terms["delta"] is None and terms["currency"] != "pure"):
        raise ConfigError.about("open", "needs --epsilon and --delta", "or a --tier, or a signed --order", account=name)
    terms["delta"] = terms["delta"] or 0.0
    unit, adjacency = str(terms.pop("unit")), str(terms.pop("adjacency"))
    one_of("open", map(str, Unit), unit=unit)
    one_of("open", map(str, Adjacency), adjacency=adjacency)
    account = Account(name, Unit(unit), Adjacency(adjacency), order=alpha, **terms)
    return account if present is None else present.policy.completed(account)


@click.command("open")
@ledger_argument
@click.argument("name")
@_terms
@order_option
@as_json
def open_(path: str, name: str, *, order: Path | None, as_json: bool, **terms: Any) -> None:
    """Open an account; a ledger that is not there is made. Opening it again with the same terms changes nothing.

    \b
    Examples:
      sordino ledger open books.db north --epsilon 8 --delta 1e-5
      sordino ledger open books.db PHI --scope domain --epsilon 8 --delta 1e-5 --overlap 1
      sordino ledger open books.db "north/admitted[..,2026-01-01)" --scope block --epsilon 4 --delta 1e-5
      sordino ledger open books.db south --order open-south.json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger import Account

    signed = ordered(order, "open", name)
    present = None
    if is_there(path):
        with opened(path) as ledger:
            present = ledger.policy()
    account = Account.of(signed.order.terms) if signed else _account(present, name, terms)
    with opened(path, write=True, make=True) as ledger:  # made only now that the account makes sense
        ledger.open_account(account, signed)
        tell_account(ledger, name, "opened", as_json=as_json)


@click.command("raise")
@ledger_argument
@click.argument("name")
@order_option
@as_json
def raise_(path: str, name: str, *, order: Path | None, as_json: bool) -> None:
    """Raise an account's limit: by signed order, under a policy newer than the one the limit stands under.

    \b
    Examples:
      sordino ledger order books.db raise north --epsilon 10 --delta 1e-5 --key ann.key --out raise.json
      sordino ledger raise books.db north --order raise.json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.core.errors import PrivacyError

    signed = ordered(order, "raise", name)
    if signed is None:
        raise PrivacyError.about("raise", "needs --order", "a limit that anybody can raise is no limit", account=name)
    with opened(path, write=True) as ledger:
        limits = {key: float(signed.order.terms[key]) for key in ("epsilon", "delta") if key in signed.order.terms}
        ledger.raise_limit(name, epsilon=limits.get("epsilon", 0.0), delta=limits.get("delta", 0.0), order=signed)
        tell_account(ledger, name, "raised", as_json=as_json)


def _mover(action: str, done: str, help_: str) -> click.Command:
    @click.command(action, help=help_)
    @ledger_argument
    @click.argument("name")
    @click.option("--reason", default="", help="Stands in the history.")
    @order_option
    @as_json
    def move(path: str, name: str, *, reason: str, order: Path | None, as_json: bool) -> None:
        signed = ordered(order, action, name)
        told = reason if signed is None else str(signed.order.terms.get("reason", ""))
        with opened(path, write=True) as ledger:
            change: Callable[..., None] = getattr(ledger, action)
            change(name, reason=told, order=signed)
            tell_account(ledger, name, done, as_json=as_json)

    return move


def _help(text: str, action: str) -> str:
    return (
        f"{text}\n\n\b\nExamples:\n  sordino ledger {action} books.db north --reason 'audit'\n"
        f"  sordino ledger {action} books.db north --order {action}.json"
    )


freeze = _mover("freeze", "froze", _help("Let an account, and all it contains, pay for nothing more.", "freeze"))
thaw = _mover("thaw", "thawed", _help("Let a frozen account pay again.", "thaw"))
retire = _mover("retire", "retired", _help("Close an account for ever. What it paid stays paid.", "retire"))


@click.command("order")
@ledger_argument
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("name")
@_terms
@click.option("--reason", default="", help="For freeze, thaw and retire.")
@click.option("--plan", help="For approve, whose NAME is the run: the plan's digest.")
@click.option("--key", "keys", multiple=True, type=click.Path(path_type=Path), help="Private keys that sign it now.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write.")
def order(path: str, action: str, name: str, *, keys: tuple[Path, ...], out: Path, **terms: Any) -> None:
    """Write an order for officers to sign. It holds for this ledger, under its present policy, once.

    \b
    Examples:
      sordino ledger order books.db open north --epsilon 8 --delta 1e-5 --key ann.key --out open.json
      sordino ledger sign open.json --key bob.key
      sordino ledger open books.db north --order open.json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    import json

    from sordino.core.errors import ConfigError
    from sordino.ledger.keys import SigningKey
    from sordino.ledger.officers import Order, Signed

    with opened(path) as ledger:
        present = ledger.policy()
    if present is None:
        raise ConfigError.about("order", "has no policy, so nobody needs to order", "sordino ledger policy install")
    decided = _decided(present, action, name, terms)
    signed = Signed(Order(action, name, decided, present.policy.version, present.event))
    for key in keys:
        signed = signed.sign(SigningKey.load(key))
    write_new(out, json.dumps(signed.plain(), indent=2) + "\n")
    quorum = present.policy.quorum(action)
    click.echo(f"wrote {out}: needs {quorum.need} of {', '.join(quorum.officers)}, has {len(signed.signatures)}")


def _decided(present: Installed, action: str, name: str, terms: dict[str, Any]) -> dict[str, Any]:
    from sordino.core.errors import ConfigError

    reason, plan = terms.pop("reason"), terms.pop("plan")
    if action == "open":
        return _account(present, name, terms).terms()
    if action == "raise":
        if terms["epsilon"] is None or terms["delta"] is None:
            raise ConfigError.about("order", "needs --epsilon and --delta, the new limits", account=name)
        return {"epsilon": float(terms["epsilon"]), "delta": float(terms["delta"])}
    if action == "approve":
        if not plan:
            raise ConfigError.about("order", "needs --plan, the digest that `sordino plan` prints", run=name)
        return {"plan": plan}
    return {"reason": reason}


@click.command("sign")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", required=True, type=click.Path(path_type=Path), help="The officer's private key.")
@as_json
def sign(file: Path, *, key: Path, as_json: bool) -> None:
    """Read an order, then put a signature under it.

    \b
    Examples:
      sordino ledger sign open.json --key bob.key
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    import json

    from sordino.ledger.keys import SigningKey
    from sordino.ledger.officers import Signed

    signed = Signed.parse(text_of(file, "order")).sign(SigningKey.load(key))
    file.write_text(json.dumps(signed.plain(), indent=2) + "\n", encoding="utf-8")
    if as_json:
        echo_json(signed.plain())
        return
    click.echo(
        f"{signed.order.action} {signed.order.account!r}: {json.dumps(dict(signed.order.terms), sort_keys=True)}"
    )
    click.echo(f"signed by {', '.join(sorted(signed.signatures))}")


OFFICERS = (open_, raise_, freeze, thaw, retire, order, sign, policy)
"""Verbs of `sordino ledger`, in the order of its help."""
