"""A run reads and writes messages in its server's database, which lies on the same machine, instead of asking for them.

grid ──► GetNodes, and a sign of life ──► the server, over TLS with the run's token
     └─► messages and their parts ──► Flower's own handlers, called here on the same database

A request to the server costs it about 10 ms of CPU, nearly all of it in layers between the socket and the handler. A
run that claims its own token from the database needs none of them, and nothing on the network gets a way in.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.server.superlink.linkstate import LinkState

HANDLED = {
    "PushMessages": "push_messages",
    "PushObject": "push_object",
    "PullMessages": "pull_messages",
    "PullObject": "pull_object",
    "ConfirmMessageReceived": "confirm_message_received",
}
"""What is done here: methods of Flower's client, and its handlers."""

ALIVE_S, BLIND_S = 5.0, 1.0
"""How seldom a run that waits asks the server whether it is there, and looks for answers that nothing announced."""


class Changes:
    """Whether others have written to an SQLite file: 10 µs a look.

    Args:
        database: It has to be there.
    """

    def __init__(self, database: Path) -> None:
        self._line = sqlite3.connect(f"file:{database}?mode=ro", uri=True, check_same_thread=False)
        self._seen = -1

    def any(self) -> bool:
        """Whether there was a change since the last call; the first one says yes."""
        before, (self._seen,) = self._seen, self._line.execute("PRAGMA data_version").fetchone()
        return before != self._seen

    def close(self) -> None:
        """Close the file."""
        self._line.close()


class Direct:
    """Stands in for the client by which Flower's grid reaches its server.

    Args:
        opened: Flower's state in the server's database.
        run: Whose messages.
        line: The client; all that is not of messages goes through it.
        changes: Of the database.
        clock: Tells seconds.
    """

    def __init__(
        self, opened: LinkState, run: int, line: Any, changes: Changes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from flwr.proto.task_pb2 import Task
        from flwr.superlink.servicer.runtime import runtime_handlers

        self._opened, self._task, self._line = opened, Task(run_id=run), line
        self._handlers, self._changes, self._clock = runtime_handlers, changes, clock
        self._asked = self._looked = clock()

    def __getattr__(self, name: str) -> Any:
        if name not in HANDLED:
            return getattr(self._line, name)
        handler = getattr(self._handlers, HANDLED[name])
        return lambda request: handler(request, self._opened, self._task)

    def PullMessages(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        """Answers that are there. Nobody who waits for them finds out otherwise that the server is gone."""
        from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesResponse

        now = self._clock()
        if now - self._asked >= ALIVE_S:
            self._line.GetNodes(GetNodesRequest())
            self._asked = now
        # A node that went away, and a message that expired, are no changes; Flower tells of both when it is asked.
        if not self._changes.any() and now - self._looked < BLIND_S:
            return PullAppMessagesResponse()
        self._looked = now
        return self._handlers.pull_messages(request, self._opened, self._task)

    def close(self) -> None:
        """Close the line."""
        self._line.close()
