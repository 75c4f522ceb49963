"""The memory of a round is that of the model, not of the cohort; so is a server's of a sharded sum."""

from __future__ import annotations

import tracemalloc

import numpy as np

from sordino.core.types import RoundPlan, Unit, Update
from sordino.federation.engines.inprocess import InProcess
from sordino.federation.pipeline import Pipeline

SIZE = 50_000
UPDATE = 8 * SIZE


def peak(cohort, passed=iter):
    """The most memory that a round's total takes, in bytes, with updates made when they are asked for."""
    pipeline, plan = Pipeline.from_tables([{"clip": {"norm": 1.0}}]), RoundPlan(0, 1, (), float(cohort))

    def work(client, start, announced):
        made = np.full(SIZE, client + 1, np.float32) + start
        return pipeline.client(Update(vector=made, records=1), announced)

    updates = InProcess().run(plan, np.arange(cohort), np.zeros(SIZE, np.float32), work)
    tracemalloc.start()
    try:
        total = pipeline.total(passed(updates), plan, SIZE, Unit.CLIENT)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total.l2 == 1.0
    return most


def test_ten_times_the_cohort_takes_no_more_memory():
    small = peak(8)
    assert small < 12 * UPDATE
    assert peak(80) < small + UPDATE


def test_a_round_that_keeps_the_updates_would_be_found_out():
    """Negative control: all updates in a list."""
    assert peak(80, list) > peak(8, list) + 30 * UPDATE
