"""`sordino audit`: attack a finished run, or put the same checks to other frameworks."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli._conformance import conformance
from sordino.cli._or_verb import OrVerb
from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@click.group("audit", cls=OrVerb, instead="run", subcommand_metavar="RUN | conformance")
def command() -> None:
    """Attack a finished run and put what was found beside what was claimed.

    Every number carries its grade: a *falsification* says that the claimed curve is false, *conformance* that this is
    not the declared mechanism, *leakage* how well an attack does. What is found is kept in the run folder, as
    findings.json and findings.html. A lower bound above the claim ends with exit code 5.

    \b
    Examples:
      sordino audit runs/heart-1a2b3c4d
      sordino audit runs/heart-1a2b3c4d --attacks one_run_curve,lira --json
      sordino audit conformance --target sordino
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("run", hidden=True)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@as_json
@click.option(
    "--attacks", "names", default="", metavar="A,B", help="Only these: `sensor`, or of `sordino list attacks`."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="An option of an attack, e.g. --set lira.targets=16"
)
@click.option("--minutes", default=10.0, help="Leave out attacks that would repeat trainings for longer.")
@click.option("--seed", default=0, help="Of the audit's own choices.")
@click.option("--ledger", type=click.Path(path_type=Path), help="The run's ledger, where it is not in its folder.")
def run(
    folder: Path,
    *,
    as_json: bool,
    names: str,
    overrides: tuple[str, ...],
    minutes: float,
    seed: int,
    ledger: Path | None,
) -> None:
    """Attack a finished run.

    Attacks that train use ledgers of their own with predictable noise: nothing is charged, and nothing is released.
    Figures that depend on private records are marked `local` and kept in findings/local/: they may not leave the silo.

    \b
    Examples:
      sordino audit runs/heart-1a2b3c4d
      sordino audit runs/heart-1a2b3c4d --attacks lira,rmia --minutes 60
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.audit.findings import Verdict, to_plain
    from sordino.cli._findings import show_costs, show_findings
    from sordino.core.errors import VerificationError
    from sordino.experiment.audits.auditing import audit, choice, costs, write
    from sordino.experiment.audits.opening import open_run

    chosen = choice([name.strip() for name in names.split(",") if name.strip()], overrides)
    audited = open_run(folder, ledger=ledger, seed=seed)
    planned = costs(audited, chosen)
    if not as_json:
        show_costs(planned, minutes)
    with _progress(len(planned), quiet=as_json) as progress:
        found = list(audit(audited, chosen, minutes=minutes, progress=progress))
    write(audited, found)
    if as_json:
        echo_json([to_plain(finding) for finding in found])
    else:
        show_findings(audited.promise, found, audited.folder.path)
    refuted = [finding.attack for finding in found if finding.verdict is Verdict.REFUTED]
    if refuted:
        raise VerificationError.about("audit", "refute the claim", "do not use this model as private", attacks=refuted)


@contextmanager
def _progress(attacks: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done."""
    from rich.console import Console

    with Console(stderr=True, quiet=quiet).status(f"{attacks} attacks") as status:
        yield status.update


command.add_command(conformance)
