"""`sordino audit conformance`: the same checks for our mechanisms, other frameworks, and anybody's own."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sordino.cli.options import as_json, echo_json


@click.command("conformance")
@click.option("--target", default="sordino", metavar="NAME|MODULE:FACTORY", help="Whom to ask.", show_default=True)
@click.option("--only", default="", metavar="C01,C02", help="Only these checks.")
@click.option("--name", default="", metavar="TEXT", help="Only targets whose name contains this.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Also write the dated table to this file.")
@click.option("--strict", is_flag=True, help="Exit code 5 for other frameworks too.")
@as_json
def conformance(target: str, *, only: str, name: str, markdown: Path | None, strict: bool, as_json: bool) -> None:
    """Put the conformance checks to a framework or to a mechanism of your own.

    Frameworks with an adapter: sordino, opacus, flower, nvflare, pfl; each must be installed where this runs. One of
    your own is MODULE:FACTORY, a function that returns objects with `claim` and `release`
    (sordino.audit.conformance.protocol shows the few lines that takes).

    A violated claim ends with exit code 5; for the other frameworks only with --strict.

    \b
    Examples:
      sordino audit conformance
      sordino audit conformance --target opacus --only C04,C10
      sordino audit conformance --target my_module:targets --json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.audit.conformance import table
    from sordino.audit.conformance.suite import examine
    from sordino.audit.conformance.targets import EXTRAS, load
    from sordino.audit.conformance.verdicts import Fault
    from sordino.core.errors import ConfigError, VerificationError

    asked = [one for one in load(target).values() if name in one.name]
    if not asked:
        raise ConfigError.about("conformance", "is in the name of no target", name=name)
    chosen = [one.strip().upper() for one in only.split(",") if one.strip()]
    rows = examine(asked, spec=target, only=chosen, progress=_shown)
    made = table.document(rows, target=target)
    if as_json:
        echo_json(made)
    else:
        click.echo("\n".join(table.lines(rows)))
    if markdown is not None:
        markdown.write_text(table.markdown({target: made}), encoding="utf-8")
    violated = [row for row in rows if row.fault is Fault.CLAIM]
    others = target in EXTRAS and target != "sordino"
    if violated and (strict or not others):
        first = violated[0]
        raise VerificationError.about(
            "conformance",
            f"violates its claim in {len(violated)} of {len(rows)} cases, first {first.id} {first.check}",
            "--json gives a snippet for each",
            target=first.target,
        )


def _shown(doing: str) -> None:
    """One line on stderr that is written over, where a person looks on."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{doing[:100]}", err=True, nl=False)
