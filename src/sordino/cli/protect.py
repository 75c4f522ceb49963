"""`sordino data protect`: noised embeddings, or words replaced by chance, for texts that must leave a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sordino.cli.options import as_json, echo_json

if TYPE_CHECKING:
    from sordino.experiment.protected_file import Job
    from sordino.local.text.policy import Kind, Policy

EMBED_ONLY = ("delta", "clip", "length", "ledger", "account", "releases")
WORDS_ONLY = ("kinds", "lists", "patterns", "passing", "group")
FILE = click.Path(path_type=Path)


@click.command("protect")
@click.argument("file", type=FILE)
@click.option("--text", "column", required=True, metavar="COLUMN", help="The column to protect.")
@click.option("--how", type=click.Choice(["embed", "words"]), required=True, help="Noised vectors, or replaced words.")
@click.option("--base", default="minilm", show_default=True, help="A public base model: a name or a folder.")
@click.option("--epsilon", type=float, help="Of one embedding, or of each replaced word.")
@click.option("--out", type=FILE, required=True, help="The protected file; its statement is written beside it.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column that passes as it is, unprotected.")
@click.option("--delta", type=float, help="embed: failure probability of one release.  [default: 1e-5]")
@click.option("--clip", type=float, help="embed: L2 norm of an embedding.  [default: 1.0]")
@click.option("--length", type=int, help="embed: tokens of a text.  [default: 128]")
@click.option("--ledger", type=FILE, help="embed: the ledger that pays. Required.")
@click.option("--account", help="embed: whose texts these are.  [default: the file's name]")
@click.option("--releases", type=int, help="embed: what a new account pays for, in releases like this.  [default: 1]")
@click.option("--kind", "kinds", multiple=True, metavar="NAME=EPSILON", help="words: a kind of words with its epsilon.")
@click.option("--list", "lists", multiple=True, metavar="NAME=FILE", help="words: a kind's words, one a line.")
@click.option("--pattern", "patterns", multiple=True, metavar="NAME=REGEX", help="words: a kind's form.")
@click.option("--pass", "passing", type=FILE, help="words: a public file of words that are never replaced.")
@click.option("--group", type=int, help="words: size of the public groups.  [default: 20]")
@as_json
def command(*, as_json: bool, **options: Any) -> None:
    """Write a protected copy of a JSONL file's texts, with a statement of what that promises.

    `embed` releases one noised vector per text, and an account of the ledger pays. `words` replaces words by others of
    their public group: without --kind all numbers and words, else the kinds named, such as
    `--kind name=0.5 --list name=names.txt`. Lists and patterns must be public, not made from the texts.

    \b
    Examples:
      sordino data protect notes.jsonl --text note --how embed --epsilon 8 --ledger notes.db --out vectors.jsonl
      sordino data protect notes.jsonl --text note --how words --epsilon 4 --keep label --out words.jsonl
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.protected_file import Job

    given = {name: value for name, value in options.items() if value not in (None, ())}
    job = Job(options["file"], options["column"], options["out"], options["keep"])
    _refuse_unused(given)
    statement = _embed(job, given) if options["how"] == "embed" else _words(job, given)
    if as_json:
        echo_json(statement)
        return
    click.echo(f"{statement['texts']} texts: {job.out}; statement: {job.statement}")
    if statement["how"] == "embed":
        used, limit = statement["account_epsilon"].values()
        click.echo(f"epsilon {statement['epsilon']:.4g} at delta {statement['delta']:.3g} per released embedding")
        click.echo(f"account {statement['account']!r}: epsilon {used:.4g} of {limit:.4g} used")
    else:
        for kind in statement["kinds"]:
            click.echo(
                f"{kind['name']}: {kind['replaced']} replaced, epsilon {kind['epsilon']:.4g} each; {kind['which']}"
            )
        click.echo(f"{statement['without_vector']} of them without a vector; {statement['passed']} words passed")
    click.echo(statement["guarantee"])


def _embed(job: Job, given: dict[str, Any]) -> dict[str, Any]:
    from sordino.data.pretrained import located
    from sordino.experiment.protect import Embedding, Payment, embed

    for name in ("epsilon", "ledger"):
        if name not in given:
            raise click.UsageError(f"--how embed needs --{name}.")
    numbers = {name: given[name] for name in ("delta", "clip", "length") if name in given}
    terms = Embedding(given["base"], located(given["base"]), given["epsilon"], **numbers)
    payment = Payment(given["ledger"], given.get("account", job.file.stem), given.get("releases", 1))
    if not payment.ledger.exists():
        click.echo(f"opening a new ledger, with nothing spent yet: {payment.ledger}", err=True)
    return embed(job, terms, payment)


def _words(job: Job, given: dict[str, Any]) -> dict[str, Any]:
    from sordino.data.pretrained import located
    from sordino.experiment.protect import words

    policy = _policy(given)
    return words(job, policy, given["base"], located(given["base"]), size=given.get("group", 20))


def _policy(given: dict[str, Any]) -> Policy:
    """The named kinds first, numbers and all other words last."""
    from sordino.local.text.policy import Policy

    epsilons = {"number": given.get("epsilon"), "word": given.get("epsilon")}
    for name, value in map(_pair, given.get("kinds", ())):
        try:
            epsilons[name] = float(value)
        except ValueError:
            raise click.UsageError(f"--kind {name}={value}: {value!r} is no number.") from None
    lists = {name: _words_of(Path(value)) for name, value in map(_pair, given.get("lists", ()))}
    patterns = dict(map(_pair, given.get("patterns", ())))
    if strangers := (lists.keys() | patterns.keys()) - epsilons.keys():
        raise click.UsageError(f"--kind is missing for {', '.join(sorted(strangers))}.")
    last = ("number", "word")
    order = [name for name in epsilons if name not in last] + [name for name in last if epsilons[name] is not None]
    if not order:
        raise click.UsageError("--how words needs --epsilon or --kind.")
    kinds = tuple(_kind(name, epsilons[name] or 0.0, lists.get(name), patterns.get(name)) for name in order)
    return Policy(kinds, _words_of(given["passing"]) if "passing" in given else frozenset())


def _kind(name: str, epsilon: float, words: frozenset[str] | None, pattern: str | None) -> Kind:
    from sordino.local.text.policy import NUMBER, Kind

    if words is None and pattern is None and name not in ("number", "word"):
        raise click.UsageError(f"--kind {name} needs --list {name}=FILE or --pattern {name}=REGEX.")
    if name == "number" and words is None and pattern is None:
        pattern = NUMBER
    return Kind(name, epsilon, words, pattern)


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (name and found and value):
        raise click.UsageError(f"{text!r} must look like NAME=VALUE.")
    return name, value


def _words_of(file: Path) -> frozenset[str]:
    from sordino.core.errors import ConfigError

    try:
        return frozenset(file.read_text("utf-8").split())
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "is not UTF-8 text"
        raise ConfigError.about("protect", f"cannot be read: {reason}", file=str(file)) from None


def _refuse_unused(given: dict[str, Any]) -> None:
    """Options of the other way would do nothing; a ledger beside `words` would look like a guarantee on records."""
    how = given["how"]
    unused = [name for name in (WORDS_ONLY if how == "embed" else EMBED_ONLY) if name in given]
    if unused == ["ledger"]:
        raise click.UsageError("--ledger keeps guarantees of whole texts; --how words has one of single words, stated.")
    if unused:
        raise click.UsageError(f"--how {how} has no use for {', '.join(unused)}.")
