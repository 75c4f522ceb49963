"""The pipeline: the bound is folded, the certificate is true whatever arrives, and the stages can be stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.core.types import RoundPlan, Unit, Update
from sordino.federation.bounds import Bound
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.mechanisms.laplace import Laplace
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages import Stage
from sordino.federation.stages.adaptive_clip import AdaptiveClip
from sordino.federation.stages.clip import Clip
from sordino.federation.stages.clip_l1 import ClipL1
from sordino.federation.stages.weight import Weight
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

SIZE = 4
PLAN = RoundPlan(0, 5, (), expected=2.0)
TINY = Gaussian(1e-6)
anything = arrays(np.float32, SIZE, elements=st.one_of(st.floats(width=32), st.floats(-2, 2, width=32)))


def released(total: BoundedSum, mechanism=TINY) -> np.ndarray:
    """What a door lets out; with TINY noise, the sum itself to six digits."""
    line = Line("silo", Unit.CLIENT, events.key(mechanism.event()), 1)
    reservation = mint_reservation("tx", [line], test=True)
    return Door(mechanism, mechanism.event(), ("silo",), reservation, SeededNoise(0))(total)


def test_the_bound_is_folded_in_order():
    """weight → L1 clip → adaptive clip: each passes on what holds."""
    bound = Pipeline((Weight(10), ClipL1(3.0), AdaptiveClip(norm=1.0, bit=0.75))).bound()
    assert bound == Bound(1.25, 3.75)


def test_without_a_clip_there_is_no_total():
    """An unbounded pipeline is refused before the first update is asked for."""

    def never():
        raise AssertionError("an update was asked for")
        yield

    with pytest.raises(ConfigError, match="no stage bounds a client's update; add a 'clip' stage"):
        Pipeline((Weight(10),)).total(never(), PLAN, SIZE, Unit.CLIENT)


def test_the_total_is_the_sum_of_what_clients_send():
    """An honest cohort passes the coordinator's second look unchanged, and carries the folded bound."""
    pipeline = Pipeline((Clip(1.0),))
    rng = np.random.default_rng(0)
    sent = [pipeline.client(Update(row), PLAN) for row in rng.normal(size=(5, SIZE)).astype(np.float32)]
    total = pipeline.total(iter(sent), PLAN, SIZE, Unit.CLIENT)
    assert (total.l2, total.l1, total.unit) == (1.0, None, Unit.CLIENT)
    np.testing.assert_allclose(released(total), sum(u.vector.astype(float) for u in sent), atol=1e-4)
    np.testing.assert_allclose(pipeline.plain_total(sent, PLAN, SIZE), sum(u.vector.astype(float) for u in sent))


@settings(max_examples=60, deadline=None)
@given(others=st.lists(anything, max_size=3), extra=anything)
def test_the_certificate_is_true_whatever_arrives(others, extra):
    """Updates that never saw a clip, non-finite ones included, still move the total by at most the bound."""
    pipeline = Pipeline((ClipL1(2.0), Clip(1.0)))
    with_extra = pipeline.total(map(Update, [*others, extra]), PLAN, SIZE, Unit.CLIENT)
    without = pipeline.total(map(Update, others), PLAN, SIZE, Unit.CLIENT)
    difference = released(with_extra).astype(float) - released(without)
    assert np.linalg.norm(difference) <= 1.0 + 1e-4
    assert np.abs(difference).sum() <= 2.0 + 1e-4


def test_an_empty_cohort_is_released_with_noise():
    """Nobody came: the door still lets out noise around zero, of the length that the stages announce."""
    pipeline = Pipeline((AdaptiveClip(norm=1.0),))
    total = pipeline.total([], PLAN, SIZE, Unit.CLIENT)
    vector, following = pipeline.settle(released(total, Gaussian(1.0)), PLAN)
    assert vector.shape == (SIZE,)
    assert np.count_nonzero(vector) == SIZE
    assert isinstance(following.stages[0], AdaptiveClip)


def test_a_wrong_length_stops_the_round():
    """A client that runs other stages is an engine error, not a broadcast."""
    pipeline = Pipeline((AdaptiveClip(norm=1.0),))
    with pytest.raises(EngineError, match="shape"):
        pipeline.total([Update(np.zeros(SIZE, np.float32))], PLAN, SIZE, Unit.CLIENT)


def test_laplace_refuses_a_sum_without_an_l1_bound():
    """An L2 clip does not make a Laplace release private."""
    total = Pipeline((Clip(1.0),)).total([], PLAN, SIZE, Unit.CLIENT)
    with pytest.raises(PrivacyError, match="add a 'clip_l1' stage"):
        released(total, Laplace(1.0))


def test_stages_are_stored_with_what_they_learnt():
    """Written to tables after a round and read back, the pipeline goes on from the same norm."""
    pipeline = Pipeline((Weight(10), AdaptiveClip(norm=1.0)))
    _, pipeline = pipeline.settle(np.zeros(SIZE + 1, np.float32), replace(PLAN, expected=3.0))
    _, pipeline = pipeline.settle(np.ones(SIZE + 1, np.float32), PLAN)
    assert Pipeline.from_tables(pipeline.to_tables()) == pipeline
    assert pipeline.to_tables()[0] == {"weight": {"cap": 10}}


def test_a_misspelt_stage_is_named():
    """The nearest known name is offered."""
    with pytest.raises(ConfigError, match="did you mean 'clip'"):
        Pipeline.from_tables([{"clpi": {"norm": 1.0}}])


@dataclass(frozen=True)
class Halved(Stage):
    """Sends half of everything and doubles the sum: a pair of halves that must be run in reverse."""

    example: ClassVar = {}
    offset: float = 0.0

    def client(self, update, plan):
        return replace(update, vector=(update.vector / 2 + self.offset).astype(np.float32))

    def server(self, total, plan):
        return (total - self.offset) * 2


def test_server_halves_run_in_reverse():
    """Decoding undoes encoding only from the last stage to the first."""
    pipeline = Pipeline((Halved(1.0), Halved(5.0)))
    vector = np.array([1, 2, 3, 4], np.float32)
    sent = pipeline.client(Update(vector), PLAN)
    assert np.array_equal(pipeline.plain_total([sent], PLAN, SIZE), vector)


def test_one_clients_own_part_is_said_to_be_alone():
    """The same sum and bound as a total of one, within the bound whatever arrives; a total is never called alone."""
    pipeline = Pipeline((Clip(1.0),))
    for row in ([3.0, 4.0, 0.0, 0.0], [np.inf, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]):
        update = Update(np.array(row, np.float32))
        own, total = (
            pipeline.own(update, PLAN, SIZE, Unit.CLIENT),
            pipeline.total([update], PLAN, SIZE, Unit.CLIENT),
        )
        assert own.alone
        assert not total.alone
        assert (own.l2, own.l1, own.unit) == (total.l2, total.l1, total.unit)
        assert np.array_equal(released(own), released(total))
        assert np.linalg.norm(released(own)) <= 1 + 1e-5
    assert own.scaled(2.0).alone
    assert not own.merge(own).alone
