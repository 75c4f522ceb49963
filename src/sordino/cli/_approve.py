"""`sordino plan approve`: an officer signs a plan, for the silos that will be asked to take part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.ledger.approval import Approval, PlanTerms


@click.command("approve")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", required=True, type=click.Path(path_type=Path), help="The officer's private key.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; left out, FILE's with .approved.json.")
@click.option(
    "--ledger", "ledgers", multiple=True, metavar="PLACE", help="A ledger whose policy asks for an order to approve."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="As for the run.")
@as_json
def approve(
    file: Path, *, key: Path, out: Path | None, ledgers: tuple[str, ...], overrides: tuple[str, ...], as_json: bool
) -> None:
    """Sign a plan. FILE is an experiment, which is planned, or a plan that another officer has signed.

    What is signed: the plan's digest, epsilon, delta, unit, place of noise, adjacency, clip, rounds, the events that
    each account is charged, the data with its columns, and the digest of the code. Name the file in the experiment:
    approval = "heart.approved.json".

    \b
    Examples:
      sordino plan approve heart.toml --key officer-a.pem
      sordino plan approve heart.approved.json --key officer-b.pem
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.core.errors import ConfigError
    from sordino.experiment.approval import read_approval
    from sordino.ledger.approval import Approval
    from sordino.ledger.keys import SigningKey

    officer = SigningKey.load(key)
    signed = file.suffix == ".json"
    target = out or (file if signed else file.with_suffix(".approved.json"))
    found = read_approval(file) if signed else Approval(_planned(file, overrides))
    if target.exists():
        before = read_approval(target)
        if before.terms != found.terms:
            raise ConfigError.about("approve", "holds another plan", "choose another --out", file=str(target))
        found = Approval(before.terms, {**before.signatures, **found.signatures}, before.orders or found.orders)
    for place in ledgers:
        found = _ordered(found, place)
    found = found.sign(officer)
    target.write_text(found.text, encoding="utf-8")
    if as_json:
        echo_json({"file": str(target), "plan": found.terms.digest, "signed_by": sorted(found.signatures)})
        return
    terms = found.terms
    click.echo(f"plan {terms.digest[:16]}: epsilon {terms.epsilon:.4g} at delta {terms.delta:.3g} per {terms.unit}")
    click.echo(f"  noise at {terms.noise_at}, {terms.adjacency}, {terms.rounds} rounds, {len(terms.accounts)} accounts")
    click.echo(f"  signed by {', '.join(sorted(found.signatures))}: {target}")


def _planned(file: Path, overrides: tuple[str, ...]) -> PlanTerms:
    from sordino.experiment.approval import terms_of
    from sordino.experiment.config import read
    from sordino.experiment.plan import make_plan
    from sordino.experiment.population import load

    experiment = read(file, overrides)
    return terms_of(make_plan(experiment, load(experiment)))


def _ordered(found: Approval, place: str) -> Approval:
    """With an order for a ledger with a policy, unless it has one."""
    import dataclasses

    from sordino.cli._ledger_places import place as located
    from sordino.core.errors import ConfigError
    from sordino.ledger import Ledger
    from sordino.ledger.officers import Order, Signed

    with Ledger(located(place), read_only=True) as ledger:
        present = ledger.policy()
    if present is None:
        raise ConfigError.about("approve", "has no policy, so it asks for no order", "leave it out", ledger=place)
    if found.order_for(present) is not None:
        return found
    terms = {"plan": found.terms.digest}
    order = Order("approve", found.terms.run, terms, present.policy.version, present.event)
    return dataclasses.replace(found, orders=(*found.orders, Signed(order)))
