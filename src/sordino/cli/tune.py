"""`sordino tune`: a private selection of settings, priced before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sordino.cli.options import as_json, echo_json, experiment_file


@click.command("tune")
@experiment_file
@click.option(
    "--setting",
    "settings",
    multiple=True,
    required=True,
    metavar="KEY=VALUE[;…]",
    help="What one setting changes in the file; give two or more.",
)
@click.option(
    "--mean", type=float, default=4.0, show_default=True, help="Expected number of trials; how many is secret."
)
@click.option("--shape", type=float, default=1.0, show_default=True, help="Law of it: 0 logarithmic, 1 geometric.")
@click.option("--price", "only_price", is_flag=True, help="Show the price; train nothing and charge nothing.")
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of run folders.")
@as_json
def command(
    file: Path,
    overrides: tuple[str, ...],
    *,
    settings: tuple[str, ...],
    mean: float,
    shape: float,
    only_price: bool,
    runs: Path,
    as_json: bool,
) -> None:
    """Train a secret random number of settings, keep the best by its released figures, and show no other.

    The whole selection is one charge, made before the first trial. Settings may differ in what they train with, not in
    noise, steps or batch: one price must hold for whichever is drawn. The file needs `[evaluation] release`.

    \b
    Examples:
      sordino tune heart.toml --setting local.lr=0.1 --setting local.lr=0.3 --price
      sordino tune heart.toml --setting local.lr=0.1 --setting "local.lr=0.3; local.momentum=0.5"
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.cli.run import say_if_new
    from sordino.experiment.config import read
    from sordino.experiment.population import load
    from sordino.experiment.tuning import price, select

    parts = [tuple(part.strip() for part in setting.split(";") if part.strip()) for setting in settings]
    listed = [read(file, (*overrides, *part)) for part in parts]
    population = load(listed[0])
    if only_price:
        told = price(listed, population, mean_trials=mean, shape=shape).to_plain()
        echo_json(told) if as_json else _show_price(told)
        return
    say_if_new(file, listed[0].ledger)
    found = select(listed, population, runs, mean_trials=mean, shape=shape, base=file.parent)
    if as_json:
        echo_json(found.summary)
        return
    _show_price(found.summary)
    click.secho(f"selected: {settings[found.setting]}{'' if found.fresh else ' (before)'}", bold=True)
    for name, value in _figures(found.summary["released_metrics"]):
        click.echo(f"  {name}: {value:.4g}")
    click.echo(f"  {found.folder}")


def _show_price(told: dict[str, Any]) -> None:
    test = "  TEST: no guarantee" if told.get("test") else ""
    click.secho(f"{told['name']}: a selection among {len(told['settings'])} settings{test}", bold=True)
    click.echo(
        f"  epsilon {told['epsilon']:.4g} at delta {told['delta']:.2g} for a {told['unit']}, {told['adjacency']}, "
        "against whoever sees the result alone"
    )
    click.echo(
        f"  one trial alone: epsilon {told['epsilon_of_one_trial']:.4g}; {told['mean_trials']:g} trials expected"
    )
    click.echo("  whoever takes part in training, or sees other trials, sees more: nothing here protects against them")


def _figures(released: dict[str, Any]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in released.items() if isinstance(value, float)]
