"""`sordino query`: ask a silo's table for statistics, for a price that is shown before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.query import Answer, Figure

FILE = click.Path(path_type=Path)


@click.command("query")
@click.argument("table", type=FILE)
@click.argument("question")
@click.option("--epsilon", type=float, help="Price of the whole question, as pure differential privacy.")
@click.option("--rho", type=float, help="Or as zero-concentrated differential privacy: Gaussian noise.")
@click.option("--ledger", required=True, help="The ledger that pays: a file, or postgresql://…")
@click.option("--account", required=True, help="Whose people these are: a live account (pure, zcdp, rdp).")
@click.option(
    "--quota", "quotas", multiple=True, metavar="ACCOUNT", help="An analyst's or run's account that pays too."
)
@click.option("--answers", type=FILE, help="Folder of paid answers.  [default: the ledger's file name + .answers]")
@click.option("--again", type=int, default=0, metavar="N", help="The N-th fresh draw of a question, charged anew.")
@click.option("--price", "only_price", is_flag=True, help="Show the price; ask nothing, charge nothing.")
@as_json
def command(table: Path, question: str, *, as_json: bool, only_price: bool, **options: Any) -> None:
    """Ask TABLE, declared in a TOML file's [data.table], a QUESTION in SQL.

    Only declared columns can be asked about. Every group of declared values gets an answer, also one with no rows.
    The same question for the same price is answered once: asked again it gives the same numbers and costs nothing.

    \b
    SELECT keys and COUNT(*) COUNT(c) SUM(c) AVG(c) MEDIAN(c) QUANTILE(c, q) HISTOGRAM(c, bins)
    FROM table [WHERE = <> < <= > >= BETWEEN IN IS [NOT] NULL AND OR NOT] [GROUP BY keys]

    \b
    Examples:
      sordino query patients.toml "SELECT sex, COUNT(*), AVG(age) FROM patients GROUP BY sex" \\
        --epsilon 0.5 --ledger north.db --account north
      sordino query patients.toml "SELECT MEDIAN(age) FROM patients WHERE sex = 'female'" \\
        --epsilon 0.2 --ledger north.db --account north --price
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger import Ledger
    from sordino.query import Offer, Session, read

    offer, place = Offer(options["epsilon"], options["rho"]), options["ledger"]
    folder = options["answers"] or _beside(place)
    with Ledger(_existing(place), read_only=only_price) as ledger:
        session = Session(read(table), ledger, options["account"], answers=folder, quotas=options["quotas"])
        terms = {"epsilon": offer.epsilon, "rho": offer.rho, "again": options["again"]}
        price = session.price(question, **terms)
        if only_price:
            _show_price(price, as_json=as_json)
            return
        click.echo(f"account {price.account!r}: {price}", err=True)
        answer = session.sql(question, **terms)
    if as_json:
        from sordino.query.answers import plain

        echo_json(plain(answer))
    else:
        _show(answer)


def _show_price(price: Any, *, as_json: bool) -> None:
    from sordino.core import tables

    if as_json:
        echo_json(tables.plain(price))
    else:
        click.echo(f"account {price.account!r}: {price}")


def _show(answer: Answer) -> None:
    """One row per group (and bin), one column per statistic."""
    from rich.console import Console
    from rich.table import Table

    names = list(dict.fromkeys(figure.name for figure in answer.figures))
    binned = any(figure.bin is not None for figure in answer.figures)
    table = Table()
    for column in (*answer.by, *(["bin"] if binned else [])):
        table.add_column(column)
    for name in names:
        table.add_column(name, justify="right")
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for figure in answer.figures:
        key = (*figure.group, *([figure.bin or ""] if binned else []))
        cells.setdefault(key, {})[figure.name] = _cell(figure)
    for key, row in cells.items():
        table.add_row(*key, *(row.get(name, "") for name in names))
    console = Console()
    console.width = max(100, console.width)
    console.print(table)
    click.echo("[ ] holds the value without noise in 95 % of draws; the noise says nothing about sampling error")
    if answer.test:
        click.secho("TEST: charged to a TEST account. This is no guarantee.", fg="red", bold=True)


def _cell(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.6g} (rank off by ≤ {figure.rank_error:.3g} rows)"
    return f"{figure.value:.6g} \\[{figure.low:.6g}, {figure.high:.6g}]"


def _beside(place: str) -> Path:
    from sordino.core.errors import ConfigError

    if "://" in place:
        raise ConfigError.about("query", "is no file", "say where answers are kept with --answers", ledger="a database")
    return Path(f"{place}.answers")


def _existing(place: str) -> str:
    """A ledger with an account in it: asking a question must not make an empty one."""
    from sordino.core.errors import ConfigError

    if "://" not in place and not Path(place).is_file():
        raise ConfigError.about("query", "is not there", "open an account in it first", ledger=place)
    return place
