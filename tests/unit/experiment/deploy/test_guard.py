"""The guard before a real server on a real port: what a stranger can say to it, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import httpx
import pytest
import uvicorn

from sordino.experiment.deploy.guard import Guard, cleaned

MOST = 100_000
seen: list[dict] = []


async def upstream(scope, receive, send):
    """Stands for Flower's server: tells what it was asked, gathers nothing, answers in pieces."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"].rpartition(".")[2]
            await send({"type": f"lifespan.{kind}.complete"})
            if kind == "shutdown":
                return
    pieces, message = [], {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client went away")
        pieces.append(len(message.get("body", b"")))
    seen.append({"path": scope["path"], "headers": dict(scope["headers"]), "pieces": pieces})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-room", scope["path"].encode())]})
    for number in range(3):
        await send({"type": "http.response.body", "body": b"piece %d;" % number, "more_body": number < 2})


@pytest.fixture(scope="module")
def port():
    listening = socket.create_server(("127.0.0.1", 0))
    guard = Guard(upstream, "fleet", most_bytes=MOST, most_headers=20)
    config = uvicorn.Config(guard, http="h11", ws="none", log_level="critical", h11_max_incomplete_event_size=16384)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture(autouse=True)
def _nothing_seen():
    seen.clear()


def say(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=2) as line:
        with contextlib.suppress(OSError):
            line.sendall(text)
        parts = []
        with contextlib.suppress(OSError):
            while part := line.recv(65536):
                parts.append(part)
                if b"\r\n\r\n" in b"".join(parts) and b"piece 2;" in b"".join(parts):
                    break
        return b"".join(parts)


def ask(port: int, path: bytes, method: bytes = b"POST", version: bytes = b"1.1", more: bytes = b"") -> bytes:
    head = method + b" " + path + b" HTTP/" + version + b"\r\nHost: x\r\nContent-Length: 0\r\n" + more
    return say(port, head + b"Connection: close\r\n\r\n")


def test_the_fleet_passes_and_answers_in_pieces(port):
    answer = ask(port, b"/v1/fleet/pull-messages")
    assert answer.startswith(b"HTTP/1.1 200")
    assert seen[0]["path"] == "/v1/fleet/pull-messages"
    assert b"piece 0;" in answer
    assert b"piece 2;" in answer


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_health_passes(port, method):
    assert ask(port, b"/health", method).startswith(b"HTTP/1.1 200")


REFUSED = [
    b"/",
    b"/docs",
    b"/openapi.json",
    b"/redoc",
    b"/v1/control/start-run",
    b"/v1/control/register-node",
    b"/v1/runtime/acquire-task",
    b"/v1/runtime/push-messages",
    b"/v1/responses",
    b"/v1/fleet",
    b"/v1/fleet/",
    b"/v1/fleet/../control/start-run",
    b"/v1/fleet/%2e%2e/control/start-run",
    b"/v1/fleet/..%2fcontrol/start-run",
    b"/v1/fleet/..\\control/start-run",
    b"/v1//control/start-run",
    b"//v1/control/start-run",
    b"/v1/./control/start-run",
    b"/v1/fleet/;/../control/start-run",
    b"/v1/fleet/x/../../control/start-run",
    b"/v1/fleet//pull-messages",
    b"/v1/fleet/pull-messages/",
    b"/v1/fleet/pull-messages?x=/v1/control/start-run",
    b"/v1/fleet/pull%2dmessages",
    b"/V1/FLEET/pull-messages",
    b"/v1/fleet/PULL-messages",
    b"/v1/fleet/pull-messages%00",
    b"/v1/fleet/pull-messages%0d%0a",
    b"/v1/%66leet/pull-messages",
    b"/v1/%63ontrol/start-run",
    b"/v1/control%2fstart-run",
    b"/health/../v1/control/start-run",
    b"/health/",
    b"/health?x",
    b"/%76%31/control/start-run",
    b"http://localhost/v1/control/start-run",
    b"http://x/v1/fleet/pull-messages",
    b"https://x@localhost/v1/control/start-run",
    b"*",
    b"x:443",
]


@pytest.mark.parametrize("path", REFUSED)
@pytest.mark.parametrize("method", [b"POST", b"GET"])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_nothing_else_reaches_the_server(port, path, method, version):
    answer = ask(port, path, method, version)
    assert answer == b"" or answer.split()[1] in {b"400", b"404"}
    assert seen == []


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"post"])
def test_only_posts_reach_the_fleet(port, method):
    answer = ask(port, b"/v1/fleet/pull-messages", method)
    assert answer == b"" or answer.split()[1] in {b"400", b"405"}
    assert seen == []


