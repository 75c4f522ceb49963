"""`sordino init`: a commented experiment file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

TASKS = ("tabular", "image", "text", "causal-lm", "characters")


@click.command("init")
@click.argument("task", type=click.Choice(TASKS), default="tabular")
@click.option("--out", type=click.Path(path_type=Path), help="Write here instead of stdout; an existing file is kept.")
def command(task: str, out: Path | None) -> None:
    """Write a commented experiment file for a task.

    Tabular; image; text (classify texts); causal-lm (tune a language model on conversations);
    characters (a small model of text, every client hidden as a whole).

    \b
    Examples:
      sordino init tabular > experiment.toml
      sordino init image --out mnist.toml
      sordino init causal-lm --out assistant.toml
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.core.errors import ConfigError

    text = resources.files("sordino.cli").joinpath(f"templates/{task}.toml").read_text(encoding="utf-8")
    if out is None:
        click.echo(text, nl=False)
        return
    if out.exists():
        raise ConfigError.about("init", "already exists", "choose another name", out=str(out))
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise ConfigError.about(
            "init", f"cannot be written: {problem.strerror}", "choose another", out=str(out)
        ) from None
    click.echo(f"wrote {out}; next: sordino plan {out}")
