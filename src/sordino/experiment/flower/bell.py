"""The node tells the site's process that there is work, by a datagram on loopback: nobody asks all the time.

It says nothing and is owed to nobody. Whoever misses it asks a little later, and whoever hears one too many asks once
in vain. Its port is the node's own number, which is free: Flower uses it for TCP.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

_LOOPBACK = "127.0.0.1"


def ring(port: int) -> None:
    """Tell whoever listens."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"", (_LOOPBACK, port))


class Bell:
    """Waits for the node to ring.

    Args:
        line: Bound to the port; None: somebody else has it, and nothing is ever heard.
    """

    def __init__(self, line: socket.socket | None) -> None:
        self._line, self.heard = line, False

    def wait(self, seconds: float) -> bool:
        """Whether it rang. Returns as soon as it does, or after so many seconds."""
        lines = [] if self._line is None else [self._line]
        rang = bool(select.select(lines, [], [], seconds)[0])
        while self._line is not None and select.select(lines, [], [], 0)[0]:
            self._line.recv(1)
        self.heard |= rang
        return rang


@contextlib.contextmanager
def hung(port: int) -> Iterator[Bell]:
    """A bell for a node's port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.bind((_LOOPBACK, port))
        except OSError:
            yield Bell(None)
        else:
            yield Bell(line)
