"""Flower's node as it is, but for how long it sleeps between questions: `python -m sordino.experiment.flower.node …`.

Flower 1.42 asks for messages every three seconds, and for an answer to be sent every half, and has no option for
either. A round of small updates takes as long as its sleeps, so that is most of what a federation waits for.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

FASTER = 10
"""Ask so many times as often: every 0.3 and 0.05 seconds."""


def main() -> None:
    """Run `flower-supernode` with the arguments of this process."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    start_client_internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / FASTER))  # type: ignore[assignment]
    flower_supernode()


if __name__ == "__main__":
    main()
