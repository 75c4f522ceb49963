"""An engine of clients that started rounds ago: their own models and rounds, and weights that bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sordino.core.errors import PrivacyError
from sordino.core.seeds import stream
from sordino.core.types import Group, RoundPlan, Update
from sordino.federation.engines.delayed import Delayed, Starts
from sordino.federation.engines.inprocess import InProcess
from sordino.federation.pipeline import Pipeline
from sordino.federation.sampling.buffered import Buffered

SIZE = 6
PLAN = RoundPlan(5, 9, (Group("all", 0, SIZE),), 4.0)
COHORT = np.array([7, 2, 9, 4])
VERSIONS = np.array([5, 1, 3, 1])
MODELS = {round_: np.full(SIZE, round_, np.float32) for round_ in (1, 3)}
CURRENT = np.full(SIZE, 5, np.float32)
DISCOUNT = Buffered(size=4, per_client=1, concurrency=4).discount


def engine(discount=DISCOUNT, kind=Delayed):
    return kind(InProcess(), Starts(VERSIONS, MODELS, discount))


def test_everyone_starts_from_its_own_model_and_round():
    """Position, model and announced round fit together, and what comes back weighs (1 + τ)^−½."""
    seen = {}

    def work(client, start, plan):
        seen[client] = (float(start[0]), plan.round)
        return Update(np.ones(SIZE, np.float32))

    updates = list(engine().run(PLAN, COHORT, CURRENT, work))

    assert seen == {7: (5.0, 5), 2: (1.0, 1), 9: (3.0, 3), 4: (1.0, 1)}
    weights = sorted(float(update.vector[0]) for update in updates)
    assert weights == pytest.approx(sorted([1.0, 5**-0.5, 3**-0.5, 5**-0.5]))


def test_side_by_side_is_one_after_another():
    """Work that several clients share gives the same sum."""

    def work(client, start, plan):
        return Update((start + client * plan.round).astype(np.float32))

    def together(clients, start, plan):
        return [work(int(client), start, plan) for client in clients]

    alone = sum(update.vector for update in engine().run(PLAN, COHORT, CURRENT, work))
    shared = sum(update.vector for update in engine().run(PLAN, COHORT, CURRENT, work, together))

    assert np.allclose(alone, shared)


@pytest.mark.parametrize("weight", [1.0 + 1e-9, 2.0, 0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_could_lengthen_is_refused(weight):
    """Broken twin: whatever is not in (0, 1] stops the round before anything is summed."""
    with pytest.raises(PrivacyError, match="must lie in"):
        list(engine(lambda age: weight).run(PLAN, COHORT, CURRENT, lambda *_: Update(np.ones(SIZE, np.float32))))


@dataclass(frozen=True, eq=False)
class Unchecked(Delayed):
    """The broken twin: it takes any weight."""

    def run(self, plan, cohort, model, work, together=None):
        for client, version in zip(cohort, self.starts.versions, strict=True):
            update = work(int(client), model, plan)
            yield Update(update.vector * self.starts.discount(plan.round - int(version)))


def moved(made) -> float:
    """How far one client moves the sum at most, over the bound; each client's update is far too long."""
    pipeline = Pipeline.from_tables([{"clip": {"norm": 0.7}}])

    def total(without):
        def work(client, start, plan):
            raw = np.zeros(SIZE) if client == without else 100 * stream(client, "raw").standard_normal(SIZE)
            return pipeline.client(Update((raw + 0 * start).astype(np.float32)), plan)

        return pipeline.plain_total(made.run(PLAN, COHORT, CURRENT, work), PLAN, SIZE)

    everyone = total(None)
    return max(float(np.linalg.norm(everyone - total(client))) for client in COHORT) / pipeline.bound().l2


def test_one_client_moves_the_sum_by_the_bound_at_most():
    """At every age, clipped before it is shrunk; and a twin that makes old updates longer moves it further."""
    assert 0.999 < moved(engine()) <= 1
    assert moved(engine(lambda age: (1.0 + age) ** 0.5, Unchecked)) > 1.5