UPGRADES = [b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n", b"Upgrade: h2c\r\n"]


@pytest.mark.parametrize("path", [b"/v1/control/start-run", b"/v1/fleet/pull-messages"])
@pytest.mark.parametrize("more", UPGRADES)
def test_no_connection_becomes_another_kind(port, path, more):
    assert ask(port, path, more=more).split()[1] in {b"403", b"404"}
    assert seen == []


def test_the_other_protocol_of_the_same_port_is_not_spoken(port):
    answer = say(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b" 200" not in answer
    assert seen == []


@pytest.mark.parametrize(
    "more",
    [
        b"X-Forwarded-Prefix: /v1/control\r\n",
        b"X-Original-URL: /v1/control/start-run\r\n",
        b"X-Rewrite-URL: /v1/control/start-run\r\nForwarded: for=127.0.0.1\r\nCookie: a=b\r\nTraceparent: 1\r\n",
        b"X-HTTP-Method-Override: GET\r\nAuthorization: Bearer x\r\n",
    ],
)
def test_headers_that_might_mean_another_path_or_person_are_dropped(port, more):
    assert b" 200 " in ask(port, b"/v1/fleet/pull-messages", more=more + b"Flwr-Public-Key: k\r\n")
    assert set(seen[0]["headers"]) == {b"host", b"content-length", b"flwr-public-key"}


def test_a_huge_head_is_refused(port):
    answer = ask(port, b"/v1/fleet/pull-messages", more=b"X: " + b"a" * 60_000 + b"\r\n")
    assert b" 200 " not in answer
    assert seen == []


def test_many_headers_are_refused(port):
    answer = ask(port, b"/v1/fleet/pull-messages", more=b"".join(b"Flwr-%d: x\r\n" % number for number in range(30)))
    assert answer.split()[1] == b"431"
    assert seen == []


def test_two_lengths_are_refused(port):
    answer = ask(port, b"/v1/fleet/pull-messages", more=b"Content-Length: 5\r\n")
    assert answer.split()[1] in {b"400", b"403"}
    assert seen == []


def test_no_second_request_hides_in_a_first(port):
    hidden = b"POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    head = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n"
    say(port, head + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
    assert [one["path"] for one in seen] in ([], ["/v1/fleet/pull-messages"])


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_long_bodies_are_cut_off_whether_or_not_they_say_so(port, inside, told):
    size = MOST if inside else MOST + 1
    body = bytes(size) if told else iter([bytes(1000)] * (size // 1000) + ([] if inside else [b"x"]))
    with httpx.Client() as client:
        answer = client.post(f"http://127.0.0.1:{port}/v1/fleet/push-object", content=body)
    assert answer.status_code == (200 if inside else 413)
    assert bool(seen) == inside


def test_bodies_pass_piece_by_piece():
    """The second piece is asked for only after the first was taken: nothing is gathered in between."""
    order: list[str] = []
    pieces = iter([b"one", b"two", b""])

    async def receive():
        piece = next(pieces)
        order.append(f"sent {piece.decode()}")
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    async def taker(_scope, receive, send):
        message = {"more_body": True}
        while message["more_body"]:
            message = await receive()
            order.append(f"took {message['body'].decode()}")
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        order.append(str(message["status"]))

    path = "/v1/fleet/push-object"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": []}
    asyncio.run(Guard(taker, "fleet")(scope, receive, send))
    assert order == ["sent one", "took one", "sent two", "took two", "sent ", "took ", "200"]


def test_a_websocket_is_closed_before_it_opens():
    sent = []

    async def send(message):
        sent.append(message["type"])

    async def never():
        raise AssertionError

    asyncio.run(Guard(upstream, "fleet")({"type": "websocket", "path": "/v1/fleet/pull-messages"}, never, send))
    assert sent == ["websocket.close"]


def test_a_router_below_some_other_path_is_refused():
    scope = {"type": "http", "method": "POST", "path": "/v1/fleet/pull-messages", "headers": [], "query_string": b""}
    guard = Guard(upstream, "fleet")
    assert guard.refusal(scope | {"raw_path": b"/v1/fleet/pull-messages"}) == 0
    assert guard.refusal(scope | {"raw_path": b"/v1/fleet/pull-messages", "root_path": "/v1/control"}) == 404
    assert guard.refusal(scope | {"raw_path": b"/v1/fleet/pull%2dmessages"}) == 404
    assert guard.refusal(scope) == 404


def test_cleaning_keeps_what_else_the_request_is():
    scope = {"type": "http", "path": "/x", "headers": [(b"cookie", b"a"), (b"flwr-signature", b"b")]}
    assert cleaned(scope) == {"type": "http", "path": "/x", "headers": [(b"flwr-signature", b"b")]}
