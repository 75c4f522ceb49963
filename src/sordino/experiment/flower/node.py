"""Flower's node as it is, but for how long it sleeps between questions: `python -m sordino.experiment.flower.node …`.

Flower 1.42 asks for messages every three seconds, and for an answer to be sent every half, and has no option for
either. A round of small updates takes as long as its sleeps, so that is most of what a federation waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FASTER = 10
"""Ask so many times as often while there is work: every 0.3 and 0.05 seconds."""

BUSY_S = 30.0
"""For so long after the last work, more is expected: an idle node asks as seldom as Flower's own."""

WAITING_FOR_WORK = 3.0
"""The sleep by which Flower's node waits for messages; any shorter one means that it is at work."""


class Sleeps:
    """Stands in for the module `time`, of which Flower's node uses `sleep` only."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep, self._worked = clock, sleep, -BUSY_S

    def sleep(self, seconds: float) -> None:
        """Sleep for a part of what is asked, if there was work lately."""
        if seconds < WAITING_FOR_WORK:
            self._worked = self._clock()
        busy = self._clock() - self._worked < BUSY_S
        self._sleep(seconds / FASTER if busy else seconds)


def main() -> None:
    """Run `flower-supernode` with the arguments of this process."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    start_client_internal.time = Sleeps()  # type: ignore[assignment, attr-defined]
    flower_supernode()


if __name__ == "__main__":
    main()
