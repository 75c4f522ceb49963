"""A site's process that is killed with a message in hand answers for it when it is back, to a real node."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from datetime import timedelta

import pytest

pytest.importorskip("flwr")

import uvicorn
from flwr.app import Context, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.date import now
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from sordino.experiment.flower import executor, in_hand, node
from sordino.experiment.flower.in_hand import InHand
from sordino.federation.engines.flower import letter_of, message_of
from sordino.federation.post import Letter

RUN, NODE, FAB = 7, 11, hashlib.sha256(b"").hexdigest()


class Killed(BaseException):
    """The process ends here: nothing in it may catch this."""


class Site:
    """A node with its interface for the site's process, and the site's folder."""

    def __init__(self, folder) -> None:
        self.folder, objects = folder, ObjectStoreFactory()
        factory = NodeStateFactory(objects)
        self.state = factory.state()
        self.state.set_node_id(NODE)
        run = Run.create_empty(RUN)
        run.fab_hash = FAB
        self.state.store_run(run)
        self.state.store_fab(Fab(FAB, b"", {}))
        self.state.set_run_series_context(run.series_id, Context(RUN, NODE, {}, RecordDict(), {}))
        self.line = socket.create_server(("127.0.0.1", 0))
        self.port = self.line.getsockname()[1]
        self.server = uvicorn.Server(uvicorn.Config(create_app(factory), log_level="error", lifespan="off", ws="none"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.line]}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.line.close()

    def message(self, letter) -> str:
        """A message that has come from the coordinator; its number."""
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, 1  # the coordinator's
        message = message_of(letter, "query", NODE, 1000.0)
        message.metadata.__dict__["_message_id"] = message.object_id
        self.state.object_store.preregister(RUN, get_object_tree(message))
        for number, part in get_all_nested_objects(message).items():
            self.state.object_store.put(number, part.deflate())
        stored = self.state.store_message(message)
        self.state.create_task(task_type=TaskType.CLIENT_APP, run_id=RUN, fab_hash=FAB)
        return stored

    def work(self, answering, seconds=None) -> None:
        """The site's process, until it has answered, or for a while."""
        ending = threading.Event()

        def once(letter):
            answer = answering(letter)
            ending.set()
            return answer

        if seconds is not None:
            threading.Timer(seconds, ending.set).start()
        executor.work(self.folder, self.port, once, ending, lambda _: None)

    def replies(self):
        return list(self.state.get_messages_legacy(is_reply=True))


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.close()


def killed(letter):
    raise Killed(letter.action)


def never(letter):
    raise AssertionError(letter.action)


def test_a_process_that_was_killed_with_a_message_answers_for_it_when_it_is_back(site):
    number = site.message(Letter("train", {"round": 3}))
    with pytest.raises(Killed):
        site.work(killed)
    assert site.replies() == []
    assert (site.folder / in_hand.FILE).stat().st_mode & 0o077 == 0
    begun = time.monotonic()
    site.work(never, seconds=0.5)
    (reply,) = site.replies()
    assert time.monotonic() - begun < 10  # and not Flower's 60
    assert reply.metadata.reply_to_message_id == number
    answer = letter_of(reply)
    assert (answer.action, in_hand.REASON in answer.text("why")) == ("refused", True)
    assert not (site.folder / in_hand.FILE).exists()


def test_the_next_message_is_answered_as_ever(site):
    site.message(Letter("train", {"round": 3}))
    with pytest.raises(Killed):
        site.work(killed)
    site.work(never, seconds=0.5)
    site.replies()
    number = site.message(Letter("hello"))
    site.work(lambda _: Letter("hello", {"silo": "north"}))
    (reply,) = site.replies()
    assert reply.metadata.reply_to_message_id == number
    assert not (site.folder / in_hand.FILE).exists()


def test_what_was_killed_before_its_message_had_come_does_it_when_it_is_back(site, monkeypatch):
    from flwr.supernode.runtime import run_clientapp

    site.message(Letter("train", {"round": 3}))
    with monkeypatch.context() as patched:
        patched.setattr(run_clientapp, "pull_task_input", killed_before)
        with pytest.raises(Killed):
            site.work(never)
    site.work(lambda letter: Letter("train", {"round": letter.number("round")}))
    (reply,) = site.replies()
    assert reply.has_content()


def killed_before(client, *_):
    raise Killed(client)


@pytest.mark.parametrize("left", ["", "{", '{"token": "t", "head": "AAAA"}', '{"token": "t"}', '{"head": 1}'])
def test_a_note_of_another_node_or_none_at_all_changes_nothing(site, left):
    (site.folder / in_hand.FILE).write_text(left)
    site.message(Letter("hello"))
    site.work(lambda _: Letter("hello"))
    assert len(site.replies()) == 1
    assert InHand(site.folder).left() is None


