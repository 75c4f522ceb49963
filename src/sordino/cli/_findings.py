"""Findings as text for people. The same numbers as `findings.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from sordino.audit.findings import Finding, Grade, Verdict, by_chance
from sordino.cli.show import UNIT, number

if TYPE_CHECKING:
    from sordino.audit.promise import Promise
    from sordino.experiment.audits.auditing import Cost

COLOUR = {Verdict.HOLDS: "green", Verdict.LEAKS: "yellow", Verdict.REFUTED: "red", Verdict.SKIPPED: "bright_black"}


ORDER = (Grade.FALSIFICATION, Grade.CONFORMANCE, Grade.LEAKAGE)


def show_costs(costs: Sequence[Cost], minutes: float) -> None:
    """What is about to be done, and about what it takes."""
    known = [cost for cost in costs if cost.cpu_seconds is not None]
    total = sum(cost.cpu_seconds or 0.0 for cost in known if (cost.cpu_seconds or 0.0) <= 60 * minutes) / 60
    said = f", which repeat the run's training for at most {total:.1f} CPU minutes" if known else ""
    click.echo(f"{len(costs)} attacks{said}")
    for cost in known:
        if (cost.cpu_seconds or 0.0) > 60 * minutes:
            needed = f"{cost.trainings} trainings, up to {(cost.cpu_seconds or 0.0) / 60:.0f} CPU minutes"
            click.echo(f"  {cost.attack}: {needed}; left out unless it is named or --minutes allows it")
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
    tried = [f for grade in ORDER for f in found if f.grade is grade and f.verdict is not Verdict.SKIPPED]
    Console(width=max(100, Console().width)).print(_table(tried, promise))
    said: set[str] = set()
    for finding in tried:
        _sentence(finding)
        if finding.shows_not not in said:  # several attacks of a kind share theirs
            click.secho(f"    does not show {finding.shows_not}.", fg="bright_black")
        said.add(finding.shows_not)
    _skipped([finding for finding in found if finding.verdict is Verdict.SKIPPED])
    _verdict(found, promise)
    click.echo(f"kept in {folder / 'findings.json'} and {folder / 'findings.html'}")
    if any(finding.local for finding in found):
        click.echo(f"what may not leave the silo is in {folder / 'findings' / 'local'} alone")


def _table(found: Sequence[Finding], promise: Promise | None) -> Table:
    table = Table(title="what was found", title_justify="left")
    for name, justify in (
        ("attack", "left"),
        ("grade", "left"),
        ("verdict", "left"),
        ("epsilon ≥", "right"),
        ("confidence", "right"),
        ("promised", "right"),
        ("CPU s", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for f in found:
        bound, sure, of = "", "", ""
        if f.lower_bound is not None:
            bound, sure = f"{f.lower_bound:.3g}", f"{f.confidence:.4g}"
            attacked = f.promise or promise
            of = number(attacked.epsilon) if attacked is not None else "none"
        verdict = f"[{COLOUR[f.verdict]}]{f.verdict}[/]"
        table.add_row(f.attack, f.grade, verdict, bound, sure, of, f"{f.cpu_seconds:.1f}")
    return table


def _sentence(finding: Finding) -> None:
    click.secho(f"{finding.attack}: ", fg=COLOUR[finding.verdict], nl=False)
    click.echo(finding.says + (" (local: may not leave the silo)" if finding.local else ""))
    if finding.verdict is Verdict.REFUTED:
        for cause in finding.causes:
            click.secho(f"    likely cause: {cause}", fg="red")


def _skipped(found: Sequence[Finding]) -> None:
    """Attacks that do not fit, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for finding in found:
        reasons.setdefault(finding.says, []).append(finding.attack)
    for reason, names in reasons.items():
        click.secho(f"not run, {', '.join(names)}: {reason}", fg=COLOUR[Verdict.SKIPPED])


def _by_chance(found: Sequence[Finding]) -> None:
    """Many tests, each with its own confidence, are many chances to be wrong."""
    tests, chance = by_chance(found)
    if tests > 1:
        click.echo(
            f"{tests} tests at their own confidence, each refutation repeated with fresh randomness: a true claim is "
            f"refuted with up to {chance:.1%}; more where the run's own model was asked about canaries that it carried"
        )


def _verdict(found: Sequence[Finding], promise: Promise | None) -> None:
    refuted = [finding.attack for finding in found if finding.verdict is Verdict.REFUTED]
    leaks = [finding.attack for finding in found if finding.verdict is Verdict.LEAKS]
    if refuted:
        click.secho(f"\nREFUTED by {', '.join(refuted)}.", fg="red", bold=True)
        _by_chance(found)
    elif leaks:
        of = "no promise is contradicted" if promise else "nothing was promised"
        click.secho(f"\nleaks, by {', '.join(leaks)}; {of}", fg="yellow")
    else:
        click.echo("\nnothing was found against the claim. That is not a proof: attacks only bound epsilon from below.")
