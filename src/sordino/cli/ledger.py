"""`sordino ledger`: look at accounts and prove that the books agree with themselves."""

from __future__ import annotations

from pathlib import Path

import click

from sordino.cli.options import as_json, echo_json


@click.group("ledger")
def command() -> None:
    """Accounts, history and verification of a ledger file (or a run folder).

    \b
    Examples:
      sordino ledger show runs/heart-1a2b3c4d
      sordino ledger verify runs/heart-1a2b3c4d/ledger.db
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("show")
@click.argument("path", type=click.Path(path_type=Path))
@as_json
def show(path: Path, *, as_json: bool) -> None:
    """What each account has spent and has left, and the claims of every run."""
    from sordino.experiment.statement import statement

    value = statement(_file(path))
    if as_json:
        echo_json(value)
        return
    for account in value["accounts"]:
        mark = "  TEST" if account["test"] else ""
        click.secho(f"{account['name']}{mark}", bold=True)
        click.echo(f"  unit {account['unit']}, {account['adjacency']}")
        click.echo(
            f"  epsilon {account['epsilon_used']:.4g} of {account['epsilon_limit']:.4g} used, "
            f"{account['epsilon_left']:.4g} left; delta {account['delta_used']:.3g} of {account['delta_limit']:.3g}"
        )
        click.echo(
            f"  releases: {account['committed']} committed, {account['held']} held, {account['forfeited']} forfeited"
        )
    for claim in value["claims"]:
        click.echo(
            f"run {claim['run']}: account {claim['account']}: epsilon {claim['epsilon']:.4g} "
            f"at delta {claim['delta']:.3g} per {claim['unit']}, {claim['adjacency']}, against {claim['view']}"
            + (" TEST" if claim["test"] else "")
            + ("" if claim["complete"] else " (whole plan; not all of it has run)")
        )


@command.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--expect", multiple=True, metavar="SHA256", help="A hash seen earlier, such as a run's ledger_sha256.")
@as_json
def verify(path: Path, expect: tuple[str, ...], *, as_json: bool) -> None:
    """Replay the history and compare it with the balances; exit code 5 if they disagree.

    What the file alone cannot show is that it was put back to an earlier state: keep the ledger_sha256 of each run
    elsewhere and give it with --expect.
    """
    from sordino.core.errors import VerificationError
    from sordino.ledger import verify as check

    file = _file(path)
    report = check(file, expect=expect)
    if as_json:
        echo_json({"ok": report.ok, "problems": list(report.problems), "counts": dict(report.counts)})
    elif report.ok:
        click.echo(f"ok: {file}: " + ", ".join(f"{count} {name}" for name, count in report.counts.items()))
    if not report.ok:
        raise VerificationError.about("ledger", "; ".join(report.problems), file=str(file))


def _file(path: Path) -> Path:
    """The ledger file of a run folder, or the file itself."""
    from sordino.core.errors import ConfigError

    file = path / "ledger.db" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError.about("ledger", "is not there", "give a ledger file or a run folder", file=str(file))
    return file
