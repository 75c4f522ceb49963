"""`sordino list`: what can be named in an experiment file."""

from __future__ import annotations

import click

from sordino.cli.options import as_json, echo_json


@click.command("list")
@click.argument("kind", required=False)
@as_json
def command(kind: str | None, *, as_json: bool) -> None:
    """List what an experiment file can name, with a valid example of each.

    \b
    Examples:
      sordino list
      sordino list stages
      sordino list datasets --json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.core.checks import one_of
    from sordino.experiment.catalogue import catalogue

    found = catalogue()
    if kind is not None:
        one_of("list", found, kind=kind)
        found = {kind: found[kind]}
    if as_json:
        echo_json(found)
        return
    width = max(len(entry["name"]) for entries in found.values() for entry in entries)
    for name, entries in found.items():
        click.secho(name, bold=True)
        for entry in entries:
            click.echo(f"  {entry['name']:<{width}} {entry['summary']}")
            if kind is not None:
                click.echo(f"  {'':<{width}} e.g. {entry['toml']}")
