"""Who waits for a message asks often at first, and seldom when nothing comes."""

from __future__ import annotations

import pytest

from sordino.experiment.flower.node import LEAST_S, OWN_S, Sleeps
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
