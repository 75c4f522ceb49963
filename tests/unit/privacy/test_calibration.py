"""The free number of a plan: never above the target, and hardly below it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import events, gaussian
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.calibration import NOISE_RANGE, calibrate_noise, calibrate_rate, calibrate_steps

ADD, ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
TIGHT = 1.0011  # the promised 0.1 %, and the float's last digits


def spent(plan, delta=1e-5, adjacency=ADD):
    return best_epsilon(plan, delta, adjacency=adjacency).epsilon


class TestNoise:
    """The smallest noise multiplier."""

    @settings(deadline=None, max_examples=6, derandomize=True)
    @given(st.floats(0.3, 10.0), st.sampled_from([0.01, 0.1]), st.integers(20, 2000), st.sampled_from([ADD, ONE]))
    def test_sampled_plans_are_safe_and_tight(self, epsilon, rate, count, adjacency):
        """On the reporting grid, not on the search grid."""

        def plan(z):
            return [(events.poisson(rate, events.gaussian(z)), count)]

        z = calibrate_noise(plan, epsilon, 1e-5, adjacency=adjacency)
        assert spent(plan(z), adjacency=adjacency) <= epsilon
        assert spent(plan(z / TIGHT), adjacency=adjacency) > epsilon

    @settings(deadline=None, max_examples=20, derandomize=True)
    @given(st.floats(0.05, 20.0), st.integers(1, 500))
    def test_unsampled_plans_match_the_closed_form(self, epsilon, count):
        """z = √T / μ(ε, δ)."""
        z = calibrate_noise(lambda z: [(events.gaussian(z), count)], epsilon, 1e-5, adjacency=ADD)
        exact = count**0.5 / gaussian.mu_of(epsilon, 1e-5)
        assert exact * (1 - 1e-9) <= z <= exact * TIGHT

    def test_published_value(self):
        """ε = 3 for 10,000 steps at rate 0.01: z = 1.565, in at most 5 CPU seconds."""
        start = time.process_time()
        z = calibrate_noise(lambda z: [(events.poisson(0.01, events.gaussian(z)), 10_000)], 3.0, 1e-5, adjacency=ADD)
        assert z == pytest.approx(1.565, rel=1e-3)
        assert time.process_time() - start < 5.0

    @pytest.mark.parametrize(
        ("plan", "adjacency"),
        [
            (lambda z: [(events.without_replacement(1000, 100, events.gaussian(z)), 20)], ONE),
            (lambda z: [(events.truncated_poisson(1000, 0.1, 130, z), 20)], ADD),
            (lambda z: [(events.laplace(z), 5)], ADD),
            (lambda z: [(events.poisson(0.1, events.gaussian(z)), 20), (events.gaussian(30.0), 1)], ADD),
        ],
        ids=["fixed size", "truncated", "laplace", "with a fixed part"],
    )
    def test_any_plan(self, plan, adjacency):
        """Whatever accountant it needs."""
        z = calibrate_noise(plan, 2.0, 1e-5, adjacency=adjacency)
        assert spent(plan(z), adjacency=adjacency) <= 2.0 < spent(plan(z / TIGHT), adjacency=adjacency)

    def test_impossible_targets_say_what_is_possible(self):
        """A fixed part that alone costs 4.38 cannot be calibrated to 1."""
        with pytest.raises(PrivacyError, match=r"nearest possible is epsilon=4\.377"):
            calibrate_noise(lambda z: [(events.gaussian(z), 1), (events.gaussian(1.0), 1)], 1.0, 1e-5, adjacency=ADD)

    def test_targets_without_meaning_stop_at_the_floor(self):
        """ε = 1e6 needs hardly any noise; the search ends at its documented end."""
        assert calibrate_noise(lambda z: [(events.gaussian(z), 1)], 1e6, 1e-5, adjacency=ADD) == NOISE_RANGE[0]


class TestSteps:
    """The largest whole number."""

    @pytest.mark.parametrize("epsilon", [1.0, 3.0])
    def test_one_more_step_is_too_many(self, epsilon):
        """Exactly the last affordable one."""

        def plan(steps):
            return [(events.poisson(0.01, events.gaussian(1.0)), steps)]

        steps = calibrate_steps(plan, epsilon, 1e-5, adjacency=ADD)
        assert spent(plan(steps)) <= epsilon < spent(plan(steps + 1))

    @settings(deadline=None, max_examples=20, derandomize=True)
    @given(st.floats(1.0, 30.0), st.floats(2.0, 50.0))
    def test_unsampled_rounds_match_the_closed_form(self, epsilon, z):
        """T = ⌊(z μ(ε, δ))²⌋, up to the last float."""
        if spent([(events.gaussian(z), 1)]) <= epsilon:
            steps = calibrate_steps(lambda n: [(events.gaussian(z), n)], epsilon, 1e-5, adjacency=ADD)
            assert abs(steps - int((z * gaussian.mu_of(epsilon, 1e-5)) ** 2)) <= 1

    def test_a_single_step_may_cost_too_much(self):
        """It says how much."""
        with pytest.raises(PrivacyError, match="nearest possible"):
            calibrate_steps(lambda n: [(events.gaussian(1.0), n)], 1.0, 1e-5, adjacency=ADD)


class TestRate:
    """The largest sampling rate."""

    def test_safe_and_tight(self):
        """A little more is too much."""

        def plan(rate):
            return [(events.poisson(rate, events.gaussian(1.0)), 500)]

        rate = calibrate_rate(plan, 3.0, 1e-5, adjacency=ADD)
        assert spent(plan(rate)) <= 3.0 < spent(plan(rate * TIGHT))

    def test_no_sampling_when_everybody_is_affordable(self):
        """The rate is then 1 exactly."""
        plan = lambda rate: [(events.poisson(rate, events.gaussian(50.0)), 4)]  # noqa: E731
        assert calibrate_rate(plan, 3.0, 1e-5, adjacency=ADD) == 1.0

    def test_impossible(self):
        """A fixed part that is too dear stays so at any rate."""
        plan = lambda rate: [(events.poisson(rate, events.gaussian(1.0)), 1), (events.gaussian(1.0), 1)]  # noqa: E731
        with pytest.raises(PrivacyError, match="nearest possible"):
            calibrate_rate(plan, 1.0, 1e-5, adjacency=ADD)
