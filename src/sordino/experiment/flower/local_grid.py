"""A Flower grid inside one process: the very same ServerApp and ClientApps, without servers, processes or waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.task_identity import TaskIdentity

RUN = 1


class LocalGrid(Grid):
    """Messages go straight to apps in this process, one after another, and their replies wait to be pulled.

    Args:
        apps: Each node's app, by the node's number.
    """

    def __init__(self, apps: Mapping[int, ClientApp]) -> None:
        self._apps = dict(apps)
        self._contexts = {node: Context(RUN, node, {}, RecordDict(), {}) for node in apps}
        self._replies: dict[str, Message] = {}
        self._identify(0)

    def _identify(self, node: int) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = RUN, RUN, node

    def set_run(self, run: Any) -> None:
        del run

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError("construct a Message")

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            number = message.metadata.__dict__["_message_id"] = message.object_id
            self._replies[number] = self._answered(message)
            numbers.append(number)
        return numbers

    def _answered(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        self._identify(node)
        try:
            reply = self._apps[node](message, self._contexts[node])
        except Exception as problem:  # noqa: BLE001 - as Flower does: an app's exception is an error reply
            reply = Message(Error(code=0, reason=repr(problem)), reply_to=message)
        finally:
            self._identify(0)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        return reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        return self.pull_messages(self.push_messages(messages))


def run_locally(server: ServerApp, apps: Mapping[int, ClientApp]) -> None:
    """Run a ServerApp over ClientApps in this process."""
    server(LocalGrid(apps), Context(RUN, 0, {}, RecordDict(), {}))
