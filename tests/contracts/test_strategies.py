"""Every registered strategy: a pure step whose state round-trips, and zero in leaves the model alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sordino.federation.strategies import ServerState, strategies
from sordino.federation.strategies.adaptive import SECOND_MOMENTS, Adaptive

SIZE = 3
vectors = arrays(np.float32, SIZE, elements=st.floats(-10, 10, width=32))
quick = settings(max_examples=40, deadline=None)
CASES = [
    *[pytest.param(strategies.example(name), id=name) for name in strategies.names()],
    *[pytest.param(Adaptive(kind=kind), id=f"adaptive-{kind}") for kind in SECOND_MOMENTS],  # type: ignore[arg-type]
]


def same(first: ServerState, second: ServerState) -> bool:
    pairs = zip((first.model, *first.memory), (second.model, *second.memory), strict=True)
    return first.round == second.round and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("strategy", CASES)
class TestStrategy:
    @quick
    @given(model=vectors, means=st.lists(vectors, min_size=1, max_size=3))
    def test_the_state_round_trips(self, strategy, model, means):
        """Written to arrays and read back, a run goes on exactly as if it had never stopped."""
        state = strategy.init(model)
        for mean in means:
            state = strategy.step(state, mean)
        restored = ServerState.from_arrays(state.to_arrays())
        assert same(restored, state)
        assert same(strategy.step(restored, means[0]), strategy.step(state, means[0]))

    @quick
    @given(model=vectors)
    def test_a_zero_mean_changes_only_memory(self, strategy, model):
        """From the first state, a mean of zero leaves the model as it is, whatever happens to the memory."""
        state = strategy.init(model)
        for _ in range(3):
            state = strategy.step(state, np.zeros(SIZE, np.float32))
        assert np.array_equal(state.model, model)
        assert state.round == 3

    @quick
    @given(model=vectors, mean=vectors)
    def test_the_step_is_pure(self, strategy, model, mean):
        """State and mean are left as they were, the same call gives the same state, all of it float32."""
        state = strategy.init(model)
        copies = [model.copy(), mean.copy(), *[array.copy() for array in state.memory]]
        after = strategy.step(state, mean)
        assert all(np.array_equal(a, b) for a, b in zip([state.model, mean, *state.memory], copies, strict=True))
        assert same(after, strategy.step(state, mean))
        assert {array.dtype for array in (after.model, *after.memory)} == {np.dtype(np.float32)}

    def test_the_model_moves_along_the_mean(self, strategy):
        """A first step from zero has the sign of the mean in every coordinate."""
        mean = np.array([1.0, -2.0, 0.0], np.float32)
        after = strategy.step(strategy.init(np.zeros(SIZE, np.float32)), mean)
        assert np.array_equal(np.sign(after.model), np.sign(mean))
