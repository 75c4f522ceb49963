"""`sordino run`: plan, then train here, with every release charged first."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sordino.cli.options import as_json, echo_json, experiment_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sordino.experiment.config import Experiment
    from sordino.experiment.plan import Plan
    from sordino.experiment.progress import Progress
    from sordino.experiment.remote.federation import Federation


@click.command("run")
@experiment_file
@as_json
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of run folders.")
@click.option("--no-compare", is_flag=True, help="Leave out the table that [compare] asks for.")
@click.option(
    "--engine",
    type=click.Choice(["inprocess", "flower"]),
    default="inprocess",
    show_default=True,
    help="Where clients run.",
)
@click.option(
    "--federation", "machines", type=click.Path(path_type=Path), help="With --engine flower: the coordinator's folder."
)
@click.option("--min-silos", default=1, show_default=True, help="With fewer updates in a round, the run stops.")
@click.option("--timeout", default=3600.0, show_default=True, help="How long a round waits for a silo, in seconds.")
def command(  # noqa: PLR0913 - options of a verb
    file: Path,
    overrides: tuple[str, ...],
    *,
    as_json: bool,
    runs: Path,
    no_compare: bool,
    engine: str,
    machines: Path | None,
    min_silos: int,
    timeout: float,
) -> None:
    """Run an experiment, with its clients in this process or on the machines of a federation.

    The plan's digest names the run folder: the same command after a crash goes on from the last finished round and
    never draws a second sample for a release; after the end it only shows the result. A release that the ledger
    cannot pay for does not happen (exit code 3).

    With `--engine flower` the silos of a federation take part (see `sordino deploy`): each checks the plan by its own
    rules, charges its own ledger, and sends what it released.

    \b
    Examples:
      sordino run examples/heart.toml
      sordino run examples/heart.toml --engine flower --federation fed/coordinator
      sordino run examples/heart.toml --set privacy.epsilon=1.0 --no-compare --json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.cli.show import show_comparison, show_head, show_result
    from sordino.experiment.compare import kept_comparison
    from sordino.experiment.config import read
    from sordino.experiment.folder import RunFolder
    from sordino.experiment.plan import make_plan
    from sordino.experiment.population import load, require_public
    from sordino.experiment.render import plan_json
    from sordino.experiment.run import run

    if (engine == "flower") != (machines is not None):
        raise click.UsageError("--engine flower and --federation FOLDER go together.")
    experiment = read(file, overrides)
    population = load(experiment)
    wanted = experiment.compare if not no_compare else None
    if wanted is not None:
        require_public(population)
    plan = make_plan(experiment, population)
    if not as_json:
        show_head(plan_json(plan), population.source)
    say_if_new(file, experiment.ledger)
    text = file.read_text(encoding="utf-8") + "".join(f"\n# --set {line}" for line in overrides)
    text = text.rstrip() + "\n"
    with (
        _progress(quiet=as_json) as progress,
        _federation(machines, experiment, plan, min_silos, timeout) as federation,
    ):
        result = run(plan, population, text, runs, base=file.parent, progress=progress, federation=federation)
    table = None
    if wanted is not None:
        with _steps(quiet=as_json) as step:
            table = kept_comparison(experiment, RunFolder(result.folder), progress=step)
    summary = result.summary | ({"compare": table} if table is not None else {})
    if as_json:
        echo_json(summary)
        return
    show_result(summary, fresh=result.fresh, resumed_at=result.resumed_at)
    if table is not None:
        show_comparison(table, experiment.compare.splits if experiment.compare else 1)


@contextmanager
def _federation(
    folder: Path | None, experiment: Experiment, plan: Plan, minimum: int, timeout: float
) -> Iterator[Federation | None]:
    """The federation of a coordinator's folder, connected; nothing where there is none."""
    if folder is None:
        yield None
        return
    from sordino.experiment.flower.coordinating import Patience, connected
    from sordino.experiment.flower.coordinating import federation as described

    def tell(line: str) -> None:
        click.echo(line, err=True)

    told = described(folder, experiment, Patience(minimum=minimum, timeout=timeout), tell)
    with connected(folder, told, plan.digest) as federation:
        yield federation


def say_if_new(file: Path, ledger: str | None) -> None:
    """A mistyped path would be a fresh budget, so a new shared ledger is announced."""
    if ledger is None:
        return
    from sordino.ledger.stores import exists, label, located

    place = located(ledger, file.parent)
    if not exists(place):
        click.echo(f"opening a new ledger, with nothing spent yet: {label(place)}", err=True)


EVERY_S = 10.0
"""How often a run says how far it is where there is no terminal for a live line."""


def _progress(*, quiet: bool) -> AbstractContextManager[Callable[[Progress], None]]:
    """A live line with epsilon spent and left; in a file or a pipe, a line now and then."""

    @contextmanager
    def bar() -> Iterator[Callable[[Progress], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("round {task.completed:.0f} of {task.total:.0f}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        console = Console(stderr=True)
        said = time.monotonic()
        with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as live:
            task = live.add_task("", total=1)

            def show(step: Any) -> None:
                nonlocal said
                private = step.limit != float("inf")
                text = (
                    f"epsilon {step.spent:.3f} spent, {max(0.0, step.limit - step.spent):.3f} left"
                    if private
                    else "NOT PRIVATE"
                )
                live.update(task, completed=step.round, total=step.rounds, description=text)
                if not (quiet or console.is_terminal) and time.monotonic() - said >= EVERY_S:
                    said = time.monotonic()
                    click.echo(f"round {step.round} of {step.rounds}: {text}", err=True)

            yield show

    return bar()


@contextmanager
def _steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    from rich.console import Console

    with Console(stderr=True, quiet=quiet).status("comparing") as status:
        yield lambda label: status.update(f"comparing: {label}")
