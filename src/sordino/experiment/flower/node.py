"""Flower's node as it is, but for how long it sleeps between questions: `python -m sordino.experiment.flower.node …`.

Flower 1.42 asks for messages every three seconds, for an answer to be sent every half, and after a second for a part
that was not there yet; it has no option for any. A round of small updates takes as long as its sleeps, so that is most
of what a federation waits for. And it rings when there is work, so that the site's process need not ask either.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from sordino.experiment.flower.bell import ring
from sordino.experiment.flower.waiting import pause

Piece = TypeVar("Piece")

LEAST_S = 0.1
"""The shortest sleep between two questions to the coordinator; the longest is Flower's own."""

OWN_S = 0.05
"""Between two looks at whether the site's own answer is there, which cost nothing."""

WAITING_FOR_WORK = 3.0
"""The sleep by which Flower's node waits for messages; any shorter one means that it is at work."""


AGAIN_S = 0.05
"""Until a part of a message is asked for again; each further time takes twice as long, up to ten seconds."""


PIECE_S = 30.0
"""How long the site's process may take between two pieces of an answer that it has announced."""


class Sleeps:
    """Stands in for the module `time`, of which Flower's node uses `sleep` only."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._worked, self._woke = clock() - 60.0, clock()
        self._late = math.inf

    def pieces(self, contents: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces of an answer, as they come. Flower sleeps until the next one is there, be it for ever.

        Raises:
            TimeoutError: None came in time: the site's process was killed while it sent them.
        """
        coming, end = iter(contents), object()
        while True:
            self._late = self._clock() + PIECE_S
            try:
                piece: Any = next(coming, end)
            finally:
                self._late = math.inf
            if piece is end:
                return
            yield piece

    def sleep(self, seconds: float) -> None:
        """Sleep for a part of what is asked, if there was work lately."""
        if self._clock() > self._late:
            raise TimeoutError("the site's process sends no more of its answer")
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


def sending(push: Callable[..., None], sleeps: Sleeps) -> Callable[..., None]:
    """The node's way to send the pieces of an answer, which gives up where no more of them come."""

    def sent(contents: Iterable[Any], **given: Any) -> None:
        push(sleeps.pieces(contents), **given)

    return sent


class InStep:
    """A node's ways to take a message and to send answers, so that no answer is left behind.

    Flower's node sends after each message that it takes whatever answer is there, and only then. After a kill there may
    be one answer too many: the next message takes that one along, and its own answer lies there until another message
    comes, which never does where the coordinator waits for it. So what lies there is sent before the next is asked for.

    Args:
        pull: Flower's way to take a message.
        push: Flower's way to wait for an answer, and send it.
    """

    def __init__(self, pull: Callable[..., int | None], push: Callable[..., None]) -> None:
        self._pull, self._push = pull, push
        self._given: dict[str, Any] = {}

    def push(self, **given: Any) -> None:
        """Wait for an answer, and send it."""
        self._given = given
        self._push(**given)

    def pull(self, **given: Any) -> int | None:
        """Take a message, once no answer lies there."""
        if self._given and lying(given["state"]):
            self._push(**self._given)
        return self._pull(**given)


def lying(state: Any) -> bool:
    """Whether a node has an answer that it has not sent."""
    with state.lock_msg_store:
        entries = list(state.msg_store.values())
    return any(entry.message.metadata.reply_to_message_id and not entry.is_retrieved for entry in entries)


def answering_for_all(state: Any) -> None:
    """Let a node answer for a process that it gave up, also where that had not asked for its message yet.

    Flower answers for messages that were asked for; any other would be waited for without end.

    Args:
        state: Flower's class of a node's state.
    """
    plain = state._store_error_replies  # noqa: SLF001 - there is no other place for it

    def replies(self: Any, runs: set[int], error: Any) -> None:
        with self.lock_msg_store:
            for entry in self.msg_store.values():
                head = entry.message.metadata
                entry.is_retrieved |= head.run_id in runs and not head.reply_to_message_id
            plain(self, runs, error)

    state._store_error_replies = replies  # noqa: SLF001 - as above


def main() -> None:
    """Run `flower-supernode` with the arguments of this process."""
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--port", type=int, default=0)
    port = options.parse_known_args()[0].port
    node: Any = start_client_internal
    node.time = sleeps = Sleeps()
    step = InStep(node._pull_and_store_message, node._push_messages)  # noqa: SLF001 - see `InStep`
    node._pull_and_store_message, node._push_messages = step.pull, ringing(step.push, port)  # noqa: SLF001
    node.push_object_contents_from_iterable = sending(node.push_object_contents_from_iterable, sleeps)
    answering_for_all(InMemoryNodeState)
    node.pull_objects = partial(pull_objects, initial_backoff=AGAIN_S)
    flower_supernode()


if __name__ == "__main__":
    main()
