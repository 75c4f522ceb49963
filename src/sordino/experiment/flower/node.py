"""Flower's node as it is, but for how long it sleeps between questions: `python -m sordino.experiment.flower.node …`.

Flower 1.42 asks for messages every three seconds, and for an answer to be sent every half, and has no option for
either. A round of small updates takes as long as its sleeps, so that is most of what a federation waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sordino.experiment.flower.waiting import pause

LEAST_S = 0.1
"""The shortest sleep between two questions to the coordinator; the longest is Flower's own."""

OWN_S = 0.05
"""Between two looks at whether the site's own answer is there, which cost nothing."""

WAITING_FOR_WORK = 3.0
"""The sleep by which Flower's node waits for messages; any shorter one means that it is at work."""


class Sleeps:
    """Stands in for the module `time`, of which Flower's node uses `sleep` only."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep, self._worked = clock, sleep, clock() - 60.0

    def sleep(self, seconds: float) -> None:
        """Sleep for a part of what is asked, if there was work lately."""
        if seconds < WAITING_FOR_WORK:
            self._sleep(min(seconds, OWN_S))
            self._worked = self._clock()
        else:
            self._sleep(pause(self._clock() - self._worked, LEAST_S, seconds))


def main() -> None:
    """Run `flower-supernode` with the arguments of this process."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    start_client_internal.time = Sleeps()  # type: ignore[assignment, attr-defined]
    flower_supernode()


if __name__ == "__main__":
    main()
