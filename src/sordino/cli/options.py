"""Arguments that several verbs share, so that they mean and read the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def experiment_file(function: F) -> F:
    """The experiment file and `--set` overrides."""
    function = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. --set privacy.epsilon=1.0"
    )(function)
    return click.argument("file", type=click.Path(path_type=Path))(function)


def as_json(function: F) -> F:
    """`--json`: machine-readable output on stdout, nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON (documented and stable) on stdout.")(
        function
    )


def echo_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))
