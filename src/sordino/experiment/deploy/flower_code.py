"""All that is asked of Flower's private interfaces: its server's application, and its database.

They are those of Flower 1.42 and may change with any release, so they stand in this one file, behind tests. Runs and
nodes are written into the database by whoever owns its file; nothing on the network can start code or add a node.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError, EngineError
from sordino.experiment.deploy import bundle
from sordino.experiment.deploy.signatures import CodeSignature

if TYPE_CHECKING:
    from fastapi import FastAPI
    from flwr.server.superlink.linkstate import LinkState

VERSION = "1.42."


def require_flower() -> str:
    """The version of Flower that is installed here.

    Raises:
        ConfigError: None, or another one than this file is written for.
    """
    try:
        found = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError.about("flower", "is not installed", "pip install 'sordino[flower]'") from None
    if not found.startswith(VERSION):
        raise ConfigError.about("flower", f"must be {VERSION}*", "pip install 'sordino[flower]'", version=found)
    return found


def application(database: Path, secret: bytes) -> FastAPI:
    """Flower's server as an ASGI application, which asks every node for its key.

    It starts no process and opens no port of its own.

    Args:
        database: The SQLite file.
        secret: What a process must know that asks for tasks over the network. Our own runs take theirs from the
            database, so that nobody needs to know it.
    """
    from flwr.superlink.main import create_app

    require_flower()
    with _environment(FLWR_DATABASE=str(database)), _quiet():
        app = create_app()
    app.state.enable_supernode_auth = True
    app.state.superexec_auth_secret = secret
    return app


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@contextmanager
def _quiet() -> Iterator[None]:
    """Flower sets up its database in a way that its migration library calls outdated; nobody here can change that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def state(database: Path) -> Iterator[LinkState]:
    """Flower's state in a database, which is made if there is none."""
    from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

    require_flower()
    _, factory = get_objectstore_linkstate_factories(str(database), get_federation_manager())
    with _quiet():
        opened = factory.state()
    try:
        yield opened
    finally:
        parts: tuple[Any, ...] = (opened, opened.object_store)
        for part in parts:
            part._engine.dispose()  # noqa: SLF001 - it has no `close`


def register(opened: LinkState, sites: Mapping[str, bytes]) -> None:
    """Make the registered nodes those of the sites, and no others.

    Args:
        opened: Flower's state.
        sites: Public keys in OpenSSH's form, by name of the site.
    """
    from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
    from flwr.supercore.constant import NodeStatus

    wanted = {_pem(key): name for name, key in sites.items()}
    current = [NodeStatus.REGISTERED, NodeStatus.ONLINE, NodeStatus.OFFLINE]
    known = {bytes(node.public_key): node for node in opened.get_node_info(statuses=current)}
    for key in known.keys() - wanted.keys():
        opened.delete_node(NOOP_FLWR_AID, known[key].node_id)
    for key in wanted.keys() - known.keys():
        if not opened.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 30, name=wanted[key]):
            raise EngineError.about("flower", "took no node; look at its log", site=wanted[key])


def _pem(openssh: bytes) -> bytes:
    """A node's key as Flower compares it."""
    try:
        key = serialization.load_ssh_public_key(openssh)
    except ValueError:
        raise ConfigError.about("node key", "is not a public key in OpenSSH's form", "copy node.pub again") from None
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def nodes(opened: LinkState) -> dict[str, tuple[int, str]]:
    """Each registered site's node: its number in Flower, and `online`, `offline` or `registered` (never seen)."""
    return {node.name: (node.node_id, node.status) for node in opened.get_node_info() if node.status != "unregistered"}


def stored_run(
    opened: LinkState, content: bytes, signatures: Sequence[CodeSignature], config: Mapping[str, str]
) -> int:
    """Store a bundle with its signatures, and begin a run of it.

    Args:
        opened: Flower's state.
        content: The bundle.
        signatures: What reviewers signed, one at least; nodes that trust none of them refuse the run.
        config: What the run adds to the bundle's own settings.

    Returns:
        The run, which waits for whoever takes its token.

    Raises:
        ConfigError: The bundle is none of Flower's, is signed by nobody, or has no setting of that name.
        EngineError: Flower did not take it.
    """
    from flwr.cli.config_utils import get_fab_metadata
    from flwr.common.config import get_fab_config
    from flwr.common.constant import NOOP_FLWR_AID
    from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
    from flwr.supercore.fab import Fab

    try:
        settings = get_fab_config(content)["tool"]["flwr"]["app"].get("config", {})
        name, version = get_fab_metadata(content)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError.about("bundle", f"is none of Flower's: {error}") from error
    if not signatures:
        rule = "is signed by nobody, so sites would refuse it"
        raise ConfigError.about("code", rule, "see `sordino deploy sign`", digest=bundle.digest(content)[:16])
    for key in config:
        if key not in settings:
            raise ConfigError.about("bundle", f"has no setting {key!r}", nearest(key, settings))
    # Flower asks a bundle for a licence of its hub before it looks at signatures; any text will do.
    proofs = {one.reviewer: one.entry() for one in signatures} | {"valid_license": "Valid"}
    fab = Fab(bundle.digest(content), content, proofs)
    opened.store_app(
        fab=fab,
        federation_id=NOOP_FEDERATION_ID,
        app_id=f"@{name}",
        app_type=TaskType.SERVER_APP,
        added_by=NOOP_FLWR_AID,
    )
    run = opened.create_run(
        name, version, fab.hash_str, dict(config), NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
    )
    if not run:
        raise EngineError.about("flower", "took no run; look at its log")
    return int(run)


def claim(opened: LinkState, run: int) -> str:
    """The token of a run's own task, which its process shows to the server on the inner port. Given out once.

    Raises:
        EngineError: Somebody has it already.
    """
    task = next((task for task in opened.get_tasks(run_ids=[run])), None)
    token = opened.claim_task(task.task_id) if task is not None else None
    if token is None:
        raise EngineError.about("flower", "is taken already, or gone", run=run)
    return str(token)


def running(opened: LinkState) -> list[int]:
    """Runs that have begun and not ended."""
    return [run.run_id for run in opened.get_run_info() if run.status.status != "finished"]


def verifications(opened: LinkState, digest: str) -> dict[str, Any]:
    """What stands beside a stored bundle: entries of reviewers by name. Read by tests and `deploy check`."""
    fab = opened.get_fab(digest)
    return {} if fab is None else {name: _entry(text) for name, text in fab.verifications.items()}


def _entry(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
