"""A site's process is killed before and after each of its calls to the node; whatever comes next is answered.

A node without any one of `InStep`, `answering_for_all` and `sending` fails at two or three of these moments.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest

pytest.importorskip("flwr")

from flwr.supercore.date import now
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supernode import start_client_internal as flower
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState
from test_messages_in_hand import Killed, Site

from sordino.experiment.flower import executor, node
from sordino.federation.post import Letter

CALLS = (
    "PullTaskInput",
    "PullMessages",
    "PullObject",
    "ConfirmMessageReceived",
    "PushMessages",
    "PushObject",
    "PushTaskOutput",
)
MOMENTS = [("AcquireTask", "after"), *((call, when) for call in CALLS for when in ("before", "after"))]


class Running:
    """A node at work as Flower's is: it takes a message, waits for an answer, sends it, and takes the next."""

    def __init__(self, site: Site) -> None:
        self.site, self.letters, self.ending = site, queue.Queue(), threading.Event()
        self.numbers: list[str] = []
        self.announced = ("", False)
        self.sent: list[tuple[str, bool]] = []
        self.step = node.InStep(self.pull, flower._push_messages)
        self.thread = threading.Thread(target=self.run)

    def pull(self, **given):
        del given
        if self.letters.empty():
            return None
        self.numbers.append(self.site.message(self.letters.get()))
        return 1

    def send(self, message, tree, took):
        del took
        self.announced = message.metadata.reply_to_message_id, message.has_content()
        return {each.object_id for each in flower.iterate_object_tree(tree)}, "session"

    def whole(self, push):
        """Only an answer whose pieces have all been sent is one."""

        def pushed(contents, **given):
            push(contents, **given)
            self.sent.append(self.announced)

        return pushed

    def sleep(self, seconds) -> None:
        time.sleep(min(seconds, 0.01))
        if self.ending.is_set():
            raise Killed

    def run(self) -> None:
        state = self.site.state
        beside = {"object_store": state.object_store, "send": self.send, "push_object": lambda *_: None}
        try:
            while True:
                if self.step.pull(state=state) is None:
                    self.sleep(1.0)
                else:
                    self.step.push(state=state, **beside)
        except Killed:
            return

    def answered(self, number: int, seconds: float) -> list[bool]:
        """Of each answer to a message, whether it is more than an error; none if none came in time."""
        late = time.monotonic() + seconds
        while time.monotonic() < late:
            if len(self.numbers) > number:
                found = [good for to, good in self.sent if to == self.numbers[number]]
                if found:
                    return found
            time.sleep(0.01)
        return []

    def minute_later(self) -> None:
        """Whoever was not heard of since is given up."""
        with self.site.state.lock_task_store:
            for record in self.site.state.task_token_store.values():
                record.active_until = now() - timedelta(seconds=1)


@pytest.fixture
def running(tmp_path, monkeypatch):
    site = Site(tmp_path)
    monkeypatch.setattr(InMemoryNodeState, "_store_error_replies", InMemoryNodeState._store_error_replies)
    monkeypatch.setattr(node, "PIECE_S", 0.6)
    running = Running(site)
    sleeps = node.Sleeps(sleep=running.sleep)
    monkeypatch.setattr(flower, "time", sleeps)
    push = node.sending(running.whole(flower.push_object_contents_from_iterable), sleeps)
    monkeypatch.setattr(flower, "push_object_contents_from_iterable", push)
    node.answering_for_all(InMemoryNodeState)
    running.thread.start()
    yield running
    running.ending.set()
    running.thread.join(10)
    site.close()


@contextmanager
def killing(call, when):
    """Whatever runs in this block dies at the first such call, with all its threads."""
    plain, dead = ProtobufClient._unary_unary, threading.Event()

    def called(self, *, rpc_method, **given):
        if dead.is_set():
            raise Killed
        its = rpc_method.endswith(f"/{call}")
        if its and when == "before":
            dead.set()
            raise Killed
        answer = plain(self, rpc_method=rpc_method, **given)
        if its and (call != "AcquireTask" or answer.token):
            dead.set()
            raise Killed
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ProtobufClient, "_unary_unary", called)
        yield


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("call", "when"), MOMENTS)
def test_a_process_killed_at_any_moment_leaves_no_node_waiting(running, call, when):
    folder, port = running.site.folder, running.site.port
    running.letters.put(Letter("train", {"round": 1}))
    never = threading.Event()
    limit = threading.Timer(10.0, never.set)
    limit.start()
    with killing(call, when), pytest.raises(Killed):
        executor.work(folder, port, lambda letter: letter, never, lambda _: None)
    limit.cancel()
    ending = threading.Event()
    again = threading.Thread(target=executor.work, args=(folder, port, lambda each: each, ending, lambda _: None))
    again.start()
    try:
        if not running.answered(0, 1.0):
            running.minute_later()
        assert running.answered(0, 5.0)
        for number in (1, 2):
            running.letters.put(Letter("train", {"round": number + 1}))
            assert running.answered(number, 5.0) == [True]
    finally:
        ending.set()
        again.join(10)
