"""Flower's node as it is, but for how long it sleeps between questions: `python -m sordino.experiment.flower.node …`.

Flower 1.42 asks for messages every three seconds, for an answer to be sent every half, and after a second for a part
that was not there yet; it has no option for any. A round of small updates takes as long as its sleeps, so that is most
of what a federation waits for. And it rings when there is work, so that the site's process need not ask either.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sordino.experiment.flower.bell import ring
from sordino.experiment.flower.waiting import pause

LEAST_S = 0.1
"""The shortest sleep between two questions to the coordinator; the longest is Flower's own."""

OWN_S = 0.05
"""Between two looks at whether the site's own answer is there, which cost nothing."""

WAITING_FOR_WORK = 3.0
"""The sleep by which Flower's node waits for messages; any shorter one means that it is at work."""


AGAIN_S = 0.05
"""Until a part of a message is asked for again; each further time takes twice as long, up to ten seconds."""


class Sleeps:
    """Stands in for the module `time`, of which Flower's node uses `sleep` only."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._worked, self._woke = clock() - 60.0, clock()

    def sleep(self, seconds: float) -> None:
        """Sleep for a part of what is asked, if there was work lately."""
        if seconds < WAITING_FOR_WORK:
            self._sleep(min(seconds, OWN_S))
            self._worked = self._clock()
        else:
            # A coordinator that holds a question until there is a message has waited for both of us.
            asked = self._clock() - self._woke
            self._sleep(max(LEAST_S, pause(self._clock() - self._worked, LEAST_S, seconds) - asked))
        self._woke = self._clock()


def ringing(push: Callable[..., None], port: int) -> Callable[..., None]:
    """The node's way to send answers, which it takes once a message lies there whole; now it rings first."""

    def rung(**given: Any) -> None:
        ring(port)
        push(**given)

    return rung


def main() -> None:
    """Run `flower-supernode` with the arguments of this process."""
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--port", type=int, default=0)
    port = options.parse_known_args()[0].port
    node: Any = start_client_internal
    node.time, node._push_messages = Sleeps(), ringing(node._push_messages, port)  # noqa: SLF001 - see `ringing`
    node.pull_objects = partial(pull_objects, initial_backoff=AGAIN_S)
    flower_supernode()


if __name__ == "__main__":
    main()
