"""A node that asks for messages is answered once there is one, or after a while: it asks once where it asked often.

node ── pull-messages ──► guard ──► held while nothing lies there for this node ──► Flower

Flower's server answers at once, so its nodes ask again and again. A node's number is read from its request before
Flower has checked the node's signature: by lying a stranger waits for someone else's message, and then gets nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from sordino.experiment.deploy.guard import App, Message, Receive, Send

ASKING = "/v1/fleet/pull-messages"

LONGEST = 1024
"""Bytes of such a request; a longer one is passed on at once."""

MOST_S, LOOK_S = 10.0, 0.03
"""The longest wait, far below the 30 seconds after which a node gives up, and the time between two looks."""

_LYING = "SELECT DISTINCT dst_node_id FROM message_ins WHERE delivered_at = '' AND created_at + ttl > ?"


class Holding:
    """An ASGI application before another one.

    Args:
        app: Flower's server, or what guards it.
        database: Its file.
        most_s: The longest wait.
    """

    def __init__(self, app: App, database: Path, most_s: float = MOST_S) -> None:
        self._app, self._database, self._most_s = app, database, most_s
        self._ending, self._read_at = False, 0.0
        self._lying: frozenset[int] = frozenset()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] != ASKING:
            await self._app(scope, receive, send)
            return
        first = await receive()
        asker = asked_by(first)
        if asker is None:
            await self._app(scope, _again(first, receive), send)
            return
        gone = asyncio.ensure_future(receive())  # after a whole request comes nothing but its end
        try:
            end = time.monotonic() + self._most_s
            while asker not in self._waiting() and time.monotonic() < end and not self._ending:
                await asyncio.wait({gone}, timeout=LOOK_S)
                if gone.done():
                    return  # Flower would give a message to nobody
            await self._app(scope, _again(first, lambda: asyncio.shield(gone)), send)
        finally:
            gone.cancel()

    def end(self) -> None:
        """Hold nobody any more."""
        self._ending = True

    def _waiting(self) -> frozenset[int]:
        """Nodes for which a message lies there; read once for all who wait."""
        if time.monotonic() - self._read_at >= LOOK_S / 2:
            with suppress(sqlite3.OperationalError):  # a locked file is looked at again: all who wait share this thread
                self._lying = self._look()
            self._read_at = time.monotonic()
        return self._lying

    def _look(self) -> frozenset[int]:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=0.0)) as line:
            rows = line.execute(_LYING, (time.time(),)).fetchall()
        return frozenset(node % 2**64 for (node,) in rows)


def asked_by(message: Message) -> int | None:
    """The node that asks, if the message is a whole request of one."""
    from flwr.proto.fleet_pb2 import PullMessagesRequest

    body = message.get("body", b"")
    if message["type"] != "http.request" or message.get("more_body") or len(body) > LONGEST:
        return None
    with suppress(Exception):  # bytes of a stranger, which protobuf reads
        return int(PullMessagesRequest.FromString(body).node.node_id)
    return None


def _again(first: Message, receive: Receive) -> Receive:
    """The first message once more, and then what comes."""
    kept = [first]

    async def again() -> Message:
        return kept.pop() if kept else await receive()

    return again
