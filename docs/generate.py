"""Writes the reference pages that follow from the code: one per registry, and one for the command line.

python docs/generate.py          (or `make docs`)

A test compares what this file makes with what is committed, so the pages cannot drift.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from sordino.cli import cli
from sordino.core.registry import Registry
from sordino.experiment.catalogue import REGISTRIES, catalogue

REFERENCE = Path(__file__).parent / "reference"
WIDTH = 100
NOTE = "<!-- Written by docs/generate.py from the code. Change the docstring, then run `make docs`. -->\n"

PLACES = {
    "datasets": ("Data sets", "Named by one table `[data.NAME]`, and by `evaluation.data` for a test set of its own."),
    "partitions": ("Partitions", "Named by one table `[partition.NAME]`; left out, `natural`."),
    "models": ("Models", "Named by one table `[model.NAME]`."),
    "adapters": (
        "Adapters",
        "Named inside a language model by `adapter`: [which parameters are trained](../../explanation/adapters.md).",
    ),
    "objectives": ("Objectives", "Named by one table `[objective.NAME]`; left out, `plain`."),
    "sampling": ("Sampling of clients", "Named by one table `[sampling.NAME]`; left out, `all`."),
    "stages": ("Stages", "One `[[stages]]` table each, in order. They act on whole clients' updates."),
    "aggregators": ("Aggregators", "Not a key of the experiment file yet: every run uses `sum`."),
    "mechanisms": (
        "Mechanisms",
        'Named by `privacy.mechanism = "NAME"`; the noise multiplier is found or given there.',
    ),
    "strategies": ("Strategies", "Named by one table `[strategy.NAME]`."),
    "engines": ("Engines", "Not a key of the experiment file yet: every run uses `inprocess`."),
    "attacks": ("Attacks", "Named by `sordino audit RUN --attacks NAME`; left out, all that fit the run."),
}
"""Per registry: the page's title, and where an experiment file names its entries."""

TABLES = {
    "datasets": "data",
    "partitions": "partition",
    "models": "model",
    "objectives": "objective",
    "sampling": "sampling",
    "strategies": "strategy",
}


def pages() -> dict[str, str]:
    """Every generated page by its path under `docs/reference`."""
    found = {f"registry/{kind}.md": _registry_page(kind, registry) for kind, registry in REGISTRIES.items()}
    return found | {"registry/index.md": _index(), "cli.md": _cli_page()}


def write() -> None:
    """Put the pages where they belong."""
    for name, text in pages().items():
        path = REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _index() -> str:
    lines = [NOTE, "# Everything an experiment file can name\n", "| kind | where | names |", "|---|---|---|"]
    for kind, entries in catalogue().items():
        title, where = PLACES[kind]
        names = ", ".join(f"[`{entry['name']}`]({kind}.md#{_anchor(entry['name'])})" for entry in entries)
        lines.append(f"| [{title}]({kind}.md) | {_cell(where)} | {names} |")
    return "\n".join([*lines, "", "The same list on your machine: `sordino list`, or `sordino list --json`.", ""])


def _registry_page(kind: str, registry: Registry[Any]) -> str:
    title, where = PLACES[kind]
    parts = [NOTE, f"# {title}\n", f"{where}\n"]
    for entry in catalogue()[kind]:
        parts.extend(_entry(kind, entry, registry.get(entry["name"])))
    return "\n".join(parts)


def _entry(kind: str, entry: dict[str, Any], cls: type) -> Iterator[str]:
    text, sections = _sections(inspect.getdoc(cls) or "")
    yield f"## {entry['name']}\n"
    yield f"{text}\n"
    arguments = _arguments(sections.pop("Args", ""))
    fields = [field for field in dataclasses.fields(cls) if field.metadata.get("toml", True)]
    if fields:
        hints = typing.get_type_hints(cls)
        yield "| key | type | default | meaning |\n|---|---|---|---|"
        for field in fields:
            kind_of, meaning = _type(hints[field.name]), arguments.get(field.name, "")
            yield f"| `{field.name}` | {_cell(kind_of)} | {_default(field)} | {_cell(meaning)} |"
        yield ""
    for name, body in sections.items():
        yield f"**{name}.** {_joined(body)}\n"
    if kind == "datasets":
        yield f"**Source.** {getattr(cls, 'source', '')}\n"
        yield f"**Licence.** {getattr(cls, 'licence', '')}\n"
    yield f"```toml\n{_toml(kind, entry)}\n```\n"


def _toml(kind: str, entry: dict[str, Any]) -> str:
    """How an experiment file names an entry, with its example's keys."""
    if kind == "mechanisms":
        return f'[privacy]\nmechanism = "{entry["name"]}"'
    if kind == "adapters":
        return f"adapter = {{ {entry['toml']} }}"
    if kind in TABLES:
        keys = [f"{key} = {_value(value)}" for key, value in entry["example"].items()]
        return "\n".join([f"[{TABLES[kind]}.{entry['name']}]", *keys])
    return f"[[{kind}]]\n{entry['toml']}" if kind == "stages" else f"# {entry['toml']}"


def _value(value: object) -> str:
    from sordino.experiment.catalogue import _inline  # the same spelling as `sordino list`

    return _inline(value)


def _sections(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's free text, and its sections (Args, Guarantee, Source …) by name."""
    pieces = re.split(r"^(Args|Guarantee|Source|Raises|Returns): ?", text, flags=re.MULTILINE)
    bodies = [textwrap.dedent(piece).strip("\n") for piece in pieces[2::2]]
    return pieces[0].strip(), dict(zip(pieces[1::2], bodies, strict=True))


def _arguments(body: str) -> dict[str, str]:
    """The `name: meaning` entries of an Args section, continuation lines joined."""
    found: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent(body).splitlines():
        start = re.match(r"(\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def _type(hint: object) -> str:
    """A type in the words of a TOML author."""
    words: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "value"}
    if hint in (*words,):
        return words[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_plural(_type(arguments[0]))}"
    if origin is dict:
        return f"table of {_plural(_type(arguments[1]))}"
    return " or ".join(_type(one) for one in arguments if one is not type(None))


def _plural(words: str) -> str:
    return words.replace("list", "lists") if words.startswith("list") else f"{words}s"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    if field.default is dataclasses.MISSING or field.default in ((), None):
        return "none"
    return f"`{_value(field.default)}`"


def _cli_page() -> str:
    parts = [NOTE, "# Command line\n"]
    parts.append("Every verb that prints a result has `--json`: [the stable JSON](json.md) on stdout, nothing else.\n")
    parts.extend(_help("sordino", cli, None))
    return "\n".join(parts)


def _help(path: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=path if parent is None else path.rpartition(" ")[2], parent=parent)
    context.terminal_width = context.max_content_width = WIDTH
    context.help_option_names = ["-h", "--help"]
    yield f"## {path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _help(f"{path} {name}", inner, context)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def _anchor(name: str) -> str:
    return re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-")


if __name__ == "__main__":
    write()
