"""Messages go through the server's database, not through its server: one grid, and Flower's handlers at both ends."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import GetNodesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.fleet import fleet_handlers as fleet

from sordino.experiment.deploy import bundle, flower_code, signatures
from sordino.experiment.flower import direct
from sordino.experiment.flower.direct import Changes, Direct
from sordino.ledger.keys import SigningKey


class Line:
    """The way over the server; it counts signs of life."""

    def __init__(self) -> None:
        self.asked, self.gone = 0, False

    def GetNodes(self, request):  # noqa: N802 - Flower's name
        del request
        self.asked += 1
        if self.gone:
            raise ConnectionError("gone")
        return GetNodesResponse()

    def close(self):
        pass


class Now:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def over(tmp_path):
    """A grid over a database with one node in it, whose run has begun."""
    path = tmp_path / "superlink.db"
    with flower_code.state(path) as opened:
        key = ec.generate_private_key(ec.SECP384R1()).public_key()
        openssh = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        flower_code.register(opened, {"north": openssh})
        node = flower_code.nodes(opened)["north"][0]
        opened.activate_node(node, 60)
        code = bundle.fab()
        signed = [signatures.sign(SigningKey.generate("north"), code)]
        run = flower_code.stored_run(opened, code, signed, {"plan": "p"})
        flower_code.claim(opened, run)
        task = opened.get_tasks(run_ids=[run])[0]
        assert opened.activate_task(task.task_id)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task.task_id, run, 1
        grid, line, now = HttpGrid("127.0.0.1:1", token="t"), Line(), Now()  # noqa: S106 - none
        grid.set_run(opened.get_run_info(run_ids=[run])[0])
        with contextlib.closing(Changes(path)) as changes, contextlib.closing(grid):
            grid._client = Direct(opened, run, line, changes, now)
            yield grid, opened, node, run, line, now


def fields(message: Message) -> dict:
    return dict(message.content.config_records["f"])


def letter(text: str) -> RecordDict:
    return RecordDict({"f": ConfigRecord({"text": text})})


def received(opened, node: int, run: int) -> Message:
    """What a site's node does with a message, at the server's side of its line."""
    me, store = Node(node_id=node), opened.object_store
    answer = fleet.pull_messages(PullMessagesRequest(node=me), opened, store)
    (proto,), (tree,) = answer.messages_list, answer.message_object_trees
    contents = {}
    for part in iterate_object_tree(tree):
        asked = PullObjectRequest(node=me, run_id=run, object_id=part.object_id)
        contents[part.object_id] = fleet.pull_object(asked, opened).object_content
    number = proto.metadata.message_id
    fleet.confirm_message_received(
        ConfirmMessageReceivedRequest(node=me, run_id=run, message_object_id=number), opened, store
    )
    message = inflate_object_from_contents(number, contents)
    message.metadata.__dict__["_message_id"] = number
    assert message_from_proto(proto).metadata.dst_node_id == node
    return message


def answered(opened, node: int, run: int, asked: Message, text: str) -> None:
    before = TaskIdentity.node_id
    TaskIdentity.node_id = node
    reply = Message(letter(text), reply_to=asked)
    TaskIdentity.node_id = before
    reply.metadata.__dict__["_message_id"] = reply.object_id
    me, parts = Node(node_id=node), get_all_nested_objects(reply)
    pushed = fleet.push_messages(
        PushMessagesRequest(
            node=me,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
        ),
        opened,
    )
    for number in pushed.objects_to_push:
        content = parts[number].deflate()
        told = PushObjectRequest(
            node=me, run_id=run, object_id=number, object_content=content, session_id=pushed.session_id
        )
        assert fleet.push_object(told, opened).stored


def test_a_message_goes_and_its_answer_comes_and_no_part_stays(over, tmp_path):
    grid, opened, node, run, line, _ = over
    (number,) = grid.push_messages([Message(letter("how?"), dst_node_id=node, message_type="query.x", ttl=60.0)])
    assert grid.pull_messages([number]) == []
    asked = received(opened, node, run)
    assert fields(asked) == {"text": "how?"}
    answered(opened, node, run, asked, "so")
    (reply,) = grid.pull_messages([number])
    assert reply.metadata.reply_to_message_id == number
    assert fields(reply) == {"text": "so"}
    with contextlib.closing(sqlite3.connect(tmp_path / "superlink.db")) as database:
        for table in ("objects", "message_ins", "message_res"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table  # noqa: S608 - ours
    assert line.asked == 0


def test_who_waits_notices_that_the_server_is_gone(over):
    grid, _, node, _, line, now = over
    (number,) = grid.push_messages([Message(letter("how?"), dst_node_id=node, message_type="query.x", ttl=60.0)])
    for _ in range(50):
        now.at += 0.2
        assert grid.pull_messages([number]) == []
    assert line.asked == 2
    line.gone = True
    now.at += direct.ALIVE_S
    with pytest.raises(ConnectionError):
        grid.pull_messages([number])


def test_it_looks_when_something_changed_and_else_seldom(over, tmp_path, monkeypatch):
    grid, _, node, _, _, now = over
    (number,) = grid.push_messages([Message(letter("how?"), dst_node_id=node, message_type="query.x", ttl=60.0)])
    looks = []
    pull = grid._client._handlers.pull_messages
    monkeypatch.setattr(grid._client._handlers, "pull_messages", lambda *given: looks.append(now.at) or pull(*given))
    grid.pull_messages([number])
    for _ in range(9):
        now.at += 0.1
        grid.pull_messages([number])
    assert looks == [100.0]
    with contextlib.closing(sqlite3.connect(tmp_path / "superlink.db")) as another, another:
        another.execute("CREATE TABLE more (x)")
    grid.pull_messages([number])
    assert len(looks) == 2
    now.at += direct.BLIND_S
    grid.pull_messages([number])
    assert len(looks) == 3
