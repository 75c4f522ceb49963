"""A node's question is held until there is a message for it: what comes when, and who gets nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time

import pytest

pytest.importorskip("flwr")

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from sordino.experiment.flower.holding import ASKING, Holding, asked_by

ME = 2**63 + 5  # Flower's numbers are unsigned, its database's are not


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "superlink.db"
    with contextlib.closing(sqlite3.connect(path)) as line, line:
        line.execute("CREATE TABLE message_ins (dst_node_id INT, delivered_at TEXT, created_at REAL, ttl REAL)")
    return path


def put(database, node=ME, delivered="", ttl=60.0) -> None:
    with contextlib.closing(sqlite3.connect(database)) as line, line:
        number = node - 2**64 if node >= 2**63 else node
        line.execute("INSERT INTO message_ins VALUES (?, ?, ?, ?)", (number, delivered, time.time(), ttl))


def question(node=ME) -> bytes:
    return PullMessagesRequest(node=Node(node_id=node)).SerializeToString()


class Line:
    """A connection; `hang_up` is the node's end of it."""

    def __init__(self, body: bytes, path: str = ASKING) -> None:
        self.scope, self.passed = {"type": "http", "path": path}, []
        self._first, self._gone = [{"type": "http.request", "body": body, "more_body": False}], asyncio.Event()

    async def receive(self):
        if self._first:
            return self._first.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def app(self, scope, receive, send):
        del scope, send
        self.passed.append((await receive())["body"])

    def hang_up(self) -> None:
        self._gone.set()


async def sent(message):
    del message


def held(database, line: Line, most_s: float = 5.0):
    holding = Holding(line.app, database, most_s)
    return holding, asyncio.create_task(holding(line.scope, line.receive, sent))


def test_it_is_held_until_there_is_a_message_for_this_node(database):
    async def story():
        line = Line(question())
        _, task = held(database, line)
        put(database, node=ME - 1)
        put(database, delivered="2026")
        put(database, ttl=-1.0)
        await asyncio.sleep(0.15)
        assert line.passed == []
        put(database)
        await asyncio.wait_for(task, 1.0)
        assert line.passed == [question()]

    asyncio.run(story())


def test_a_locked_database_keeps_nobody_else_waiting(database):
    """Its lock is the server's own, for as long as it writes: others' requests go on meanwhile."""

    async def story():
        line = Line(question())
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            _, task = held(database, line)
            before = time.monotonic()
            for _ in range(5):
                await asyncio.sleep(0.05)
            assert time.monotonic() - before < 2.0
            writer.execute("COMMIT")
        assert line.passed == []
        put(database)
        await asyncio.wait_for(task, 1.0)
        assert line.passed == [question()]

    asyncio.run(story())


def test_it_is_answered_after_a_while_and_when_the_server_ends(database):
    async def story():
        line = Line(question())
        await asyncio.wait_for(held(database, line, most_s=0.1)[1], 1.0)
        assert line.passed == [question()]
        late = Line(question())
        holding, task = held(database, late)
        await asyncio.sleep(0.05)
        holding.end()
        await asyncio.wait_for(task, 1.0)
        assert late.passed == [question()]

    asyncio.run(story())


def test_a_node_that_hung_up_takes_no_message(database):
    async def story():
        line = Line(question())
        _, task = held(database, line)
        await asyncio.sleep(0.05)
        line.hang_up()
        await asyncio.wait_for(task, 1.0)
        put(database)
        await asyncio.sleep(0.1)
        assert line.passed == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/fleet/push-object", question()), (ASKING, b"\xff\xff"), (ASKING, b"x" * 2000)]
)
def test_whatever_is_no_such_question_passes_at_once(database, path, body):
    async def story():
        line = Line(body, path)
        await asyncio.wait_for(held(database, line)[1], 0.5)
        assert line.passed == [body]

    asyncio.run(story())


def test_a_question_in_pieces_is_nobodys():
    assert asked_by({"type": "http.request", "body": question(), "more_body": False}) == ME
    assert asked_by({"type": "http.request", "body": question(), "more_body": True}) is None
    assert asked_by({"type": "http.disconnect"}) is None
