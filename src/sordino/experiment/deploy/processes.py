"""What runs in a folder: the coordinator's server behind its guard, or a site's node.

coordinator   Flower's server ◄─ Holding ◄─ Guard("fleet") ◄─ TLS, the public port   one process; it starts no code
                              ◄──────────── Guard("runtime") ◄─ TLS, loopback
site          flower-supernode, with the site's node key, the authority's certificate, and whose signed code it takes
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.core.errors import EngineError
from sordino.experiment.deploy import at_rest, flower_code, layout
from sordino.experiment.deploy.guard import App, Guard
from sordino.experiment.deploy.layout import CoordinatorFile, SiteFile
from sordino.experiment.flower.holding import Holding

if TYPE_CHECKING:
    import uvicorn

_LONGEST_HEADERS = 16 * 2**10
_LOOPBACK = "127.0.0.1"


def environment(folder: Path, *, telemetry: bool, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of a process of Flower: its own home, nothing reported, nothing installed at run time."""
    switches = {"FLWR_DISABLE_UPDATE_CHECK": "0" if telemetry else "1", "FLWR_TELEMETRY_ENABLED": str(int(telemetry))}
    home = given.get("FLWR_HOME", str(folder.resolve() / "flower"))
    # A site's proxy may lead to the coordinator; what stays on this machine must not go through it.
    direct = ",".join(filter(None, [given.get("no_proxy", given.get("NO_PROXY", "")), "localhost", _LOOPBACK]))
    switches |= {"no_proxy": direct, "NO_PROXY": direct}
    # Flower starts programs of its own by name: those beside this Python, whether or not its environment was activated.
    switches["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), given.get("PATH", "")]))
    return {**given, **switches, "FLWR_HOME": home, "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}


def secret_file(folder: Path, name: str) -> Path:
    """A private file: the service manager's copy for this process, if it made one, or the folder's own."""
    lent = Path(os.environ.get("CREDENTIALS_DIRECTORY", os.devnull)) / name
    return lent if lent.is_file() else folder / name


def node_command(folder: Path, site: SiteFile, *, superlink: str = "") -> list[str]:
    """The command of a site's node."""
    command = [
        *(sys.executable, "-m", "sordino.experiment.flower.node"),
        *("--superlink", superlink or site.superlink),
        *("--root-certificates", str(folder / "ca.pem")),
        *("--auth-supernode-private-key", str(secret_file(folder, "node.key"))),
        *("--trusted-entities", str(folder / "trusted.yaml")),
        *("--host", _LOOPBACK, "--port", str(site.port)),
        *("--isolation", site.isolation),
    ]
    if site.isolation == "process":
        command += ["--superexec-auth-secret-file", str(secret_file(folder, "superexec.secret"))]
    return command


def trainer_command(folder: Path) -> list[str]:
    """The command of a site's trainer."""
    return [sys.executable, "-m", "sordino.cli", "silo", "serve", str(folder)]


def serve(folder: Path, *, superlink: str = "", listen: str = "") -> None:
    """Run what belongs to a folder until a signal comes. A site's node takes this process over.

    Args:
        folder: A coordinator's, or a site's.
        superlink: Where the coordinator is, if not where the site's file says.
        listen: Where the coordinator listens, if not where its file says.

    Raises:
        ConfigError: The folder is neither, or Flower is missing.
        EngineError: A port is taken.
    """
    flower_code.require_flower()
    folder = folder.resolve()
    if (folder / layout.SITE).exists():
        site = layout.read_site(folder)
        command = node_command(folder, site, superlink=superlink)
        os.execve(command[0], command, environment(folder, telemetry=site.telemetry))  # noqa: S606 - no shell wanted
    asyncio.run(coordinate(folder, layout.read_coordinator(folder), listen))


def site_keys(folder: Path) -> dict[str, bytes]:
    """The public node keys of a coordinator's sites, by name."""
    return {path.stem: path.read_bytes() for path in sorted((folder / "sites").glob("*.pub"))}


async def coordinate(folder: Path, mine: CoordinatorFile, listen: str = "") -> None:
    """Run a coordinator's server on its two ports until a signal comes."""
    os.environ.update(environment(folder, telemetry=mine.telemetry))
    database = at_rest.place(folder, mine.database, make=True)
    os.umask(0o077)  # the database holds updates
    with flower_code.state(database) as opened:
        flower_code.register(opened, site_keys(folder))
    app: App = flower_code.application(database, secrets.token_bytes(32))
    most = mine.most_mib * 2**20
    # The coordinator's own run sends models out and may take larger pieces at once.
    holding = Holding(app, database)
    public = _listener(Guard(holding, "fleet", most), folder, "on")
    inside = _listener(Guard(app, "runtime", 64 * most), folder, "off")
    sockets = [_bound(listen or mine.listen, mine.port), _bound(_LOOPBACK, mine.inside)]

    def stop() -> None:
        holding.end()
        public.should_exit = inside.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    # The first one to end, for whatever reason, ends the other.
    tasks = [asyncio.create_task(one.serve(sockets=[at])) for one, at in zip((public, inside), sockets, strict=True)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop()
    await asyncio.gather(*tasks)


def _bound(address: str, number: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, number), family=family, backlog=512)
    except OSError as error:
        raise EngineError.about("coordinator", f"cannot be listened on: {error.strerror}", port=number) from error


def _listener(guard: Guard, folder: Path, lifespan: Any) -> uvicorn.Server:
    import uvicorn

    class Listener(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # both servers of a coordinator end by one signal

    config = uvicorn.Config(
        guard,
        lifespan=lifespan,
        http="h11",  # strict about requests, and bounded in what it holds of their heads
        ws="none",
        h11_max_incomplete_event_size=_LONGEST_HEADERS,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        ssl_certfile=folder / "server.pem",
        ssl_keyfile=secret_file(folder, "server.key"),
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    return Listener(config)