def test_a_node_that_has_started_again_meanwhile_does_not_end_the_site_s_process(site):
    """
    It does not know the task's token any more; Flower's own client interrupts the process then.
    """
    ending, said, asked = threading.Event(), [], []

    def answering(letter):
        asked.append(letter.action)
        if letter.action == "train":
            site.state.task_token_to_task_id.clear()
            site.message(Letter("hello"))
        else:
            ending.set()
        return letter

    site.message(Letter("train"))
    executor.work(site.folder, site.port, answering, ending, said.append)
    assert asked == ["train", "hello"]
    assert said == ["a task of the node came to nothing: HTTPStatusError"]


def test_without_a_node_a_note_is_dropped(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as line:
        port = line.getsockname()[1]
    InHand(tmp_path).note("t")
    ending = threading.Event()
    threading.Timer(0.2, ending.set).start()
    executor.work(tmp_path, port, never, ending, lambda _: None)
    assert not (tmp_path / in_hand.FILE).exists()


@pytest.fixture
def plain(monkeypatch):
    """Flower's own state of a node, whatever a test puts in its place."""
    monkeypatch.setattr(InMemoryNodeState, "_store_error_replies", InMemoryNodeState._store_error_replies)
    return monkeypatch


def given_up(site):
    """The process took the task, and was not heard of again; it never asked for the message."""
    token = site.state.claim_task(site.state.get_tasks()[0].task_id)
    site.state.activate_task(site.state.get_tasks()[0].task_id)
    for record in site.state.task_token_store.values():
        record.active_until = now() - timedelta(seconds=1)
    assert token


def test_a_node_answers_for_a_process_that_had_not_asked_for_its_message(site, plain):
    del plain
    number = site.message(Letter("train"))
    node.answering_for_all(InMemoryNodeState)
    given_up(site)
    (reply,) = site.replies()
    assert (reply.metadata.reply_to_message_id, reply.has_error()) == (number, True)


def test_an_answer_that_waits_to_be_sent_is_not_passed_over(site, plain):
    """
    The process was killed between its answer and the end of its task.
    """
    from flwr.supernode.runtime import run_clientapp

    number = site.message(Letter("train"))
    with plain.context() as patched:
        patched.setattr(run_clientapp, "push_task_output", killed_before)
        with pytest.raises(Killed):
            executor.work(site.folder, site.port, lambda letter: letter, threading.Event(), lambda _: None)
    node.answering_for_all(InMemoryNodeState)
    for record in site.state.task_token_store.values():
        record.active_until = now() - timedelta(seconds=1)
    (reply,) = site.replies()
    assert (reply.metadata.reply_to_message_id, reply.has_content()) == (number, True)


def test_flower_by_itself_would_wait_for_it_without_end(site):
    site.message(Letter("train"))
    given_up(site)
    assert site.replies() == []


@pytest.mark.parametrize("in_step", [True, False])
def test_one_answer_too_many_holds_no_later_one_back(site, monkeypatch, in_step):
    """
    A stale answer goes with the next message; that one's own answer follows before another message is waited for.
    Control: Flower by itself keeps it.
    """
    from flwr.supernode import start_client_internal as flower

    sent = []

    def send(message, tree, took):
        del tree, took
        sent.append(message.metadata.reply_to_message_id)
        return set(), "session"

    monkeypatch.setattr(flower, "push_object_contents_from_iterable", lambda contents, **given: list(contents))
    beside = {"object_store": site.state.object_store, "send": send, "push_object": None}
    step = node.InStep(lambda **given: None, flower._push_messages)
    push, pull = (step.push, step.pull) if in_step else (flower._push_messages, lambda **given: None)

    def answered():
        number = site.message(Letter("train", {"round": len(sent)}))
        site.work(lambda letter: letter)
        return number

    stale = answered()
    push(state=site.state, **beside)
    first, second = answered(), site.message(Letter("train", {"round": 9}))
    push(state=site.state, **beside)  # for the second message, whose answer is not there yet
    site.work(lambda letter: letter)
    pull(state=site.state)
    assert sent == [stale, first, second][: 3 if in_step else 2]


def test_a_node_gives_up_an_answer_whose_pieces_do_not_come(monkeypatch):
    moment, sent = [0.0], []

    def sleep(seconds):
        moment[0] += seconds

    sleeps = node.Sleeps(lambda: moment[0], sleep)

    def contents():
        yield "one"
        for _ in range(20):  # slow, but it comes
            sleeps.sleep(0.5)
        yield "two"
        while True:  # as Flower waits for a piece
            sleeps.sleep(0.5)

    def push(pieces, **given):
        del given
        for piece in pieces:
            sent.append(piece)  # noqa: PERF402 - all that came before it fails

    with pytest.raises(TimeoutError):
        node.sending(push, sleeps)(contents(), push_object_fn=None)
    assert sent == ["one", "two"]
    assert node.PIECE_S < moment[0] < node.PIECE_S + 2
    sleeps.sleep(0.5)  # and goes on
