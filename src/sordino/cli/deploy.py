"""`sordino deploy`: a federation on many machines."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from sordino.cli.options import as_json, echo_json
from sordino.core.errors import VerificationError

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.group("deploy")
def command() -> None:
    """A federation on many machines: its keys and folders, what is wrong with them, and a try on this machine.

    \b
    Examples:
      sordino deploy init fed --site north --site south --epsilon 8 --delta 1e-5
      sordino deploy up --local fed
      sordino deploy check fed
      sordino deploy down fed
    """  # noqa: D301 - \b is click's mark: keep the lines that follow


@command.command("init")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="A federation.toml; takes the place of what follows.")
@click.option("--site", "sites", multiple=True, metavar="NAME", help="A site, as in the data. Repeat.")
@click.option("--epsilon", type=float, help="What each site's people may lose in all.")
@click.option("--delta", type=float, help="What each site's people may lose in all.")
@click.option("--unit", default="record", show_default=True, help="record, user or client.")
@click.option("--host", default="localhost", show_default=True, help="The name by which sites reach the coordinator.")
@click.option("--port", default=9443, show_default=True, help="The one port that is open to sites.")
@click.option("--officer", "officers", multiple=True, metavar="PUBLIC", help="Whose signature a plan needs.")
@click.option("--test", is_flag=True, help="For simulation: no guarantee.")
@as_json
def init(out: Path, *, config: Path | None, as_json: bool, **flags: Any) -> None:
    """Write the folders of a coordinator and of each site: certificates, keys, rules, ledgers, services.

    OUT is a new folder. Each folder below it goes to its machine whole.

    \b
    Examples:
      sordino deploy init fed --site north --site south --epsilon 8 --delta 1e-5
      sordino deploy init fed --config federation.toml
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import federation, layout

    plan = federation.read(config) if config else _from_flags(**flags)
    keys = layout.write(plan, out)
    if as_json:
        echo_json({"folder": str(out), "public": {name: str(key) for name, key in keys.items()}})
        return
    for name, key in keys.items():
        click.echo(f"{name}: {out / ('coordinator' if name == 'coordinator' else f'sites/{name}')}")
        click.echo(f"  public key {key}")
    click.echo(f"{out / 'ca.key'} signs servers of this federation: keep it off these machines")


def _from_flags(
    *,
    sites: tuple[str, ...],
    epsilon: float | None,
    delta: float | None,
    unit: str,
    host: str,
    port: int,
    officers: tuple[str, ...],
    test: bool,
) -> Any:
    from sordino.core import tables
    from sordino.experiment.deploy.federation import Federation

    if not sites or epsilon is None or delta is None:
        raise click.UsageError("Name sites with --site, --epsilon and --delta, or give --config.")
    if len(set(sites)) < len(sites):
        raise click.UsageError("A site is named twice.")
    each = {"epsilon": epsilon, "delta": delta, "unit": unit, "test": test}
    where = {"host": host, "port": port}
    return tables.build(
        Federation, {"sites": dict.fromkeys(sites, each), "coordinator": where, "officers": officers}, "federation"
    )


@command.command("check")
@_FOLDER
@as_json
def check(folder: Path, *, as_json: bool) -> None:
    """Say what is wrong with a folder: certificates, keys, rules, ledger, ports, clocks, signatures. Changes nothing.

    FOLDER is a coordinator's, a site's, or the one that `init` wrote.

    \b
    Examples:
      sordino deploy check fed/sites/north
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import checking

    found = checking.check(folder)
    if as_json:
        echo_json({"problems": found})
    for name, problems in found.items():
        if not as_json:
            click.echo(f"{name}: {'nothing is wrong' if not problems else ''}".rstrip())
            for problem in problems:
                click.echo(f"  {problem}")
    count = sum(map(len, found.values()))
    if count:
        what = "a problem" if count == 1 else f"{count} problems"
        raise VerificationError.about("deploy", f"has {what}", "see above", folder=str(folder))


@command.command("sign")
@_FOLDER
@click.option("--key", type=click.Path(path_type=Path), help="A reviewer's key, if not the site's own.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="For the coordinator's signatures/.")
def sign(folder: Path, *, key: Path | None, out: Path) -> None:
    """Sign the code that is installed here, as a site's reviewer. Nodes run no code without such a signature.

    FOLDER is the site's. Put the file that is written into the coordinator's folder `signatures`.

    \b
    Examples:
      sordino deploy sign sites/north --out north.json
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import bundle, signatures
    from sordino.ledger.keys import SigningKey
    from sordino.ledger.rules import read_rules
    from sordino.ledger.silo import FILE

    code = bundle.fab()
    mine = SigningKey.load(key or folder / read_rules(folder / FILE).key)
    out.write_text(signatures.sign(mine, code).json(), encoding="utf-8")
    click.echo(f"{mine.name} signed {bundle.digest(code)}: {out}")


