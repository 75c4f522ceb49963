"""Every registered stage, and any stack of them: one client moves the decoded sum by at most the folded bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sordino.core.errors import ConfigError
from sordino.core.tables import plain
from sordino.core.types import Group, RoundPlan, Update
from sordino.federation.aggregators.sum import Sum
from sordino.federation.bounds import Bound
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages import Stage, stages

SIZE = 6
PLAN = RoundPlan(0, 10, (Group("a", 0, 1), Group("b", 1, 3), Group("c", 3, SIZE)), expected=5.0)
TOLERANCE = 1e-9

entries = st.one_of(
    st.floats(-5, 5, width=32),
    st.sampled_from([0.0, 1.0, -1.0, 1e-30, 3e38, -3e38, float("nan"), float("inf"), -float("inf")]),
)
vectors = arrays(np.float32, SIZE, elements=entries)
finite = arrays(np.float32, SIZE, elements=st.floats(-5, 5, width=32))
updates = st.builds(Update, vectors, records=st.integers(0, 10_000))
finite_updates = st.builds(Update, finite, records=st.integers(0, 10_000))
stacks = st.lists(st.sampled_from(stages.names()).map(stages.example), min_size=0, max_size=4)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sent(pipeline: Pipeline, cohort: list[Update]) -> np.ndarray:
    """The decoded sum of what clients send, without the coordinator's second look."""
    return pipeline.plain_total([pipeline.client(update, PLAN) for update in cohort], PLAN, SIZE)


def moved(pipeline: Pipeline, others: list[Update], extra: Update) -> tuple[float, float]:
    """L2 and L1 distance between the sums of two neighbouring cohorts."""
    difference = sent(pipeline, [*others, extra]) - sent(pipeline, others)
    return float(np.linalg.norm(difference)), float(np.abs(difference).sum())


def check(stack: list[Stage], others: list[Update], extra: Update) -> None:
    """One client moves the sum by at most the bound, in L2 and in L1, when the stack ends in a bound."""
    pipeline = Pipeline(tuple(stack))
    try:
        bound = pipeline.bound()
    except ConfigError:
        bound = Bound()
    l2, l1 = moved(pipeline, others, extra)
    slack = 1 + TOLERANCE * (1 + len(others))
    assert bound.l2 is None or l2 <= bound.l2 * slack + TOLERANCE
    assert bound.l1 is None or l1 <= bound.l1 * slack + TOLERANCE


@pytest.mark.parametrize("name", stages.names())
class TestStage:
    @quick
    @given(others=st.lists(finite_updates, max_size=4), extra=finite_updates)
    def test_one_client_moves_the_sum_by_at_most_the_bound(self, name, others, extra):
        """The definition of sensitivity, on neighbouring cohorts, given the incoming bound that really holds."""
        stage = stages.example(name)
        vectors = [update.vector.astype(np.float64) for update in [*others, extra]]
        incoming = Bound(l2=max(np.linalg.norm(v) for v in vectors), l1=max(float(np.abs(v).sum()) for v in vectors))
        bound = stage.bound(incoming)

        l2, l1 = moved(Pipeline((stage,)), others, extra)

        assert l2 <= bound.l2 * (1 + TOLERANCE) + TOLERANCE
        assert l1 <= bound.l1 * (1 + TOLERANCE) + 1e-6  # the L1 of a float32 vector is rounded d times

    @quick
    @given(others=st.lists(finite_updates, max_size=3), extra=updates)
    def test_its_own_bound_holds_for_any_update(self, name, others, extra):
        """A stage that bounds an unbounded update does so for huge, tiny and non-finite ones too."""
        check([stages.example(name)], others, extra)

    def test_a_known_bound_is_never_lost_nor_made_negative(self, name):
        """Given a bound, a stage passes one on; it is monotone: a smaller bound in gives no larger bound out."""
        stage = stages.example(name)
        small, large = stage.bound(Bound(l2=0.01, l1=0.02)), stage.bound(Bound(l2=5.0, l1=9.0))
        assert 0 < small.l2 <= large.l2
        assert 0 < small.l1 <= large.l1

    @quick
    @given(update=updates)
    def test_nothing_is_written_to_its_input(self, name, update):
        """Both halves and settling leave the arrays they are given as they were."""
        stage = stages.example(name)
        before = update.vector.copy()
        encoded = stage.client(update, PLAN)
        kept = encoded.vector.copy()
        total = np.nan_to_num(encoded.vector.astype(np.float64), posinf=1.0, neginf=-1.0)
        copy = total.copy()
        stage.server(total, PLAN)
        stage.settle(total.astype(np.float32), PLAN)
        assert np.array_equal(update.vector, before, equal_nan=True)
        assert np.array_equal(encoded.vector, kept, equal_nan=True)
        assert np.array_equal(total, copy)

    @quick
    @given(update=finite_updates)
    def test_sizes_are_as_announced(self, name, update):
        """The client half gives the announced length, as float32; decoding and settling give the model's back."""
        stage = stages.example(name)
        encoded = stage.client(update, PLAN)
        assert encoded.vector.shape == (stage.size(SIZE),)
        assert encoded.vector.dtype == np.float32
        released, following = stage.settle(stage.server(encoded.vector.astype(float), PLAN).astype(np.float32), PLAN)
        assert released.shape == (SIZE,)
        assert type(following) is type(stage)

    def test_it_survives_a_checkpoint(self, name):
        """A stage is its TOML table: written and read, it is the same stage."""
        stage = stages.example(name)
        assert stages.build(name, plain(stage)) == stage

    def test_it_has_a_summary(self, name):
        """The reference page finds a first line."""
        assert stages.summary(name)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stack=stacks, others=st.lists(finite_updates, max_size=4), extra=updates)
