"""What ends by itself is started again, later and later; and `down` finds all of it, whoever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from sordino.experiment.deploy import keeping, local, marks
from sordino.experiment.deploy.keeping import Keeper, parts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SLEEP = ["/bin/sleep", "60"]
WITH_CHILD = ["/bin/sh", "-c", "/bin/sleep 60 & /bin/sleep 60"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; while :; do /bin/sleep 0.1; done"]
KEPT = """
import sys, time
from pathlib import Path
from sordino.experiment.deploy.keeping import Keeper
keeper = Keeper(Path(sys.argv[1]), {"a node": ["/bin/sleep", "60"], "b node": ["/bin/sleep", "60"]}, print)
while True:
    keeper.step()
    time.sleep(0.05)
"""


class Clock:
    """Seconds, as a test sets them."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def home(tmp_path):
    (tmp_path / "logs").mkdir()
    yield tmp_path
    for pid, began in marks.marked(tmp_path).items():
        marks.send(pid, began, signal.SIGKILL)


def within(condition, seconds=10.0):
    """Wait for what must come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def kept(home, command, clock=None):
    said = []
    return Keeper(home, {"a node": command}, said.append, clock or Clock()), said


def the_part(home):
    return next(part for part in parts(home) if part.name == "a node")


def ended(home, keeper):
    """Let the keeper see the end of what runs."""
    before = the_part(home)
    within(lambda: not before.alive)
    keeper.step()


def test_what_was_killed_is_started_again_after_pauses_that_grow(home):
    clock = Clock()
    keeper, said = kept(home, SLEEP, clock)
    keeper.step()
    for number, wait in enumerate([1, 2, 4, 8, 16, 30, 30], start=1):
        assert (the_part(home).starts, the_part(home).alive) == (number, True)
        os.kill(the_part(home).pid, signal.SIGKILL)
        ended(home, keeper)
        clock.now += wait - 0.01
        keeper.step()
        assert not the_part(home).alive
        clock.now += 0.02
        keeper.step()
        assert said[-2:] == [f"a node has ended (SIGKILL); starts again in {wait} s", f"a node: start {number + 1}"]
    clock.now += keeping.STEADY_S + 1  # it has run for a while
    os.kill(the_part(home).pid, signal.SIGKILL)
    ended(home, keeper)
    assert said[-1].endswith("starts again in 1 s")


def test_its_end_is_told_with_its_exit_code(home):
    keeper, _ = kept(home, ["/bin/sh", "-c", "echo why; exit 3"])
    keeper.step()
    ended(home, keeper)
    assert (the_part(home).ended, the_part(home).alive) == ("exit code 3", False)
    assert keeping.log_of(home, "a node").read_text() == "why\n"


def test_what_a_killed_process_had_started_ends_before_it_is_started_again(home):
    keeper, _ = kept(home, WITH_CHILD)
    keeper.step()
    within(lambda: len(marks.marked(home)) == 3)  # a shell and two others
    os.kill(the_part(home).pid, signal.SIGKILL)
    ended(home, keeper)
    within(lambda: marks.marked(home) == {})


def test_a_keeper_that_is_killed_leaves_nothing_that_down_does_not_find(home):
    environment = marks.environment(home)
    with subprocess.Popen([sys.executable, "-c", KEPT, home], env=environment, stdout=subprocess.DEVNULL) as keeper:
        within(lambda: len(marks.marked(home)) == 3)
        keeper.kill()
    started = marks.marked(home)  # the second may not have been noted before the keeper's end
    assert len(started) == 2
    (home / keeping.UP).unlink()
    assert sorted(marks.end(home)) == sorted(started)
    assert marks.marked(home) == {}


def test_a_keeper_that_runs_starts_nothing_behind_the_back_of_down(home):
    environment = marks.environment(home)
    with subprocess.Popen([sys.executable, "-c", KEPT, home], env=environment, stdout=subprocess.DEVNULL):
        within(lambda: len(marks.marked(home)) == 3)
        assert len(marks.end(home)) >= 3
        time.sleep(0.3)
        assert marks.marked(home) == {}


def test_what_does_not_listen_is_killed_after_a_while(home):
    keeper, _ = kept(home, STUBBORN)
    keeper.step()
    within(lambda: len(marks.marked(home)) == 2)
    marks.end(home, patience_s=0.3)
    assert marks.marked(home) == {}


def test_only_processes_of_this_folder_are_ended(home, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    with subprocess.Popen(SLEEP, env=marks.environment(other)) as stranger:
        assert marks.end(home) == []
        assert stranger.poll() is None
        stranger.kill()


def test_status_tells_what_runs_again_and_that_nothing_does_without_the_keeper(home):
    keeper, _ = kept(home, SLEEP)
    keeper.step()
    (me, part) = parts(home)
    assert (me.name, me.pid) == ("keeper", os.getpid())
    assert local._words(part, kept=True) == "runs"
    local.kill(home, "a node")
    keeper.step()
    assert local._words(the_part(home), kept=True) == "has ended (SIGKILL), starts again soon"
    assert local._words(the_part(home), kept=False) == "has ended (SIGKILL)"
