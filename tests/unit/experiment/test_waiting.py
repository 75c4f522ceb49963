"""Who waits for a message asks often at first, and seldom when nothing comes."""

from __future__ import annotations

import inspect
import re
import socket
import time

import pytest

from sordino.experiment.flower.bell import hung, ring
from sordino.experiment.flower.node import LEAST_S, OWN_S, Sleeps, ringing
from sordino.experiment.flower.waiting import pause


class Night:
    """A clock that only sleep moves."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def night():
    return Night()


def asked_until(waits: Sleeps, night: Night, moment: float) -> float:
    """How late a message of this moment is found."""
    due = night.now + moment
    while night.now < due:
        waits.sleep(3.0)
    return night.now - due


def test_an_idle_node_sleeps_as_long_as_flowers_own(night):
    waits = Sleeps(lambda: night.now, night.sleep)
    waits.sleep(3.0)
    assert night.slept == [3.0]


@pytest.mark.parametrize("moment", [0.01, 0.7, 4.0, 20.0, 200.0])
def test_a_message_is_found_late_by_a_tenth_of_the_wait_at_most(night, moment):
    waits = Sleeps(lambda: night.now, night.sleep)
    waits.sleep(0.5)  # at work
    assert night.slept == [OWN_S]
    assert asked_until(waits, night, moment) <= max(LEAST_S, 0.1 * (moment + OWN_S))
    assert max(night.slept) <= 3.0
    waits.sleep(0.5)  # at work again
    waits.sleep(3.0)
    assert night.slept[-1] == LEAST_S


def test_few_questions_in_a_long_wait(night):
    waits = Sleeps(lambda: night.now, night.sleep)
    waits.sleep(0.5)
    asked_until(waits, night, 60.0)
    assert len(night.slept) < 65  # every 0.3 seconds would be 200
    assert pause(1e9, 0.05, 0.5) == 0.5


def test_a_coordinator_that_holds_the_question_has_waited_for_the_node(night):
    waits = Sleeps(lambda: night.now, night.sleep)
    waits.sleep(3.0)
    night.now += 10.0  # held
    waits.sleep(3.0)
    assert night.slept == [3.0, LEAST_S]
    night.now += 1.0  # held for less than it would have slept
    waits.sleep(3.0)
    assert night.slept[-1] == pytest.approx(2.0)


def test_flower_s_node_has_the_names_that_ours_replaces():
    node = pytest.importorskip("flwr.supernode.start_client_internal")
    source = inspect.getsource(node)
    assert set(re.findall(r"\btime\.(\w+)", source)) == {"sleep"}
    assert "pull_objects(" in source
    assert "            _push_messages(" in source
    assert node.time.sleep is time.sleep


def test_it_rings_before_it_waits_for_the_answer():
    port, said = free(), []
    with hung(port) as bell:
        ringing(lambda **given: said.append((given, bell.wait(1.0))), port)(state="s")
        assert said == [({"state": "s"}, True)]


def test_a_bell_is_heard_once_for_all_that_rang_before():
    port = free()
    ring(port)  # nobody is there, and nobody minds
    with hung(port) as bell:
        assert not bell.wait(0.01)
        assert not bell.heard
        for _ in range(5):
            ring(port)
        assert bell.wait(1.0)
        assert not bell.wait(0.01)
        assert bell.heard
        with hung(port) as second:  # somebody has the port: it is as silent as no bell
            ring(port)
            assert not second.wait(0.01)
        assert bell.wait(1.0)


def free() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]
