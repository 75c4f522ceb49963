"""Bounds move the way they must, and odd data (ties, infinities, nothing at all) gives an answer, never an error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from known_worlds import DELTA, promise

from sordino.audit.stats import cosine, curve_test, curves, one_run, order_statistic, proportions, roc, two_world

FEW = settings(max_examples=40)
COUNTS = st.integers(1, 300).flatmap(
    lambda m: st.integers(1, m).flatmap(lambda r: st.integers(0, r).map(lambda v: (v, r, m)))
)
LEVELS = st.floats(0.5, 0.999)
ODD = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324]))


def scores(least, most):
    return st.integers(least, most).flatmap(lambda n: arrays(np.float64, n, elements=ODD))


@FEW
@given(COUNTS, LEVELS, st.sampled_from([0.0, 1e-9, 1e-5, 1e-2]))
def test_more_right_guesses_never_bound_less(count, level, delta):
    """In the count, the confidence and δ, for both one-run bounds."""
    v, r, m = count
    bound = one_run.epsilon_lower_bound(v, r, m, delta, level)
    assert bound >= one_run.epsilon_lower_bound(max(v - 1, 0), r, m, delta, level)
    assert bound >= one_run.epsilon_lower_bound(v, r, m, delta, (1 + level) / 2)
    assert bound >= one_run.epsilon_lower_bound(v, r, m, min(2 * delta, 0.5), level) - 1e-6
    mu, _ = curve_test.gdp_lower_bound(v, r, m, delta=DELTA, confidence=level)
    assert mu >= curve_test.gdp_lower_bound(max(v - 1, 0), r, m, delta=DELTA, confidence=level)[0]
    assert mu >= curve_test.gdp_lower_bound(v, r, m, delta=DELTA, confidence=(1 + level) / 2)[0]


@FEW
@given(COUNTS, st.floats(0, 10), st.floats(0, 3), st.floats(1e-6, 0.5))
def test_weaker_claims_are_harder_to_refute(count, epsilon, mu, alpha):
    """p grows with ε and δ; what refutes a curve refutes every smaller one, and at every laxer level."""
    v, r, m = count
    p = one_run.p_value(v, r, m, epsilon, 1e-5)
    assert p <= one_run.p_value(v, r, m, epsilon + 0.1, 1e-5) + 1e-12
    assert p <= one_run.p_value(v, r, m, epsilon, 1e-3)
    if curve_test.rejects(curves.gaussian_curve(mu), v, r, m, alpha):
        assert curve_test.rejects(curves.gaussian_curve(mu * 0.9), v, r, m, alpha)
        assert curve_test.rejects(curves.gaussian_curve(mu), v, r, m, min(1.1 * alpha, 0.6))


@FEW
@given(st.integers(0, 200), st.integers(1, 200), LEVELS)
def test_intervals_of_proportions(wins, more, level):
    """They hold the share, are nested in the confidence, and one side at half the error is one end of both."""
    trials = wins + more
    low, high = proportions.clopper_pearson(wins, trials, confidence=level)
    wide = proportions.clopper_pearson(wins, trials, confidence=(1 + level) / 2)
    assert 0 <= wide[0] <= low <= wins / trials <= high <= wide[1] <= 1
    assert low == proportions.at_least(wins, trials, confidence=(1 + level) / 2)


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1.0, 50.0])
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-5, 0.999])
@pytest.mark.parametrize("count", [(0, 1, 1), (1, 1, 1), (5000, 10_000, 10_000), (10_000, 10_000, 10_000)])
def test_one_run_at_the_ends(count, delta, epsilon):
    """Ten thousand canaries all guessed, all right, no δ, ε of 50."""
    assert 0 <= one_run.p_value(*count, epsilon, delta) <= 1
    assert 0 <= one_run.epsilon_lower_bound(*count, delta, 0.95) <= one_run.LARGEST_EPSILON


@pytest.mark.parametrize("mu", [0.0, 5e-324, 1e-12, 1e-6, 1e-3, 8.0, 40.0, 1e3])
def test_curves_at_the_ends(mu):
    """A curve that says nearly nothing, or nearly everything, still gives an answer, and the right one."""
    curve = curves.gaussian_curve(mu)
    assert not curve_test.rejects(curve, 5000, 10_000, 10_000, 0.05)
    assert curve_test.rejects(curve, 10_000, 10_000, 10_000, 0.05) == (mu < 8)
    assert not curve_test.rejects(curve, 0, 0, 0, 0.05)


def test_bounds_at_the_ends_are_finite():
    """All right of ten thousand: large, finite, ordered as the methods' power."""
    found = one_run.epsilon_lower_bound(10_000, 10_000, 10_000, 0.0, 0.95)
    mu, epsilon = curve_test.gdp_lower_bound(10_000, 10_000, 10_000, delta=DELTA)
    sharper, _ = order_statistic.conformance_bound(10_000, 10_000, 10_000, delta=DELTA)
    assert 5 < found < epsilon < 200
    assert 2 < mu < sharper < 20
    assert curve_test.gdp_lower_bound(0, 10, 10, delta=DELTA) == (0.0, 0.0)
    assert order_statistic.conformance_bound(0, 10, 10, delta=DELTA) == (0.0, 0.0)


