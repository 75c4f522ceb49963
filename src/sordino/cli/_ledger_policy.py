"""`sordino ledger policy`: sign, install and show the rules of a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli._ledger_places import is_there, ledger_argument, opened, text_of
from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.ledger.officers import Installed


@click.group("policy")
def policy() -> None:
    """The rules of a ledger: officers, tiers, in how many silos a person is.

    \b
    Examples:
      sordino ledger policy sign policy.toml --key ann.key > ann.sig
      sordino ledger policy install books.db policy.toml --signature ann.sig
      sordino ledger policy show books.db
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@policy.command("sign")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", required=True, type=click.Path(path_type=Path), help="The officer's private key.")
def sign(file: Path, *, key: Path) -> None:
    """Print an officer's signature under a policy.

    \b
    Examples:
      sordino ledger policy sign policy.toml --key ann.key > ann.sig
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger.keys import SigningKey
    from sordino.ledger.policy import Policy

    signer = SigningKey.load(key)
    click.echo(f"{signer.name} {signer.sign(Policy.parse(text_of(file, 'policy')).message)}")


@policy.command("install")
@ledger_argument
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", "keys", multiple=True, type=click.Path(path_type=Path), help="Private keys of officers here.")
@click.option("--signature", "files", multiple=True, type=click.Path(path_type=Path), help="Files of `policy sign`.")
@as_json
def install(path: str, file: Path, *, keys: tuple[Path, ...], files: tuple[Path, ...], as_json: bool) -> None:
    """Put a policy in force: version 1 signed by its own officers, later ones by those of the version before.

    \b
    Examples:
      sordino ledger policy install books.db policy.toml --key ann.key --key bob.key
      sordino ledger policy install books.db policy-2.toml --signature ann.sig --signature bob.sig
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger.keys import SigningKey
    from sordino.ledger.office import may_install
    from sordino.ledger.policy import Policy

    rules = Policy.parse(text_of(file, "policy"))
    signatures = dict(_signature(given) for given in files)
    for key in map(SigningKey.load, keys):
        signatures[key.name] = key.sign(rules.message)
    if not is_there(path):
        may_install(None, rules, signatures)  # before a ledger is made
    with opened(path, write=True, make=True) as ledger:
        ledger.install(rules, signatures)
        present = ledger.policy()
    _tell(present, as_json=as_json)


@policy.command("show")
@ledger_argument
@as_json
def show(path: str, *, as_json: bool) -> None:
    """The policy in force.

    \b
    Examples:
      sordino ledger policy show books.db --json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    with opened(path) as ledger:
        present = ledger.policy()
    _tell(present, as_json=as_json)


def _tell(present: Installed | None, *, as_json: bool) -> None:
    from sordino.cli._ledger_show import show_policy

    value = None
    if present is not None:
        value = {**present.policy.plain(), "sha256": present.policy.sha256, "event": present.event}
    if as_json:
        echo_json(value)
    elif value is None:
        click.echo("no policy: whoever holds the ledger may open accounts, and no limit is ever raised")
    else:
        show_policy(value)


def _signature(file: Path) -> tuple[str, str]:
    from sordino.core.errors import ConfigError

    words = text_of(file, "signature").split()
    if len(words) != 2:
        raise ConfigError.about("policy", "is not what `policy sign` prints", file=str(file))
    return words[0], words[1]
