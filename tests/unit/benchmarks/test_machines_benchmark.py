"""The benchmark of machines compares the same networks, and counts all bytes and all processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")


@pytest.fixture(scope="module", autouse=True)
def found():
    """Its own folder is on the path, as for any script."""
    sys.path.insert(0, BENCHMARKS)
    yield
    sys.path.remove(BENCHMARKS)


def test_both_train_a_network_of_the_same_shapes(tmp_path):
    import machines_flower
    from machines_task import Task

    from sordino.local.models import models

    task = Task.of(tmp_path)
    (name, options), *_ = task.experiment.model.items()
    ours = [shape for _, shape in models.build(name, options).shapes(task.population.spec)]
    theirs = [tuple(p.shape) for p in machines_flower.network().parameters()]
    assert ours == theirs
    assert sum(int(np.prod(shape)) for shape in ours) == task.plan.parameters == 6061
    assert sum(len(machines_flower.shard(i, 20)[1]) for i in range(20)) == len(task.population.train.examples) == 1797


def test_a_relay_counts_what_passes_each_way():
    from machines_processes import Relay

    with socket.create_server(("127.0.0.1", 0)) as coordinator:
        relay = Relay(coordinator.getsockname()[1])
        with socket.create_connection(("127.0.0.1", relay.port)) as site:
            line, _ = coordinator.accept()
            with line:
                site.sendall(b"x" * 1000)
                assert len(line.recv(1000, socket.MSG_WAITALL)) == 1000
                line.sendall(b"y" * 70)
                assert len(site.recv(70, socket.MSG_WAITALL)) == 70
    assert relay.passed == {"up": 1000, "down": 70}


BUSY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time\\nwhile time.process_time() < 0.3: pass"])
child.wait()
print("done", flush=True)
sys.stdin.read()
"""


def test_a_process_s_own_children_count_with_it_after_they_ended():
    from machines_task import Clock

    command = [sys.executable, "-S", "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        told = Clock({child.pid: "site"})
        told()
        child.stdin.close()
    assert told.moments[0][1]["site"] >= 0.25
