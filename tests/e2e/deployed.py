"""Federations of real processes on loopback, up for as long as a test needs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sordino.experiment.deploy import marks

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from federations import SORDINO, folders

__all__ = ["SORDINO", "command", "folders", "up"]


@contextmanager
def up(fed: Path, least: int) -> Iterator[Path]:
    """A federation that runs, of this many processes or more; afterwards none of them is left."""
    try:
        subprocess.run([*SORDINO, "deploy", "up", "--local", "--detach", fed], check=True, timeout=200)
        yield fed
    finally:
        started = marks.marked(fed)
        subprocess.run([*SORDINO, "deploy", "down", fed], check=True, timeout=60)
    assert len(started) >= least
    assert marks.marked(fed) == {}


def command(fed: Path, file: Path, *overrides: str) -> list[str]:
    """`sordino run` of an experiment file over a federation."""
    sets = [part for text in overrides for part in ("--set", text)]
    options = ["--engine", "flower", "--federation", str(fed / "coordinator"), "--timeout", "60", "--json"]
    return [*SORDINO, "run", str(file), *options, "--runs", str(file.parent / "runs"), *sets]
