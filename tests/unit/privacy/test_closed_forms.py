"""The Gaussian and Laplace mechanisms, exactly: against integrals of their densities and published tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency
from sordino.privacy import accounting, events, gaussian, laplace

QUICK = settings(deadline=None, max_examples=60, derandomize=True)
DELTA = st.floats(1e-12, 0.4)


def hockey_stick(density, shift, epsilon):
    """∫ max(0, p(x − shift) − e^ε p(x)) dx, the definition of δ."""
    grid = np.linspace(-60, 60, 2_000_001)
    return integrate.trapezoid(np.maximum(0, density(grid - shift) - math.exp(epsilon) * density(grid)), grid)


class TestGaussian:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""

    @pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 1.0), (0.5, 0.3), (1.0, 1.0), (4.0, 2.0)])
    def test_is_the_integral(self, epsilon, mu):
        """The definition, integrated."""
        assert gaussian.delta_of(epsilon, mu) == pytest.approx(hockey_stick(stats.norm.pdf, mu, epsilon), rel=1e-5)

    @pytest.mark.parametrize(
        ("epsilon", "exact", "classic", "achieved"),
        [
            (0.1, 30.75, 48.45, 2.6e-9),
            (0.5, 7.032, 9.690, 1.6e-8),
            (1, 3.731, 4.845, 4.1e-8),
            (2, 1.994, 2.422, 1.3e-7),
            (4, 1.081, 1.211, 6.8e-7),
            (8, 0.6002, 0.6056, 8.0e-6),
            (10, 0.4999, 0.4845, 2.3e-5),
            (25, 0.2454, 0.1938, 7.7e-3),
            (50, 0.1498, 0.0969, 0.59),
        ],
    )
    def test_classic_against_exact(self, epsilon, exact, classic, achieved):
        """δ = 1e-5: wasteful first, then not private."""
        assert gaussian.sigma_exact(epsilon, 1e-5) == pytest.approx(exact, rel=5e-4)
        assert gaussian.sigma_classic(epsilon, 1e-5) == pytest.approx(classic, rel=5e-4)
        assert gaussian.delta_of(epsilon, 1 / gaussian.sigma_classic(epsilon, 1e-5)) == pytest.approx(
            achieved, rel=0.03
        )

    @pytest.mark.parametrize(("delta", "epsilon"), [(1e-3, 7.47), (1e-5, 8.43), (1e-6, 8.79), (1e-8, 9.38)])
    def test_where_the_classic_formula_breaks(self, delta, epsilon):
        """First violating ε (the table counts in steps of 0.01): private just below, violated just above."""
        breaks = gaussian.classic_breaks_at(delta)
        assert breaks == pytest.approx(epsilon, abs=0.011)
        assert gaussian.delta_of(breaks - 0.01, 1 / gaussian.sigma_classic(breaks - 0.01, delta)) < delta
        assert gaussian.delta_of(breaks + 0.01, 1 / gaussian.sigma_classic(breaks + 0.01, delta)) > delta

    @QUICK
    @given(st.floats(1e-3, 30.0), DELTA)
    def test_epsilon_is_safe_and_tight(self, mu, delta):
        """δ at the ε is at most δ, and a little less ε is too little."""
        epsilon = gaussian.epsilon_of(mu, delta)
        assert gaussian.delta_of(epsilon, mu) <= delta * (1 + 1e-9)
        assert epsilon == 0 or gaussian.delta_of(epsilon * (1 - 1e-6), mu) > delta

    @QUICK
    @given(st.floats(0.0, 50.0), st.floats(1e-8, 0.4))
    def test_mu_inverts_epsilon(self, epsilon, delta):
        """The largest μ for (ε, δ) costs at most ε. (Below δ = 1e-9 at ε ≈ 0 a float cannot tell 1e-6 apart.)"""
        mu = gaussian.mu_of(epsilon, delta)
        assert gaussian.epsilon_of(mu, delta) <= epsilon * (1 + 1e-9) + 1e-9
        assert gaussian.delta_of(epsilon, mu * (1 + 1e-6)) > delta

    def test_extremes_stay_finite(self):
        """e^ε overflows and Φ underflows long before their product does."""
        assert gaussian.delta_of(5000.0, 90.0) == pytest.approx(0.0, abs=1e-9)
        assert gaussian.delta_of(1000.0, 100.0) == pytest.approx(1.0)
        assert gaussian.delta_of(1.0, 0.0) == 0.0
        assert gaussian.epsilon_of(100.0, 1e-10) == pytest.approx(5000 + 100 * 6.36, rel=0.01)

    @pytest.mark.parametrize("call", [lambda: gaussian.epsilon_of(1.0, 0.0), lambda: gaussian.delta_of(-1.0, 1.0)])
    def test_ranges(self, call):
        """A Gaussian is never pure, and ε is not negative."""
        with pytest.raises(ConfigError):
            call()


class TestLaplace:
    """Pure ε = 1/b."""

    @pytest.mark.parametrize(("epsilon", "b"), [(0.0, 1.0), (0.2, 1.0), (0.9, 1.0), (1.0, 0.5)])
    def test_is_the_integral(self, epsilon, b):
        """The definition, integrated."""
        oracle = hockey_stick(stats.laplace(scale=b).pdf, 1.0, epsilon)
        assert laplace.delta_of(epsilon, b) == pytest.approx(oracle, rel=1e-5)

    def test_pure_from_one_over_b(self):
        """δ is exactly 0 there, and positive before."""
        assert laplace.delta_of(2.0, 0.5) == 0
        assert laplace.delta_of(1.99, 0.5) > 0

    @QUICK
    @given(st.floats(0.05, 50.0), st.one_of(st.just(0.0), DELTA))
    def test_inverses(self, epsilon, delta):
        """Scale and ε undo each other."""
        scale = laplace.scale_for(epsilon, delta)
        assert laplace.epsilon_of(scale, delta) == pytest.approx(epsilon, rel=1e-9)
        assert laplace.delta_of(epsilon, scale) == pytest.approx(delta, rel=1e-6, abs=1e-12)

    def test_range_of_delta(self):
        """0 is allowed, 1 is not."""
        with pytest.raises(ConfigError):
            laplace.epsilon_of(1.0, 1.0)


@pytest.mark.parametrize(("multiplier", "releases", "rate"), [(0.7, 1, 1.0), (2.0, 30, 1.0), (1.0, 20, 0.2)])
def test_pure_laplace_bounds_every_delta(multiplier, releases, rate):
    """At δ = 0 the composed price is an upper bound on that at any δ, and exact for a single release."""
    pure = laplace.pure_epsilon(multiplier, releases, rate)
    run = [(events.poisson(rate, events.laplace(multiplier)), releases)]

    prices = [accounting.epsilon(run, delta, adjacency=Adjacency.ADD_REMOVE) for delta in (1e-10, 1e-5, 1e-2)]

    assert prices == sorted(prices, reverse=True)
    assert prices[0] <= pure + releases * 2e-4  # the grid
    assert releases > 1 or prices[0] == pytest.approx(pure, rel=1e-3)
