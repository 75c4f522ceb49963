"""The ledger's verbs that give and check evidence: keys, verify, export, witness."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sordino.cli._ledger_places import ledger_argument, new_place, place, public_key
from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.ledger import Report


@click.command("key")
@click.argument("name")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="The private key's file, which must be new."
)
@as_json
def key(name: str, *, out: Path, as_json: bool) -> None:
    """Make a key pair for an officer, a silo or a ledger, and print the public half.

    \b
    Examples:
      sordino ledger key ann --out ann.key
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger.keys import SigningKey

    made = SigningKey.generate(name)
    made.save(out)
    echo_json({"name": name, "public": str(made.public)}) if as_json else click.echo(str(made.public))


@click.command("verify")
@ledger_argument
@click.option("--expect", multiple=True, metavar="SHA256", help="A hash seen earlier, such as a run's ledger_sha256.")
@click.option("--key", "keys", multiple=True, metavar="PUBLIC", help="Of the owner: checkpoints must be signed.")
@click.option("--silo", "silos", multiple=True, metavar="PUBLIC", help="Of a silo that has countersigned.")
@click.option(
    "--witness", "seen", multiple=True, type=click.Path(path_type=Path), help="A silo's file of what it has seen."
)
@click.option("--reprice", is_flag=True, help="Compute every price again: none may have been charged too little.")
@as_json
def verify(path: str, *, seen: tuple[Path, ...], reprice: bool, as_json: bool, **known: tuple[str, ...]) -> None:
    """Replay the history and compare it with balances and signatures; exit code 5 if they disagree.

    What a ledger alone cannot show is that it was put back to an earlier state, or that its owner wrote it anew: give
    the ledger_sha256 of a run with --expect, or what silos have seen with --witness. Of an export, the same.

    \b
    Examples:
      sordino ledger verify runs/heart-1a2b3c4d
      sordino ledger verify books.db --key books.pub --witness north-seen.jsonl
      sordino ledger verify export.json --key books.pub
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.core.errors import ConfigError, VerificationError
    from sordino.ledger.stores import label

    for file in seen:
        if not file.is_file():
            raise ConfigError.about("verify", "is not there", "give the file that a silo keeps", witness=str(file))
    where = place(path)
    report = _report(path, seen, known, reprice=reprice)
    if as_json:
        echo_json({"ok": report.ok, "problems": list(report.problems), "counts": dict(report.counts)})
    elif report.ok:
        click.echo(f"ok: {label(where)}: " + ", ".join(f"{count} {name}" for name, count in report.counts.items()))
    if not report.ok:
        raise VerificationError.about("ledger", "; ".join(report.problems), file=label(where))


def _report(path: str, seen: tuple[Path, ...], known: dict[str, tuple[str, ...]], *, reprice: bool) -> Report:
    from sordino.ledger import verify as check
    from sordino.ledger.export import verify_export
    from sordino.ledger.stores import is_url
    from sordino.ledger.witnesses import read

    where = place(path)
    terms = {
        "expect": known["expect"],
        "keys": [public_key(text) for text in known["keys"]],
        "silos": [public_key(text) for text in known["silos"]],
        "witnesses": [note for file in seen for note in read(file)],
        "reprice": reprice,
    }
    if not is_url(where) and Path(where).read_bytes()[:1] == b"{":
        return verify_export(where, **terms)  # type: ignore[arg-type]
    return check(where, **terms)  # type: ignore[arg-type]


@click.command("export")
@ledger_argument
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--key", "keys", multiple=True, metavar="PUBLIC", help="Public keys to put beside, for convenience.")
@as_json
def export(path: str, out: Path, *, keys: tuple[str, ...], as_json: bool) -> None:
    """Write history, checkpoints, countersignatures and claims as one JSON file, for somebody without the database.

    \b
    Examples:
      sordino ledger export books.db export.json
      sordino ledger verify export.json --key books.pub
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger.export import export as write

    written = write(place(path), out, keys=[public_key(text) for text in keys])
    echo_json({"out": str(written)}) if as_json else click.echo(f"wrote {written}")


@click.command("witness")
@ledger_argument
@click.option("--as", "silo", required=True, type=click.Path(path_type=Path), help="The silo's private key.")
@click.option("--memory", required=True, type=click.Path(path_type=Path), help="The silo's file of what it has seen.")
@click.option("--of", "owners", required=True, multiple=True, metavar="PUBLIC", help="Keys of ledgers that it follows.")
@click.option("--key", type=click.Path(path_type=Path), help="The ledger's private key, to sign what is new.")
@as_json
def witness(path: str, *, silo: Path, memory: Path, owners: tuple[str, ...], key: Path | None, as_json: bool) -> None:
    """See the newest checkpoint as a silo does, and countersign it if it continues what was seen; else exit code 5.

    Let each silo keep its --memory where the ledger's owner cannot write.

    \b
    Examples:
      sordino ledger witness books.db --as north.key --memory north-seen.jsonl --of books.pub --key books.key
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.ledger import Ledger
    from sordino.ledger.checkpoints import Checkpoint
    from sordino.ledger.keys import SigningKey
    from sordino.ledger.notes import Note
    from sordino.ledger.witnesses import Witness

    place(path)
    keeper = Witness(memory, SigningKey.load(silo), [public_key(text) for text in owners])
    with Ledger(new_place(path), key=None if key is None else SigningKey.load(key)) as ledger:
        origin = Checkpoint.parse(Note.parse(ledger.checkpoint()).text).origin
        growth = ledger.growth(keeper.size(origin))
        fresh = ledger.witnessed(growth.note, keeper.see(growth.note, growth.proof), keeper.key.public)
    size = Checkpoint.parse(Note.parse(growth.note).text).size
    if as_json:
        echo_json({"ledger": origin, "silo": keeper.key.name, "size": size, "new": fresh})
    else:
        click.echo(f"{keeper.key.name} has {'now' if fresh else 'already'} seen {size} events of {origin}")


EVIDENCE = (key, verify, export, witness)
"""Verbs of `sordino ledger`, in the order of its help."""
