"""`sordino silo`: a silo's own key, ledger and rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sordino.cli.options import as_json, echo_json, experiment_file

_FOLDER = click.Path(path_type=Path)


@click.group("silo")
def command() -> None:
    """A silo's own side: its key, its ledger, and the rules by which it takes part in plans.

    \b
    Examples:
      sordino silo enroll cleveland --folder silos/cleveland --epsilon 8 --delta 1e-5
      sordino silo check silos/cleveland heart.approved.json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("enroll")
@click.argument("name")
@click.option("--folder", required=True, type=_FOLDER, help="A new folder; it will hold the private key.")
@click.option("--epsilon", required=True, type=float, help="What its people may lose in all.")
@click.option("--delta", required=True, type=float, help="What its people may lose in all.")
@click.option("--unit", default="record", show_default=True, help="record, user or client.")
@click.option("--adjacency", default="add_remove", show_default=True, help="Or replace_one, zero_out.")
@click.option("--coordinator", "coordinators", multiple=True, metavar="PUBLIC", help="Who may ask it for grants.")
@click.option("--officer", "officers", multiple=True, metavar="PUBLIC", help="Whose signature a plan needs.")
@click.option("--test", is_flag=True, help="For simulation: no guarantee.")
@as_json
def enroll(
    name: str,
    *,
    folder: Path,
    coordinators: tuple[str, ...],
    officers: tuple[str, ...],
    as_json: bool,
    **terms: Any,
) -> None:
    """Make a silo's key, its ledger with one account, and its rules (silo.toml), and print its public key.

    NAME is the silo's as in the data. `sordino ledger key` makes the keys of coordinators and officers.

    \b
    Examples:
      sordino silo enroll cleveland --folder silos/cleveland --epsilon 8 --delta 1e-5
      sordino silo enroll north --folder silos/north --epsilon 8 --delta 1e-5 --coordinator "$(cat coordinator.pub)"
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger import Account
    from sordino.ledger.enrolment import enrol
    from sordino.ledger.keys import VerifyKey
    from sordino.ledger.silo import FILE

    account = Account(name, **terms)
    asked = [VerifyKey.parse(text) for text in coordinators]
    public = enrol(folder, account, coordinators=asked, officers=[VerifyKey.parse(text) for text in officers])
    if as_json:
        echo_json({"name": name, "folder": str(folder), "public": str(public), "rules": str(folder / FILE)})
        return
    click.echo(f"silo {name}: {folder}")
    click.echo(f"  rules, yours to edit: {folder / FILE}")
    if not coordinators:
        click.echo("  no coordinator yet: put a public key under `coordinators`, or nobody gets a grant")
    click.echo("give this to the coordinator:")
    click.echo(str(public))


@command.command("check")
@click.argument("folder", type=_FOLDER)
@click.argument("plan", type=click.Path(path_type=Path))
@as_json
def check(folder: Path, plan: Path, *, as_json: bool) -> None:
    """Say whether a silo would take part in an approved plan, by its rules and by what it has left. Charges nothing.

    \b
    Examples:
      sordino silo check silos/cleveland heart.approved.json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.approval import read_approval
    from sordino.ledger.silo import open_silo

    approval = read_approval(plan)
    with open_silo(folder) as silo:
        silo.check(approval)
        name, signers = silo.name, sorted(approval.signatures)
    if as_json:
        echo_json({"silo": name, "plan": approval.terms.digest, "takes_part": True, "signed_by": signers})
    else:
        click.echo(f"silo {name} takes part in plan {approval.terms.digest[:16]}")


@command.command("census")
@click.argument("folder", type=_FOLDER)
@experiment_file
@as_json
def census(folder: Path, file: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Count the records that a silo's own data give to an experiment, and print the lines that declare them.

    Needs the experiment file and the silo's folder, with `data` in its site.toml. It sends nothing: whether the number
    may be known outside is for the silo to decide.

    \b
    Examples:
      sordino silo census /etc/sordino/north heart.toml
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.config import SiloTable, read
    from sordino.experiment.declared import census as counted
    from sordino.experiment.site.preparing import CENSUS_WANTED
    from sordino.experiment.site.serving import read_site
    from sordino.ledger.rules import read_rules
    from sordino.ledger.silo import FILE

    experiment, name = read(file, overrides), read_rules(folder / FILE).name
    (folder / CENSUS_WANTED).unlink(missing_ok=True)  # its own people look
    found, before = counted(experiment, read_site(folder).here, name), experiment.silos.get(name, SiloTable())
    if as_json:
        persons = {"persons": found.persons, "declared_persons": before.persons}
        echo_json({"silo": name, "records": found.records, "declared": before.records, **persons})
        return
    click.echo(f"[silos.{name}]\nrecords = {found.records}")
    if found.persons is not None:
        click.echo(f"persons = {found.persons}")
    for what in ("records", "persons"):
        has, declares = getattr(found, what), getattr(before, what)
        if declares not in (None, has):
            click.echo(f"the experiment declares {declares} {what}, and the silo has {has}", err=True)


@command.command("serve")
@click.argument("folder", type=_FOLDER)
def serve(folder: Path) -> None:
    """Take part in runs: hold data, ledger and model, and answer the coordinator of `sordino deploy init`.

    It does the work of the site's node (`sordino deploy serve`), which may come and go. What it prints is public.

    \b
    Examples:
      sordino silo serve /etc/sordino/north
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.site.serving import serve as answer

    answer(folder, say=click.echo)
