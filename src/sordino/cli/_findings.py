"""Findings as text for people. The same numbers as `findings.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from sordino.audit.findings import Figure, Finding, Verdict
from sordino.cli.show import UNIT, number

if TYPE_CHECKING:
    from sordino.audit.promise import Promise
    from sordino.experiment.audits.auditing import Cost

COLOUR = {Verdict.HOLDS: "green", Verdict.LEAKS: "yellow", Verdict.REFUTED: "red", Verdict.SKIPPED: "bright_black"}


def show_costs(costs: Sequence[Cost], minutes: float) -> None:
    """What is about to be done, and about what it takes."""
    repeated = [cost for cost in costs if cost.trainings]
    click.echo(f"{len(costs)} attacks; {len(repeated)} of them repeat the run's training:")
    for cost in repeated:
        time = "" if cost.cpu_seconds is None else f", about {cost.cpu_seconds / 60:.1f} CPU minutes at most"
        late = cost.cpu_seconds is not None and cost.cpu_seconds > 60 * minutes
        click.echo(f"  {cost.attack:<22} {cost.trainings} trainings{time}{' (over --minutes)' if late else ''}")
    click.echo()


def show_findings(promise: Promise | None, found: Sequence[Finding], folder: Path) -> None:
    """The claim, the bounds beside it, and a plain sentence per attack."""
    if promise is None:
        click.secho(
            "claim: none. This run is not private; attacks may succeed without contradicting anything.", bold=True
        )
    else:
        click.secho(
            f"claim: epsilon {promise.epsilon:.4g} at delta {promise.delta:.2g} for {UNIT[promise.unit]}, "
            f"{promise.adjacency}, against {promise.view}",
            bold=True,
        )
        click.echo(f"       {promise.source}{'; TEST: the noise was predictable' if promise.test else ''}")
    Console(width=max(100, Console().width)).print(_table([f for f in found if f.verdict is not Verdict.SKIPPED]))
    for finding in found:
        _sentence(finding)
    _verdict(found)
    click.echo(f"kept in {folder / 'findings.json'} and {folder / 'findings.html'}")


def _table(found: Sequence[Finding]) -> Table:
    table = Table(title="what was found", title_justify="left")
    for name, justify in (("attack", "left"), ("grade", "left"), ("verdict", "left"), ("epsilon at least", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("figures")
    table.add_column("CPU s", justify="right")
    for f in found:
        bound = "" if f.lower_bound is None else f"{f.lower_bound:.3g} ({f.confidence:.4g})"
        colour = COLOUR[f.verdict]
        figures = ", ".join(f"{name} {_figure(value)}" for name, value in list(f.figures.items())[:5])
        table.add_row(f.attack, f.grade, f"[{colour}]{f.verdict}[/]", bound, figures, f"{f.cpu_seconds:.1f}")
    return table


def _figure(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return number(figure.value)
    return f"{figure.value:.3g} [{figure.low:.3g}, {figure.high:.3g}]"


def _sentence(finding: Finding) -> None:
    click.secho(f"{finding.attack}: ", fg=COLOUR[finding.verdict], nl=False)
    click.echo(finding.says + (" (local: may not leave the silo)" if finding.local else ""))
    if finding.verdict is Verdict.REFUTED:
        for cause in finding.causes:
            click.secho(f"    likely cause: {cause}", fg="red")


def _verdict(found: Sequence[Finding]) -> None:
    refuted = [finding.attack for finding in found if finding.verdict is Verdict.REFUTED]
    if refuted:
        click.secho(f"\nREFUTED by {', '.join(refuted)}: do not use this model as private.", fg="red", bold=True)
        return
    click.echo("\nnothing was found against the claim. That is not a proof: attacks only bound epsilon from below.")
