"""The run's own loop once more, on other records: its strategy, averages and setting, under books that are thrown away.

Everything in them is marked TEST, and noise is seeded: the run's own ledger is never charged by its audit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sordino.core.types import Vector
from sordino.experiment import config
from sordino.experiment.books import kept
from sordino.experiment.build import Built
from sordino.experiment.plan import Plan
from sordino.experiment.rounds import State
from sordino.experiment.settings.setup import Setting

RUN = "audit"
"""The run's name in its books."""


def again(
    built: Built, start: Vector, setting: Setting, plan: Plan, seen: Callable[[State], None] = lambda _: None
) -> Vector:
    """The final model.

    Args:
        built: With the records and the source of noise.
        start: Where it begins, of any length that the setting knows.
        setting: How a round releases.
        plan: Who pays; with other limits than the run's, which need not bear it twice.
        seen: Told the state after every round.
    """
    experiment = config.changed(plan.experiment, budget=None, ledger=None)
    if plan.private:
        experiment = config.changed(experiment, simulation__noise_seed=0)  # TEST; the noise is the source's
    test = replace(plan, experiment=experiment)
    with tempfile.TemporaryDirectory() as folder, kept(test, RUN, Path(folder) / "ledger.db") as (books, _):
        loop = built.loop(books, RUN, lambda _: None, seen)
        return loop.average.result(loop.rounds(loop.start(start), setting).average)
