"""Letters over a socket of the machine: how a thin app reaches the site's own process.

8 bytes of length ─ JSON (action, fields, shape, type) ─ 8 bytes of length ─ the vector's bytes
"""

from __future__ import annotations

import base64
import json
import socket
import struct
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core.errors import EngineError
from sordino.federation.post import Letter, refusal

_LONGEST = 2**33
_HEAD = 2**26
_TYPES = ("float32", "uint32", "uint64", "uint8")


def ask(path: Path, letter: Letter, timeout: float | None = None) -> Letter:
    """Send a letter to the process behind a socket, and wait for its answer. Never raises: see `refusal`."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout)
            line.connect(str(path))
            send(line, letter)
            return receive(line)
    except OSError as problem:
        reason = problem.strerror or "does not answer"
        return refusal(EngineError.about("site", f"cannot reach its trainer: {reason}", "start `sordino silo serve`"))
    except EngineError as problem:
        return refusal(problem)


def send(line: socket.socket, letter: Letter) -> None:
    """Write a letter."""
    vector = letter.vector
    head: dict[str, Any] = {
        "action": letter.action,
        "fields": {
            k: {"b": base64.b64encode(v).decode()} if isinstance(v, bytes) else v for k, v in letter.fields.items()
        },
    }
    if vector is not None:
        head |= {"shape": list(vector.shape), "type": str(vector.dtype)}
    text = json.dumps(head).encode()
    line.sendall(struct.pack(">Q", len(text)) + text)
    content = b"" if vector is None else np.ascontiguousarray(vector).data.cast("B")
    line.sendall(struct.pack(">Q", len(content)))
    if len(content):  # who has read all of a letter may have answered and hung up: then even nothing breaks the pipe
        line.sendall(content)


def receive(line: socket.socket) -> Letter:
    """Read a letter.

    Raises:
        EngineError: What comes is none, or the line broke.
    """
    text, content = _part(line, _HEAD), _part(line, _LONGEST)
    try:
        head = json.loads(bytes(text))
        fields = {k: base64.b64decode(v["b"]) if isinstance(v, dict) else v for k, v in head["fields"].items()}
        if "type" not in head:
            return Letter(str(head["action"]), fields)
        if head["type"] not in _TYPES:
            raise EngineError.about("wire", f"is none of {', '.join(_TYPES)}", type=head["type"])
        vector = np.frombuffer(content, dtype=head["type"]).reshape(head["shape"])
        return Letter(str(head["action"]), fields, vector)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise EngineError.about("wire", "carries no letter", "do both ends run the same version?") from None


def _part(line: socket.socket, longest: int) -> bytearray:
    size = struct.unpack(">Q", _exactly(line, 8))[0]
    if size > longest:
        raise EngineError.about("wire", f"is more than {longest} bytes", size=size)
    return _exactly(line, size)


def _exactly(line: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    view, filled = memoryview(content), 0
    while filled < size:
        got = line.recv_into(view[filled:])
        if not got:
            raise EngineError.about("wire", "ended in the middle of a letter")
        filled += got
    return content
