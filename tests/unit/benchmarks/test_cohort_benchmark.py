"""The cohort benchmark counts what a program uses, wherever it hides, and says what is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cohort():
    """The benchmark, whose own folder is on the path as for any script."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import cohort as module
    finally:
        sys.path.pop(0)
    return module


def test_the_task_is_the_one_compared(cohort):
    """6,090 parameters; 100 clients with 17 or 18 digits each, hence a batch of 16 and a small one."""
    task = cohort.cohort_task
    assert sum(p.numel() for p in task.network().parameters()) == 6090
    sizes = [len(y) for _, y in task.shards()]
    assert (len(sizes), sum(sizes), set(sizes)) == (100, 1797, {17, 18})


DAEMON = """
import subprocess, sys, time
code = "import time\\nwhile time.process_time() < 0.3: pass\\ntime.sleep(1)"
subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
time.sleep(3)
print("accuracy")
"""


def test_daemons_are_counted(cohort):
    """A process in a session of its own, which its parent never waits for."""
    spent = cohort.tree_cpu([sys.executable, "-S", "-c", DAEMON])
    assert 0.25 < spent < 2


def test_a_program_that_fails_is_no_figure(cohort):
    """Its output is shown instead."""
    with pytest.raises(SystemExit, match="no such luck"):
        cohort.tree_cpu([sys.executable, "-S", "-c", "raise ValueError('no such luck')"])


def test_what_is_missing_is_said(cohort, monkeypatch):
    """An interpreter without the other systems gives rows without figures."""
    monkeypatch.setattr(cohort, "installed", lambda system, python: False)
    rows = cohort.clients(1, sys.executable, ["pfl", "flower on Ray"], 1)
    assert [row["ms_per_client_step"] for row in rows] == ["not installed"] * 2
