"""C20: what was spent stays spent: over the rounds of a training, and over runs in processes of their own.

A person is in the next round and in the next run as well. Who starts at nothing each time says a true ε of a part, and
lets it be read as that of the whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import in_child
from sordino.audit.conformance.measure import Bench
from sordino.audit.conformance.protocol import Federates, NotApplicable, Persists
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.core.types import Adjacency
from sordino.privacy import accounting, events

DELTA = 1e-5
RELEASES = 10
RATE, ROUNDS, STEPS = 0.1, 3, 10


@check("C20", "what was spent stays spent")
def spent(bench: Bench) -> Iterator[Outcome]:
    """Rounds one after another; two runs in two processes that share a folder."""
    target = bench.target
    if not isinstance(target, Persists | Federates):
        raise NotApplicable("it says of no training what it costs")
    if isinstance(target, Federates):
        yield _rounds(target)
    if isinstance(target, Persists):
        yield _processes(target)


def _rounds(target: Federates) -> Outcome:
    """After several rounds: all of them, not the last one."""
    z = 1.0
    said = target.over_rounds(z, RATE, ROUNDS, STEPS, DELTA)
    sequence = [(events.poisson(RATE, events.gaussian(z)), ROUNDS * STEPS)]
    true = accounting.best_epsilon(sequence, DELTA, adjacency=Adjacency.ADD_REMOVE).epsilon
    return Outcome(
        result=Result.PASS if said >= true * 0.99 else Result.FAIL,
        case="rounds add up",
        evidence=f"after {ROUNDS} rounds of {STEPS} steps it says epsilon {said:.3f}; they cost {true:.3f}",
        numbers={"said": said, "cost": true},
        shows=f"print(target.over_rounds({z:g}, {RATE:g}, {ROUNDS}, {STEPS}, {DELTA}))",
    )


def _processes(target: Persists) -> Outcome:
    """A second run, in a process of its own, in the folder of the first."""
    case = "a second run knows the first"
    if not hasattr(os, "fork"):
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="there is no fork here")
    (whole,), (_, both) = runs(target, 2 * RELEASES), runs(target, RELEASES, RELEASES)
    return Outcome(
        result=Result.PASS if both >= whole * 0.999 else Result.FAIL,
        case=case,
        evidence=f"{2 * RELEASES} releases cost {whole:.3f}; the second run of {RELEASES} says {both:.3f}",
        numbers={"whole": whole, "second": both},
        shows="from sordino.audit.conformance.checks.memory import runs\n"
        f"print(runs(target, {2 * RELEASES}), runs(target, {RELEASES}, {RELEASES}))",
    )


def runs(target: Persists, *releases: int) -> list[float]:
    """What each of several runs says at its end, each in a process of its own and all in one new folder."""
    with tempfile.TemporaryDirectory() as folder:

        def one(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            os.chdir(folder)  # of the child: what is kept where one works is found again
            return np.array([target.spent_by(Path(folder), 1.0, count, DELTA)])

        return [float(in_child(lambda count=count: one(count))[0]) for count in releases]  # type: ignore[misc]
