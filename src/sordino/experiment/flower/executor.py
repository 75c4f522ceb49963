"""Do the work of a site's node in the site's own process, instead of in one that Flower starts for every message.

The node (`flower-supernode --isolation process`) lets whoever knows its secret ask for its tasks. Here the task's
message goes to the app that is installed at the site; the code that came with the run is never started. It also saves
what starting Python and loading a model for every message costs.

These are Flower 1.42's own interfaces for such executors; they may change with a release, so they are used here only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.experiment.flower.bell import Bell, hung
from sordino.experiment.flower.in_hand import InHand, answer_for
from sordino.experiment.flower.log import hush
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

    hush()
    app, there, worked = client_app(answering), True, 0.0
    address = f"127.0.0.1:{port}"
    secret = (folder / SECRET).read_bytes().strip() if (folder / SECRET).exists() else b""
    client, in_hand = _client(address, _asking(secret)), InHand(folder)
    with contextlib.suppress(httpx.HTTPError):  # there is no node, or it is another one
        _tried(partial(_answer_for_the_last, address, in_hand, app), say)
    in_hand.clear()
    with contextlib.closing(client), hung(port) as bell:
        while not ending.is_set():
            try:
                offer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
                if not there:
                    say("the node is there")
                there = True
                if offer.HasField("task") and offer.token:
                    _tried(partial(do, address, offer.token, app, in_hand), say)
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
    except httpx.TransportError:
        raise  # the node is gone
    except Exception as problem:  # noqa: BLE001 - whatever a coordinator sends
        say(f"a task of the node came to nothing: {type(problem).__name__}")


def _answer_for_the_last(address: str, in_hand: InHand, app: ClientApp) -> None:
    """Answer for what a process had in hand that was killed here, if its node is still the same."""
    left = in_hand.left()
    if left is not None and left.head:
        with contextlib.closing(_doing(address, left.token)) as client:
            answer_for(client, left)
    elif left is not None:  # its message had not come yet, and still waits
        do(address, left.token, app, in_hand)


def do(address: str, token: str, app: ClientApp, in_hand: InHand) -> None:
    """Do one task: its message goes to the app, the app's reply to the node."""
    import httpx
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    in_hand.note(token)
    client = _doing(address, token)
    alive = HeartbeatSender(partial(_sign_of_life, client))
    alive.start()
    try:
        message, context, _, _ = pull_task_input(client)
        in_hand.note(token, message)
        push_message(client, app(message=message, context=context), context)
        in_hand.clear()
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        with contextlib.suppress(RuntimeError):
            alive.stop()
        with contextlib.suppress(httpx.HTTPError):
            client.close()


def _sign_of_life(client: RuntimeHttpClient) -> bool:
    """Tell the node that somebody is at work. Where it does not want to know, Flower's own would end this process."""
    import httpx
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

    with contextlib.suppress(httpx.HTTPError):
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    return True


def _doing(address: str, token: str) -> RuntimeHttpClient:
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor

    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    return _client(address, [version, RuntimeTokenHttpInterceptor(token)])


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
    # A node that has started again does not know the tokens of the last one: Flower's own would end this process then.
    retry.max_tries, retry.should_giveup = 1, lambda _: True
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # loopback of the site's own machine, as Flower's own executor
        root_certificates=None,
        interceptors=[RuntimeTracingInterceptor(), *interceptors],
        retry_invoker=retry,
    )
