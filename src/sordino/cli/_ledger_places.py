"""What the ledger's verbs are given: a ledger, keys, orders. Each wrong one is a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sordino.cli.options import echo_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from sordino.ledger import Ledger
    from sordino.ledger.keys import VerifyKey
    from sordino.ledger.officers import Signed
    from sordino.ledger.stores import Place

F = TypeVar("F", bound="Callable[..., Any]")


def ledger_argument(function: F) -> F:
    """The ledger: a file, a run folder that holds one, or a PostgreSQL URL."""
    return click.argument("path", metavar="LEDGER")(function)


def order_option(function: F) -> F:
    """`--order`: the command of officers that a policy asks for."""
    return click.option(
        "--order", type=click.Path(path_type=Path), help="A signed order, where a policy is in force; it has all terms."
    )(function)


def place(text: str) -> Place:
    """Where a ledger is that must exist.

    Raises:
        ConfigError: It is not there.
    """
    from sordino.core.errors import ConfigError
    from sordino.ledger.stores import label

    if not is_there(text):
        found = label(new_place(text))
        raise ConfigError.about("ledger", "is not there", "give a ledger or a run folder", file=found)
    return new_place(text)


def is_there(text: str) -> bool:
    """Whether there is a ledger."""
    from sordino.ledger.stores import exists, is_url

    found = new_place(text)
    return exists(found) if is_url(found) else Path(found).is_file()


def new_place(text: str) -> Place:
    """Where a ledger is, or will be: in a run folder it is `ledger.db`."""
    from sordino.ledger.stores import is_url

    if is_url(text):
        return text
    path = Path(text)
    return path / "ledger.db" if path.is_dir() else path


@contextmanager
def opened(text: str, *, write: bool = False, make: bool = False) -> Iterator[Ledger]:
    """A ledger that must exist, unless it may be made."""
    from sordino.ledger import Ledger

    with Ledger(new_place(text) if make else place(text), read_only=not write) as ledger:
        yield ledger


def text_of(path: Path, what: str) -> str:
    """A file's text.

    Raises:
        ConfigError: It cannot be read.
    """
    from sordino.core.errors import ConfigError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError.about(what, f"cannot be read ({reason})", file=str(path)) from None


def order_of(path: Path | None) -> Signed | None:
    """The order in a file, if one is given."""
    from sordino.ledger.officers import Signed

    return None if path is None else Signed.parse(text_of(path, "order"))


def ordered(path: Path | None, action: str, account: str) -> Signed | None:
    """The order in a file, if it orders this.

    Raises:
        ConfigError: It orders something else.
    """
    from sordino.core.errors import ConfigError

    signed = order_of(path)
    if signed is not None and (signed.order.action, signed.order.account) != (action, account):
        told = f"orders to {signed.order.action} {signed.order.account!r}"
        raise ConfigError.about("order", told, f"it must {action} {account!r}", file=str(path))
    return signed


def public_key(text: str) -> VerifyKey:
    """A public key: its text, or a file that holds it."""
    from sordino.ledger.keys import VerifyKey

    path = Path(text)
    return VerifyKey.parse(text_of(path, "key") if "+" not in text and path.is_file() else text)


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet.

    Raises:
        ConfigError: It does.
    """
    from sordino.core.errors import ConfigError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError.about("ledger", "exists already", "choose another name", out=str(path)) from None


def tell_account(ledger: Ledger, name: str, done: str, *, as_json: bool) -> None:
    """What became of an account: one line, or its entry of `show`."""
    from sordino.experiment.statement import account_entry

    entry = account_entry(ledger, name)
    if as_json:
        echo_json(entry)
    else:
        click.echo(
            f"{done} {name}: {entry['state']}, epsilon {entry['epsilon_left']:.4g} of {entry['epsilon_limit']:.4g} left"
        )