def test_any_stack_keeps_its_folded_bound(stack, others, extra):
    """Stages in any order and number: the folded bound holds for the decoded sum."""
    check(stack, others, extra)


# Broken twins: mistakes found in the wild. Each must fail the very check that sound stages pass.


@dataclass(frozen=True)
class CoordinateClamp(Stage):
    """Clamps every coordinate to ±norm and calls it an L2 clip; the truth is norm·√d."""

    example: ClassVar = {}
    norm: float = 1.0

    def bound(self, incoming):
        return incoming.capped(l2=self.norm)

    def client(self, update, plan):
        return replace(update, vector=np.clip(update.vector, -self.norm, self.norm))


@dataclass(frozen=True)
class PerArrayClip(Stage):
    """Clips every tensor to norm and claims norm; the truth is norm·√L."""

    example: ClassVar = {}
    norm: float = 1.0

    def bound(self, incoming):
        return incoming.capped(l2=self.norm)

    def client(self, update, plan):
        vector = update.vector.copy()
        for group in plan.groups:
            piece = vector[group.start : group.stop]
            piece /= max(1.0, np.linalg.norm(piece) / self.norm)
        return replace(update, vector=vector)


@dataclass(frozen=True)
class UncappedWeight(Stage):
    """Weights by records over a typical number, without the cap."""

    example: ClassVar = {}

    def client(self, update, plan):
        return replace(update, vector=update.vector * np.float32(update.records / 100))


@dataclass(frozen=True)
class NanPassesClip(Stage):
    """`min(1, norm / nan)` is 1 in Python: a non-finite update passes unclipped."""

    example: ClassVar = {}

    def bound(self, incoming):
        return incoming.capped(l2=1.0)

    def client(self, update, plan):
        return replace(update, vector=update.vector * min(1, 1 / (np.linalg.norm(update.vector) or 1)))


class RealisedMean(Sum):
    """Divides by who came; the truth is up to twice as far, and the divisor is private."""

    def reduce(self, updates, size):
        total = super().reduce(updates, size)
        return replace(total, vector=total.vector / max(total.count, 1))

    def bound(self, incoming):
        return Bound(incoming.l2 / 10)  # "the mean of ten moves by a tenth"


ONES = Update(np.full(SIZE, 3.0, np.float32), records=1000)


@pytest.mark.parametrize(
    ("stack", "extra"),
    [
        ([CoordinateClamp()], ONES),
        ([PerArrayClip()], ONES),
        ([stages.example("clip"), UncappedWeight()], ONES),
        ([NanPassesClip()], replace(ONES, vector=np.full(SIZE, np.nan, np.float32))),
    ],
    ids=["coordinate clamp", "per-array clip", "uncapped weight", "nan passes"],
)
def test_broken_twins_fail_the_same_check(stack, extra):
    """The check has teeth: each known mistake moves the sum further than it claims."""
    with pytest.raises(AssertionError):
        _strict(stack, extra)


def _strict(stack: list[Stage], extra: Update) -> None:
    check(stack, [], extra)
    assert np.isfinite(sent(Pipeline(tuple(stack)), [extra])).all()


def test_a_realised_denominator_fails_the_same_check():
    """Nine clients at +u and one at −u: the realised mean moves twice as far as C over the cohort."""
    u = np.zeros(SIZE, np.float32)
    u[0] = 1.0
    others, extra = [Update(u)] * 9, Update(-u)
    pipeline = Pipeline((stages.example("clip"),), RealisedMean())
    l2, _ = moved(pipeline, others, extra)
    assert l2 == pytest.approx(2 * pipeline.bound().l2)
    assert moved(Pipeline((stages.example("clip"),)), others, extra)[0] == pytest.approx(1.0)
