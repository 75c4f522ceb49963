"""`sordino plan`: price an experiment before anything is trained, and sign what was priced."""

from __future__ import annotations

from pathlib import Path

import click

from sordino.cli._approve import approve
from sordino.cli._or_verb import OrVerb
from sordino.cli.options import as_json, echo_json, experiment_file


@click.group("plan", cls=OrVerb, instead="price", subcommand_metavar="FILE | approve FILE")
def command() -> None:
    """Price an experiment: noise, guarantee, attack bounds, composition, signal-to-noise.

    Trains nothing and releases nothing; what it prints depends on the number of records per client and on their
    shape only. Whatever is left out of epsilon, noise multiplier, rounds ("fit") and local batch ("fit") is found.

    \b
    Examples:
      sordino plan examples/heart.toml
      sordino plan examples/heart.toml --set privacy.epsilon=1.0 --json
      sordino plan approve examples/heart.toml --key officer.pem
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("price", hidden=True)
@experiment_file
@as_json
@click.option("--force", is_flag=True, help="Show the plan even when its noise drowns what a run could learn.")
def price(file: Path, overrides: tuple[str, ...], *, as_json: bool, force: bool) -> None:
    """Price an experiment.

    \b
    Examples:
      sordino plan examples/heart.toml
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.cli.show import show_plan
    from sordino.experiment.config import read
    from sordino.experiment.plan import make_plan
    from sordino.experiment.population import load, require_public
    from sordino.experiment.render import plan_json

    experiment = read(file, overrides)
    population = load(experiment)
    if experiment.compare is not None:
        require_public(population)
    plan = make_plan(experiment, population, check_learning=not force)
    if as_json:
        echo_json(plan_json(plan))
    else:
        show_plan(plan_json(plan))


command.add_command(approve)
