"""Every registered aggregator: order does not matter, one update is itself, nobody is zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sordino.core.errors import EngineError
from sordino.core.types import Update
from sordino.federation.aggregators import aggregators
from sordino.federation.bounds import Bound

SIZE = 4
vectors = arrays(np.float32, SIZE, elements=st.floats(-100, 100, width=32))
quick = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize("name", aggregators.names())
class TestAggregator:
    @quick
    @given(rows=st.lists(vectors, max_size=8), order=st.randoms(use_true_random=False))
    def test_order_does_not_matter(self, name, rows, order):
        """Permutation invariant up to float64 rounding."""
        aggregator = aggregators.example(name)
        shuffled = list(rows)
        order.shuffle(shuffled)
        first = aggregator.reduce(map(Update, rows), SIZE)
        second = aggregator.reduce(map(Update, shuffled), SIZE)
        np.testing.assert_allclose(first.vector, second.vector, atol=1e-10)
        assert first.count == second.count == len(rows)

    @quick
    @given(row=vectors)
    def test_one_update_is_itself(self, name, row):
        """The aggregate of one update has its vector, in float64."""
        result = aggregators.example(name).reduce(iter([Update(row)]), SIZE)
        assert np.array_equal(result.vector, row)
        assert result.vector.dtype == np.float64

    def test_an_empty_cohort_gives_zeros(self, name):
        """Nobody came: zeros of the right size, so that noise can still be released."""
        result = aggregators.example(name).reduce(iter([]), SIZE)
        assert np.array_equal(result.vector, np.zeros(SIZE))
        assert result.count == 0

    @quick
    @given(rows=st.lists(vectors, max_size=6), extra=vectors)
    def test_one_client_moves_the_result_by_at_most_the_bound(self, name, rows, extra):
        """Neighbouring cohorts, given the longest update there is."""
        aggregator = aggregators.example(name)
        longest = max(float(np.linalg.norm(row.astype(np.float64))) for row in [*rows, extra]) + 1e-9
        with_extra = aggregator.reduce(map(Update, [*rows, extra]), SIZE).vector
        without = aggregator.reduce(map(Update, rows), SIZE).vector
        assert np.linalg.norm(with_extra - without) <= aggregator.bound(Bound(longest)).l2 * (1 + 1e-9)

    def test_updates_are_left_as_they_are(self, name):
        """The accumulator never aliases a client's array."""
        row = np.ones(SIZE, np.float64)
        result = aggregators.example(name).reduce(iter([Update(row), Update(row)]), SIZE)
        assert np.array_equal(row, np.ones(SIZE))
        assert result.vector is not row

    def test_a_wrong_length_is_an_engine_error(self, name):
        """Broadcasting a short vector over the model would be silent nonsense."""
        with pytest.raises(EngineError, match="shape"):
            aggregators.example(name).reduce(iter([Update(np.ones(1, np.float32))]), SIZE)
