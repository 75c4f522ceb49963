"""Do the work of a site's node in the site's own process, instead of in one that Flower starts for every message.

The node (`flower-supernode --isolation process`) lets whoever knows its secret ask for its tasks. Here the task's
message goes to the app that is installed at the site; the code that came with the run is never started. It also saves
what starting Python and loading a model for every message costs.

These are Flower 1.42's own interfaces for such executors; they may change with a release, so they are used here only.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.experiment.flower.bell import Bell, hung
from sordino.experiment.flower.waiting import pause
from sordino.federation.post import Answering

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.supercore.runtime import RuntimeHttpClient

SECRET = "superexec.secret"  # noqa: S105 - the file's name
LEAST_S, MOST_S, RUNG_S = 0.05, 0.5, 3.0
"""The shortest and the longest time between two questions to the node, and the longest once it was heard to ring."""


def work(folder: Path, port: int, answering: Answering, ending: threading.Event, say: Callable[[str], None]) -> None:
    """Ask a node for tasks and do them, until told to end. The node may come and go.

    Args:
        folder: The site's; the secret that its node knows lies there.
        port: The node's, on loopback.
        answering: Whoever answers letters.
        ending: Set to end.
        say: Told when the node is lost or found.
    """
    import httpx
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType

    from sordino.experiment.flower_app import client_app

    logging.getLogger("flwr").setLevel(logging.WARNING)
    app, there, worked = client_app(answering), True, 0.0
    address = f"127.0.0.1:{port}"
    secret = (folder / SECRET).read_bytes().strip() if (folder / SECRET).exists() else b""
    client = _client(address, _asking(secret))
    with contextlib.closing(client), hung(port) as bell:
        while not ending.is_set():
            try:
                offer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
                if not there:
                    say("the node is there")
                there = True
                if offer.HasField("task") and offer.token:
                    _tried(partial(do, address, offer.token, app), say)
                    worked = time.monotonic()
                    continue
            except httpx.HTTPError as problem:
                if there:
                    say(f"no work from the node at {address}: {type(problem).__name__}")
                there = False
                ending.wait(1.0)
            _rest(bell, time.monotonic() - worked, ending)


def _rest(bell: Bell, waited: float, ending: threading.Event) -> None:
    """Until the bell, the end, or the time to ask without either."""
    left = RUNG_S if bell.heard else pause(waited, LEAST_S, MOST_S)
    while left > 0 and not ending.is_set() and not bell.wait(min(left, MOST_S)):
        left -= MOST_S


def _tried(task: Callable[[], None], say: Callable[[str], None]) -> None:
    """Do a task. One that is broken, or none of ours, comes to nothing; it does not end the site's process."""
    import httpx

    try:
        task()
    except httpx.HTTPError:
        raise  # the node is gone
    except Exception as problem:  # noqa: BLE001 - whatever a coordinator sends
        say(f"a task of the node came to nothing: {type(problem).__name__}")


def do(address: str, token: str, app: ClientApp) -> None:
    """Do one task: its message goes to the app, the app's reply to the node."""
    import httpx
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    client = _client(
        address, [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), RuntimeTokenHttpInterceptor(token)]
    )
    alive = HeartbeatSender(make_task_heartbeat_fn_http(client))
    alive.start()
    try:
        message, context, _, _ = pull_task_input(client)
        push_message(client, app(message=message, context=context), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        with contextlib.suppress(RuntimeError):
            alive.stop()
        with contextlib.suppress(httpx.HTTPError):
            client.close()


def _asking(secret: bytes) -> list[Any]:
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor

    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    if not secret:
        return [version]
    asked = ["/flwr.proto.Runtime/AcquireTask"]
    return [version, SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=asked)]


def _client(address: str, interceptors: list[Any]) -> RuntimeHttpClient:
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.runtime.tracing import RuntimeTracingInterceptor

    retry = make_simple_http_retry_invoker()
    retry.max_tries = 1
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # loopback of the site's own machine, as Flower's own executor
        root_certificates=None,
        interceptors=[RuntimeTracingInterceptor(), *interceptors],
        retry_invoker=retry,
    )
