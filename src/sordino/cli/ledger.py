"""`sordino ledger`: accounts, who may change them, what is left, and proof that the books agree with themselves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from sordino.cli._ledger_evidence import EVIDENCE
from sordino.cli._ledger_officers import OFFICERS
from sordino.cli._ledger_places import ledger_argument, opened, place
from sordino.cli.options import as_json, echo_json


@click.group("ledger")
def command() -> None:
    """Accounts of a ledger: a file, a run folder, or a PostgreSQL URL.

    \b
    Examples:
      sordino ledger show runs/heart-1a2b3c4d
      sordino ledger open books.db north --epsilon 8 --delta 1e-5
      sordino ledger verify runs/heart-1a2b3c4d/ledger.db
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("show")
@ledger_argument
@as_json
def show(path: str, *, as_json: bool) -> None:
    """What each account has spent, holds and has left, how many more runs fit, and the claims of every run.

    \b
    Examples:
      sordino ledger show runs/heart-1a2b3c4d
      sordino ledger show postgresql://ward@db.example/ledger --json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.cli._ledger_show import show_accounts, show_claims
    from sordino.experiment.statement import statement

    value = statement(place(path))
    if as_json:
        echo_json(value)
        return
    show_accounts(value["accounts"])
    show_claims(value["claims"])


@command.command("history")
@ledger_argument
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only such events, e.g. refused.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N of them.")
@as_json
def history(path: str, *, kinds: tuple[str, ...], last: int | None, as_json: bool) -> None:
    """Every event, oldest first.

    \b
    Examples:
      sordino ledger history books.db --last 20
      sordino ledger history books.db --kind refused --kind limit-changed --json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.cli._ledger_show import show_event
    from sordino.core.checks import one_of
    from sordino.ledger.schema import KINDS

    for kind in kinds:
        one_of("history", KINDS, kind=kind)
    with opened(path) as ledger:
        entries = [entry for entry in ledger.history() if not kinds or entry.kind in kinds]
    entries = entries[-last:] if last else entries
    if as_json:
        echo_json([asdict(entry) for entry in entries])
        return
    for entry in entries:
        show_event(entry)


@command.command("forecast")
@ledger_argument
@click.option("--silo", help="Plan continual training on the blocks of this silo.")
@click.option("--window", type=float, help="How far back a run reads; days where blocks are of times.")
@click.option("--every", type=float, help="How long after the run before; the same.")
@click.option("--runs", default=12, show_default=True, type=click.IntRange(min=1), help="How many runs to look ahead.")
@click.option("--price", type=float, help="Epsilon that one run costs a block.")
@click.option("--delta", type=float, help="Delta that one run costs a block.")
@as_json
def forecast(path: str, *, silo: str | None, as_json: bool, **options: Any) -> None:
    """How many more runs of the present plan fit, and when an account is used up at its present rate.

    With --silo: which blocks each future run would charge, and when a block is exhausted. New blocks are as long as
    the last one and have its limit.

    \b
    Examples:
      sordino ledger forecast books.db
      sordino ledger forecast books.db --silo north --window 180 --every 30 --price 0.5 --delta 1e-6
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.cli import _ledger_show as text

    with opened(path) as ledger:
        if silo is None:
            outlooks = [asdict(one) for one in ledger.outlooks()]
            for one in outlooks:
                for when in ("used_up", "kept_until"):
                    one[when] = None if one[when] is None else one[when].isoformat(timespec="seconds")
            echo_json(outlooks) if as_json else text.show_outlooks(outlooks)
            return
        plan = _continual(ledger, silo, **options)
    echo_json(plan) if as_json else text.show_continual(plan)


def _continual(ledger: Any, silo: str, **options: Any) -> dict[str, Any]:
    from sordino.core.errors import ConfigError
    from sordino.ledger.continual import Budget, continual

    for name in ("window", "every", "price", "delta"):
        if options[name] is None:
            raise ConfigError.about("forecast", f"needs --{name}", "see `sordino ledger forecast --help`", silo=silo)
    blocks = ledger.blocks(silo)
    names = [window.name for window in blocks.windows]
    balances = {name: ledger.balance(name) for name in names}
    last = balances[names[-1]]
    found = continual(
        blocks,
        price=Budget.price(options["price"], options["delta"]),
        fresh=Budget.limit(last.epsilon_limit, last.delta_limit),
        left={
            name: Budget.limit(balance.epsilon_left, balance.delta_left) if balance.state == "open" else Budget(0, 0)
            for name, balance in balances.items()
        },
        window=options["window"],
        every=options["every"],
        runs=options["runs"],
    )
    return asdict(found)


for verb in (*OFFICERS, *EVIDENCE):
    command.add_command(verb)
