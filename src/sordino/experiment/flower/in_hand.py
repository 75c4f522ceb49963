"""The message that a site's process has in hand, noted: one that was killed answers for it as soon as it is back.

Flower's node waits for the answer to a message before it takes the next, and gives a process up after 60 seconds
without a sign of life. Until then nobody else could tell the coordinator that nothing will come.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sordino.core import tables
from sordino.core.errors import ConfigError

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.supercore.runtime import RuntimeHttpClient

FILE = ".in-hand"
REASON = "the site's process ended with the message in hand, and has started again"


@dataclass(frozen=True)
class Task:
    """A node's task.

    Args:
        token: By which the node knows who does it.
        head: The message without its contents, in base64; empty: it has not come yet.
    """

    token: str
    head: str = ""


@dataclass(frozen=True)
class InHand:
    """The note, in the site's folder. It is for a process that ends, not for a machine: the node ends with that one.

    Args:
        folder: The site's.
    """

    folder: Path

    def note(self, token: str, message: Message | None = None) -> None:
        """Note a task, and its message once that is there."""
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto

        head = b"" if message is None else message_to_proto(remove_content_from_message(message)).SerializeToString()
        draft = self.folder / f"{FILE}.part"
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(asdict(Task(token, base64.b64encode(head).decode()))), encoding="utf-8")
        draft.replace(self.folder / FILE)

    def clear(self) -> None:
        """It is done."""
        (self.folder / FILE).unlink(missing_ok=True)

    def left(self) -> Task | None:
        """What an earlier process had in hand; asking again finds nothing."""
        found = None
        with suppress(OSError, ValueError, ConfigError):
            found = tables.build(Task, json.loads((self.folder / FILE).read_text(encoding="utf-8")), "in hand")
        self.clear()
        return found


def answer_for(client: RuntimeHttpClient, task: Task) -> None:
    """Tell a node that nothing comes of a message that an earlier process had.

    Args:
        client: The node's, with the task's token.
        task: With its message.
    """
    from flwr.app import Context, Error, Message, RecordDict
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.common.serde import message_from_proto
    from flwr.proto.message_pb2 import Message as Wire
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

    message = message_from_proto(Wire.FromString(base64.b64decode(task.head)))
    run, node = message.metadata.run_id, message.metadata.dst_node_id
    TaskIdentity.run_id, TaskIdentity.node_id = run, node
    context = Context(run, node, {}, RecordDict(), {})
    push_message(client, Message(Error(ErrorCode.CLIENT_APP_CRASHED, REASON), reply_to=message), context)
    push_task_output(client, context, SubStatus.COMPLETED, "")