@command.command("renew")
@_FOLDER
@click.option("--days", default=365, show_default=True, help="For how many days it holds.")
def renew(folder: Path, *, days: int) -> None:
    """Make the coordinator's certificate anew. It needs ca.key; sites need nothing new. Start the coordinator again.

    FOLDER is the one that `init` wrote.

    \b
    Examples:
      sordino deploy renew fed --days 365
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.core import checks
    from sordino.experiment.deploy import layout

    checks.count("deploy", days=days)
    layout.renew(folder, days)
    click.echo(f"new: {folder / 'coordinator/server.pem'}, for {days} days")


@command.command("serve")
@_FOLDER
@click.option("--superlink", default="", metavar="HOST:PORT", help="Where the coordinator is, if not as in site.toml.")
@click.option("--listen", default="", metavar="ADDRESS", help="Where to listen, if not as in coordinator.toml.")
def serve(folder: Path, *, superlink: str, listen: str) -> None:
    """Run what belongs to a folder: the coordinator's server behind its guard, or a site's node.

    \b
    Examples:
      sordino deploy serve /etc/sordino/north
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import processes

    processes.serve(folder, superlink=superlink, listen=listen)


@command.command("up")
@_FOLDER
@click.option("--local", is_flag=True, help="Everything on this machine's loopback; there is no other way.")
@click.option("--detach", is_flag=True, help="Return once all nodes are online; `deploy down` stops them.")
@click.option("--wait", "wait_s", default=180.0, show_default=True, help="Seconds to wait for the nodes.")
def up(folder: Path, *, local: bool, detach: bool, wait_s: float) -> None:
    """Start a whole federation on this machine, as separate processes, for a try. Ctrl-C stops all of them.

    A process that ends by itself is started again, after a pause that grows to 30 seconds: `deploy status` says so.
    The code is signed for every site, which only someone who holds every site's key can do.

    \b
    Examples:
      sordino deploy up --local fed
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import local as here

    if not local:
        raise click.UsageError("On many machines each one starts its own folder; for all of it here say --local.")
    got: list[int] = []  # an exception out of a signal may be lost, wherever it strikes
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: got.append(number))
    try:
        started = here.up(folder, wait_s=wait_s, say=click.echo, stopping=lambda: bool(got))
        click.echo(f"logs: {folder / 'logs'}")
        if detach and not got:
            return
        while started[0].alive and not got:  # the keeper, which starts the others again
            time.sleep(0.5)
        stopped = here.down(folder)
        click.echo(f"stopped: {', '.join(stopped) or 'nothing was left'}")
    except KeyboardInterrupt:
        click.echo("stopped before all sites were online")
    if got:
        sys.exit(128 + got[0])


@command.command("down")
@_FOLDER
def down(folder: Path) -> None:
    """Stop what `up` started, and all that those started, and empty the coordinator's database.

    \b
    Examples:
      sordino deploy down fed
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import local

    stopped = local.down(folder)
    click.echo(f"stopped: {', '.join(stopped) or 'nothing ran'}")


@command.command("status")
@_FOLDER
@as_json
def status(folder: Path, *, as_json: bool) -> None:
    """Say which processes of a try run, and which sites' nodes are online.

    \b
    Examples:
      sordino deploy status fed
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import local

    found = local.status(folder)
    if as_json:
        echo_json(found.to_plain())
        return
    for name, words in found.words.items():
        click.echo(f"{name}: {words}")
    if not found.words:
        click.echo(f"nothing runs here; `sordino deploy up --local {folder}` starts all of it")


@command.command("scrub")
@_FOLDER
def scrub(folder: Path) -> None:
    """Remove the contents of all messages from a coordinator's database, and what is left of them in its files.

    FOLDER is the coordinator's. Runs do this when they end.

    \b
    Examples:
      sordino deploy scrub fed/coordinator
    """  # noqa: D301 - \b is click's mark: keep the lines that follow
    from sordino.experiment.deploy import at_rest, layout

    gone = at_rest.scrub(at_rest.place(folder, layout.read_coordinator(folder).database))
    click.echo(f"removed {gone} rows")