@FEW
@given(st.integers(-200, 200), st.integers(-64, 97))
def test_the_first_place_is_found_from_any_guess(guess, truth):
    """The search of noise factors agrees with a plain scan, and asks no place twice."""
    asked = []

    def holds(place):
        asked.append(place)
        return place >= truth

    assert curve_test._first(holds, guess) == (truth if truth <= 96 else None)
    assert len(set(asked)) == len(asked) < 20


@FEW
@given(scores(0, 40), st.data())
def test_guesses_on_odd_scores(values, data):
    """Any scores, any r: the count is possible, and the guess is the same when the coins are turned."""
    coins = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), dtype=bool)
    tally = one_run.guess(values, coins, data.draw(st.integers(0, 50)))
    assert 0 <= tally.correct <= tally.guesses <= tally.canaries == len(values)
    turned = one_run.guess(values, ~coins, tally.guesses)
    assert tally.correct + turned.correct == tally.guesses
    assert 0 <= curve_test.claim_test({"odd": values}, coins, promise(1.0)).p_value <= 1
    assert one_run.best_bound({"odd": values}, coins, delta=DELTA).epsilon >= 0
    assert curve_test.curve_lower_bound({"odd": values}, coins, promise(1.0)).epsilon >= 0


@FEW
@given(scores(0, 40), scores(0, 40), st.floats(0.001, 0.9))
def test_two_sides_of_odd_scores(members, others, fpr):
    """Rates, areas and bounds stay where they belong."""
    rate = roc.certified_tpr(members, others, fpr=fpr)
    assert 0 <= rate.low <= rate.value <= rate.high <= 1
    assert rate.realised_fpr <= fpr
    assert 0 <= proportions.auc(members, others) <= 1
    for bound in (two_world.epsilon_bound(others, members, delta=0.0), two_world.mu_bound(others, members)):
        assert 0 <= bound < math.inf
    cells = two_world.cells_epsilon_bound([(others, members), (members, others)], delta=1e-5)
    assert 0 <= cells < math.inf


@FEW
@given(scores(1, 30), scores(1, 30))
def test_curves_of_odd_scores_rise(members, others):
    """From (0, 0) to (1, 1), never falling."""
    fpr, tpr = roc.roc_curve(members, others, points=10)
    for rates in (fpr, tpr):
        assert rates[0] == 0
        assert rates[-1] == 1
        assert np.all(np.diff(rates) >= 0)


def test_areas_under_the_drawn_curve():
    """The area under the drawn curve, ties by the diagonal, is the area that `auc` counts."""
    rng = np.random.default_rng(4)
    members, others = np.round(rng.normal(1, 1, 60), 1), np.round(rng.normal(0, 1, 50), 1)
    fpr, tpr = roc.roc_curve(members, others)
    assert np.trapezoid(tpr, fpr) == pytest.approx(proportions.auc(members, others))


def test_ties_are_never_found():
    """All scores equal: nobody lies strictly above a threshold, whatever the rate asked for."""
    assert roc.certified_tpr(np.zeros(500), np.zeros(500), fpr=0.3).value == 0


@FEW
@given(scores(0, 20))
def test_estimates_from_odd_cosines(values):
    """No canaries, equal ones, or ones that are no numbers: a number all the same."""
    figure = cosine.estimate(values, 100, delta=DELTA, repeats=5)
    assert 0 <= figure.value <= cosine.LARGEST_EPSILON
