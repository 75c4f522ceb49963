"""The guard: what of a coordinator's Flower server can be reached, and from where.

Flower 1.42 answers for nodes, for runs and for its own control on one port, and its control asks nobody who they are.
The guard stands inside the server, before Flower's router, and lets through one kind of path only:

public port    TLS     /v1/fleet/…   sites; each request signed by a registered node key        /health
loopback port  TLS     /v1/runtime/… the coordinator's own run; each request with its token     /health

Nothing else has a way in, on either port: no control, no docs, no websocket. The path that is judged is the very one
that Flower's router sees, so no second reading of a request can differ from the guard's.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

Room: TypeAlias = Literal["fleet", "runtime"]

_NAME = rb"[a-z]+(-[a-z]+)*"
_HEADERS = frozenset({b"host", b"content-type", b"content-length", b"transfer-encoding", b"accept", b"user-agent"})
_OURS = b"flwr-"
"""Flower's own headers: keys, signatures, tokens, versions."""

_LONGEST_HEAD = 8 * 2**10

_WORDS = {403: b"forbidden\n", 404: b"not found\n", 405: b"not so\n", 413: b"too large\n", 431: b"too many\n"}


@dataclass(frozen=True)
class Guard:
    """An ASGI application before another one.

    Args:
        app: What is guarded.
        room: The one group of paths that is let through, besides `/health`.
        most_bytes: The largest body of a request. Bodies are passed on piece by piece, never gathered here.
        most_headers: The largest number of headers.
    """

    app: App
    room: Room
    most_bytes: int = 16 * 2**20
    most_headers: int = 40

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        refused = self.refusal(scope)
        if refused:
            await _refuse(send, refused)
            return
        body = _Body(receive, send, self.most_bytes)
        try:
            await self.app(cleaned(scope), body.receive, body.send)
        except Exception:
            if not body.cut_off:  # a cut-off body looks to the application like a client that went away
                raise
        await body.end()

    def refusal(self, scope: Message) -> int:
        """The status with which a request is refused, or 0 if it may pass."""
        path, method = scope.get("raw_path") or b"", scope["method"]
        # The decoded path is what the router reads: both must be the same plain letters.
        if scope.get("root_path") or scope.get("query_string") or path != scope["path"].encode():
            return 404
        if path == b"/health":
            return 0 if method in {"GET", "HEAD"} else 405
        if not re.fullmatch(b"/v1/" + self.room.encode() + b"/" + _NAME, path):
            return 404
        if method != "POST":
            return 405
        headers = scope["headers"]
        if len(headers) > self.most_headers or sum(len(name) + len(value) for name, value in headers) > _LONGEST_HEAD:
            return 431
        if any(name in {b"upgrade", b"content-encoding"} for name, _ in headers):
            return 403
        sizes = [value for name, value in headers if name == b"content-length"]
        if len(sizes) > 1 or not all(size.isdigit() for size in sizes):
            return 403
        return 413 if sizes and int(sizes[0]) > self.most_bytes else 0


def cleaned(scope: Message) -> Message:
    """A request with only those headers that Flower reads: nothing about proxies, cookies, or other paths."""
    kept = [(name, value) for name, value in scope["headers"] if name in _HEADERS or name.startswith(_OURS)]
    return {**scope, "headers": kept}


class _Body:
    """The way of a request's body in and of the answer out; cuts off what is too long."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._left = receive, send, most
        self._started = False

    @property
    def cut_off(self) -> bool:
        """Whether the body was longer than allowed."""
        return self._left < 0

    async def receive(self) -> Message:
        message = await self._receive() if not self.cut_off else {"type": "http.disconnect"}
        self._left -= len(message.get("body", b""))
        return {"type": "http.disconnect"} if self.cut_off else message

    async def send(self, message: Message) -> None:
        if self.cut_off and not self._started:
            return  # the answer to a body that was cut off is the guard's own
        self._started = True
        await self._send(message)

    async def end(self) -> None:
        if self.cut_off and not self._started:
            await _refuse(self._send, 413)


async def _refuse(send: Send, status: int) -> None:
    text = _WORDS[status]
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
