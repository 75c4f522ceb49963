"""Run an experiment as the ServerApp of a federation whose server runs on this machine.

folder of the coordinator ──► a stored, signed run ──► its token ──► the grid ──► the loop ──► messages wiped
                                                     (messages go through the database, see `direct`)

The process that called `sordino run` is the ServerApp: Flower starts none, and nobody on the network can.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.core import checks
from sordino.core.errors import ConfigError, EngineError, SordinoError
from sordino.experiment.config import Experiment, read
from sordino.experiment.deploy import at_rest, bundle, flower_code, layout, signatures
from sordino.experiment.deploy.processes import environment
from sordino.experiment.flower.direct import Changes, Direct
from sordino.experiment.flower.log import hush
from sordino.experiment.remote.federation import Federation
from sordino.experiment.remote.signing import Signing
from sordino.federation.engines.flower import GridPost
from sordino.federation.post import Within
from sordino.ledger.keys import SigningKey, VerifyKey

if TYPE_CHECKING:
    from flwr.serverapp import Grid

KEY = "coordinator.pem"
"""In a coordinator's folder: its private key."""

AGAIN_S, TRIES = 0.05, 12
"""How soon a piece of a reply is asked for again, each time after twice as long and then every 10 s, and how often.

A site that dies, or stops on purpose, while it sends has announced a reply that never comes. Flower asks for it for two
hours, and for nobody else's meanwhile; here the others wait for 50 seconds at most. And it asks again after a second at
the earliest: pieces come some 50 ms after what announces them.
"""

LOOK_S, SELDOM_S = 0.02, 0.2
"""The shortest and the longest time between two looks for replies into the database."""

COORDINATOR, FILE, RUNS = "SORDINO_COORDINATOR", "SORDINO_EXPERIMENT", "SORDINO_RUNS"
"""Where a ServerApp that Flower starts finds the coordinator's folder, the experiment file, and the run folders."""


@dataclass(frozen=True)
class Patience:
    """How long a coordinator waits, in seconds, and for how many silos.

    Args:
        minimum: Least number of silos whose updates make a round.
        wait: At the start, until all silos are there.
        timeout: In a round, for a silo's update.
        answer: For what costs no training.
    """

    minimum: int = 1
    wait: float = 120.0
    timeout: float = 3600.0
    answer: float = 120.0

    def __post_init__(self) -> None:
        checks.count("run", minimum=self.minimum)
        checks.positive("run", timeout=self.timeout)


def federation(
    folder: Path, experiment: Experiment, patience: Patience = Patience(), tell: Callable[[str], None] = lambda _: None
) -> Federation:
    """The silos of a coordinator's folder, not connected yet.

    Args:
        folder: As `sordino deploy init` makes it.
        experiment: As written.
        patience: How long to wait.
        tell: Told in words what goes wrong at the silos.

    Raises:
        ConfigError: The folder is not a coordinator's.
    """
    keys = {
        path.stem: VerifyKey.parse(path.read_text("utf-8").strip())
        for path in sorted((folder / layout.SILOS).glob("*.pub"))
    }
    if not (keys and (folder / KEY).exists()):
        rule = "is no coordinator's folder: it lacks a key, or those of silos"
        remedy = "give the folder `coordinator` of what `sordino deploy init` wrote"
        raise ConfigError.about("federation", rule, remedy, folder=str(folder))
    return Federation(
        experiment=experiment,
        post=Within({}),
        key=SigningKey.load(folder / KEY),
        silos=keys,
        minimum=patience.minimum,
        wait=patience.wait,
        timeout=patience.timeout,
        answer=patience.answer,
        tell=tell,
    )


@contextlib.contextmanager
def connected(folder: Path, told: Federation, plan: str) -> Iterator[Federation]:
    """The federation over the server that runs in this folder, for as long as a run takes.

    Args:
        folder: The coordinator's.
        told: The federation.
        plan: Digest of the plan, which the stored run names.

    Raises:
        EngineError: The server is not running.
    """
    hush()
    mine = layout.read_coordinator(folder)
    os.environ.update(environment(folder, telemetry=mine.telemetry))
    database = at_rest.place(folder, mine.database)
    if not database.exists():
        raise EngineError.about("run", "is not running", f"`sordino deploy serve {folder}`", coordinator=str(folder))
    code = bundle.fab()
    signed = signatures.read(folder, code)
    try:
        with flower_code.state(database) as opened, contextlib.closing(Changes(database)) as changes:
            run = flower_code.stored_run(opened, code, signed, {"plan": plan})
            token = flower_code.claim(opened, run)
            direct = partial(Direct, opened, run, changes=changes)
            with _grid(f"127.0.0.1:{mine.inside}", (folder / "ca.pem").read_bytes(), token, direct) as grid:
                yield replace(told, post=Signing(GridPost(grid, LOOK_S, SELDOM_S), told.key, told.silos))
    finally:
        with contextlib.suppress(SordinoError):  # another run is under way, or the server is gone: `deploy scrub`
            at_rest.scrub(database)


@contextlib.contextmanager
def _grid(address: str, authority: bytes, token: str, direct: Callable[[Any], Direct]) -> Iterator[Grid]:
    """Flower's grid for a task whose token is ours, with signs of life as long as it is open."""
    import httpx
    from flwr.common.constant import SubStatus
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid, http_grid
    from sqlalchemy.exc import SQLAlchemyError

    patched: Any = http_grid
    patched.pull_objects = partial(pull_objects, max_tries_per_object=TRIES, initial_backoff=AGAIN_S)
    grid: Any = HttpGrid(address, root_certificates=authority, token=token)
    client: Any = grid._runtime_client  # noqa: SLF001 - as Flower's own runner of ServerApps
    alive = HeartbeatSender(make_task_heartbeat_fn_http(client))
    alive.start()
    status, why = SubStatus.FAILED, "stopped"
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid.set_run(run_from_proto(task.run))
        grid._client = direct(client)  # noqa: SLF001 - it has no other place for a client
        yield grid
        status, why = SubStatus.COMPLETED, ""
    except (httpx.HTTPError, SQLAlchemyError) as problem:
        raise EngineError.about(
            "run", f"lost the server: {problem}", "start it again; the same command goes on"
        ) from None
    finally:
        with contextlib.suppress(httpx.HTTPError):
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=why))
        alive.stop()
        grid.close()


def run_here(grid: Grid, given: Mapping[str, str] = os.environ) -> None:
    """What the ServerApp does where Flower itself starts it: the experiment that the environment names."""
    from sordino.experiment.plan import make_plan
    from sordino.experiment.population import load
    from sordino.experiment.run import run

    file, folder = Path(given[FILE]), Path(given[COORDINATOR])
    experiment = read(file)
    population = load(experiment)
    told = federation(folder, experiment, tell=print)
    told = replace(told, post=Signing(GridPost(grid), told.key, told.silos))
    result = run(
        make_plan(experiment, population),
        population,
        file.read_text(encoding="utf-8"),
        Path(given.get(RUNS, "runs")),
        base=file.parent,
        federation=told,
    )
    print(json.dumps(result.summary))  # noqa: T201 - Flower keeps what a ServerApp prints
