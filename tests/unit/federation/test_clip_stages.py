"""Clipping and weighting: norms, directions, zeros, and what is not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sordino.core.errors import ConfigError
from sordino.core.types import Group, RoundPlan, Update
from sordino.federation.bounds import Bound, length, shortened
from sordino.federation.stages import stages
from sordino.federation.stages.clip import Clip
from sordino.federation.stages.clip_l1 import ClipL1
from sordino.federation.stages.clip_per_layer import ClipPerLayer
from sordino.federation.stages.weight import Weight

PLAN = RoundPlan(0, 1, (Group("a", 0, 2), Group("b", 2, 5)), expected=1.0)
ORDERS = {"clip": 2, "clip_l1": 1, "clip_per_layer": 2}
wide = arrays(np.float64, 5, elements=st.floats(-1e300, 1e300))
narrow = arrays(np.float32, 5, elements=st.floats(-1e6, 1e6, width=32))
quick = settings(max_examples=100, deadline=None)


def clipped(name: str, vector: np.ndarray, norm: float = 2.0) -> np.ndarray:
    return stages.build(name, {"norm": norm}).client(Update(vector), PLAN).vector


@pytest.mark.parametrize("name", ORDERS)
class TestClips:
    @quick
    @given(vector=wide)
    def test_the_norm_ends_within_the_bound(self, name, vector):
        """For every finite vector, 1e300 included, to the last bit of float32."""
        exact = np.linalg.norm(clipped(name, vector).astype(np.float64), ord=ORDERS[name])
        assert exact <= 2.0 * (1 + (1e-7 if length(vector, ORDERS[name]) <= 2.0 else 0))

    @quick
    @given(vector=narrow)
    def test_clipping_twice_is_clipping_once(self, name, vector):
        """Idempotent to the bit."""
        once = clipped(name, vector)
        assert np.array_equal(clipped(name, once), once)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_an_update_that_is_not_finite_counts_as_zero(self, name, bad):
        """One bad entry, wherever it sits, makes the whole update zero: no error, no side channel."""
        for place in range(5):
            vector = np.ones(5, np.float32)
            vector[place] = bad
            assert np.array_equal(clipped(name, vector), np.zeros(5))

    def test_zero_stays_zero(self, name):
        """No division by a zero norm."""
        assert np.array_equal(clipped(name, np.zeros(5, np.float32)), np.zeros(5))

    def test_huge_updates_keep_their_direction(self, name):
        """1e300 in every coordinate would overflow a squared norm; it must end at the bound, not at zero or nan."""
        result = clipped(name, np.full(5, 1e300)).astype(np.float64)
        assert np.linalg.norm(result, ord=ORDERS[name]) == pytest.approx(2.0, rel=1e-6)

    def test_tiny_updates_pass_unchanged(self, name):
        """1e-30 would underflow a squared float32 norm; it is inside the bound and stays as it is."""
        vector = np.full(5, 1e-30, np.float32)
        assert np.array_equal(clipped(name, vector), vector)

    @pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
    def test_a_norm_that_bounds_nothing_is_refused(self, name, norm):
        """Zero, negative and non-finite norms are configuration errors."""
        with pytest.raises(ConfigError, match="norm"):
            stages.build(name, {"norm": norm})


@quick
@given(vector=narrow)
def test_direction_is_kept(vector):
    """The clipped vector is the vector times one number in (0, 1]."""
    result = clipped("clip", vector).astype(np.float64)
    norm = length(vector)
    if norm > 0:
        np.testing.assert_allclose(result, vector * min(1.0, 2.0 / norm), rtol=1e-6, atol=1e-12)


@quick
@given(vector=wide, order=st.sampled_from([1, 2]))
def test_shortening_leaves_what_is_inside(vector, order):
    """Inside the bound the very same array comes back; outside, a new one; never a change in place."""
    copy = vector.copy()
    result = shortened(vector, 10.0, order)
    assert (result is vector) == (length(vector, order) <= 10.0)
    assert np.array_equal(vector, copy)


def test_an_update_exactly_at_the_bound_passes():
    """The bound belongs to the allowed norms."""
    vector = np.array([3.0, 4.0], np.float32)
    assert np.array_equal(Clip(5.0).client(Update(vector), PLAN).vector, vector)


def test_layers_are_clipped_to_equal_budgets():
    """A huge layer is cut to norm/√2, a small one passes: the joint norm is at most the bound."""
    vector = np.array([100, 0, 0.1, 0, 0], np.float32)
    result = ClipPerLayer(1.0).client(Update(vector), PLAN).vector
    assert result[0] == pytest.approx(1 / math.sqrt(2), rel=1e-6)
    assert result[2] == vector[2]


def test_layers_are_clipped_to_their_shares():
    """C_l = norm·√p_l with shares 1 : 3."""
    vector = np.array([9, 0, 9, 0, 0], np.float32)
    result = ClipPerLayer(2.0, (1.0, 3.0)).client(Update(vector), PLAN).vector
    np.testing.assert_allclose(result[[0, 2]], [1.0, math.sqrt(3)], rtol=1e-6)


def test_coordinates_behind_the_last_layer_are_a_layer():
    """Nothing escapes the clip because no tensor lists it."""
    result = ClipPerLayer(3.0).client(Update(np.full(9, 1e6, np.float32)), PLAN).vector
    assert length(result) == pytest.approx(3.0, rel=1e-6)
    assert length(result[5:]) == pytest.approx(math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(
    "groups",
    [
        (Group("a", 0, 2), Group("b", 1, 5)),
        (Group("a", 0, 2), Group("b", 3, 5)),
        (Group("a", 0, 9),),
        (Group("a", 0, 0),),
    ],
    ids=["overlap", "gap", "too long", "empty"],
)
def test_a_crooked_layout_is_refused(groups):
    """Overlapping, missing or empty tensors would break the joint bound or divide by nothing."""
    with pytest.raises(ConfigError, match="follow"):
        ClipPerLayer(1.0).client(Update(np.ones(5, np.float32)), RoundPlan(0, 1, groups, 1.0))


def test_shares_must_fit_the_layers():
    """Three shares for two tensors cannot be meant."""
    with pytest.raises(ConfigError, match="one share"):
        ClipPerLayer(1.0, (1.0, 1.0, 1.0)).client(Update(np.ones(5, np.float32)), PLAN)


def test_bounds_fold_through_clips():
    """The tighter bound holds, an L1 bound gives an L2 bound, and an L2 clip keeps the L1 bound there was."""
    assert Clip(1.0).bound(Bound()) == Bound(1.0)
    assert Clip(1.0).bound(Bound(0.5)) == Bound(0.5)
    assert ClipL1(3.0).bound(Bound()) == Bound(3.0, 3.0)
    assert Clip(1.0).bound(ClipL1(3.0).bound(Bound())) == Bound(1.0, 3.0)
    assert Weight(5).bound(Bound()) == Bound()


@pytest.mark.parametrize(("records", "weight"), [(0, 0.0), (-3, 0.0), (25, 0.25), (100, 1.0), (10**9, 1.0)])
def test_weights_are_capped(records, weight):
    """min(records / cap, 1), and never below zero."""
    result = Weight(100).client(Update(np.ones(3, np.float32), records=records), PLAN).vector
    assert np.array_equal(result, np.full(3, weight, np.float32))
