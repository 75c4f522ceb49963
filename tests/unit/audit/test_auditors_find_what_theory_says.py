"""The estimators' numbers against published tables, slow direct implementations, and ideal auditors of a training."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_worlds import ALPHA, DELTA, promise, worlds
from scipy.stats import binom, norm

from sordino.audit.promise import Promise
from sordino.audit.stats import ceiling, cosine, curve_test, curves, one_run, order_statistic, roc
from sordino.core.seeds import stream
from sordino.privacy import events, gaussian

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Six numbers of guesses for each canary, as the expected table was made."""
EXPECTED = {
    (1, 1000): (0.23, 0.30),
    (1, 10_000): (0.45, 0.56),
    (2, 1000): (0.53, 0.70),
    (2, 10_000): (1.16, 1.38),
    (4, 1000): (1.50, 2.13),
    (4, 10_000): (2.09, 2.63),
    (8, 1000): (2.79, 4.32),
    (8, 10_000): (3.47, 4.95),
}
"""True ε and canaries: mean bounds of one run and of the curve, for an ideal auditor of one Gaussian release."""


def one_run_bound(count, level):
    return one_run.epsilon_lower_bound(*count, DELTA, level)


def curve_bound(count, level):
    return curve_test.gdp_lower_bound(*count, delta=DELTA, confidence=level)[1]


def order_statistic_bound(count, level):
    return order_statistic.conformance_bound(*count, delta=DELTA, confidence=level)[1]


def bounds(estimators, world, fractions, level):
    """Each estimator's bound for each number of guesses. Shape (fractions, estimators)."""
    size = len(world.scores)
    tried = [one_run.guess(world.scores, world.included, round(size * share)) for share in fractions]
    return [[bound((t.correct, t.guesses, t.canaries), level) for bound in estimators] for t in tried]


@pytest.mark.parametrize(("epsilon", "canaries"), EXPECTED)
def test_expected_bounds(epsilon, canaries):
    """Means agree within 2.5 standard errors of the source's four repeats, and a tenth for its unknown fractions."""
    of = worlds(gaussian.mu_of(epsilon, DELTA), canaries, 30_000 // canaries + 5)
    found = np.array([bounds([one_run_bound, curve_bound], world, FRACTIONS, 0.95) for world in of])
    means, spreads = found.mean(axis=0).max(axis=0), found.max(axis=1).std(axis=0)
    for mean, spread, expected in zip(means, spreads, EXPECTED[epsilon, canaries], strict=True):
        assert abs(mean - expected) <= 2.5 * spread / math.sqrt(4) + 0.1 * expected
        assert mean < epsilon


@pytest.mark.parametrize(("mu", "expected"), [(1.0, (1.53, 2.13, 3.34)), (2.0, (3.10, 4.72, 8.47))])
def test_expected_bounds_when_every_try_is_paid_for(mu, expected):
    """A prototype's mean bounds at a thousand canaries, within a tenth."""
    paid = 1 - ALPHA / len(one_run.SHARES)
    all_three = [one_run_bound, curve_bound, order_statistic_bound]
    found = np.array([bounds(all_three, world, one_run.SHARES, paid) for world in worlds(mu, 1000, 40)])
    assert found.max(axis=1).mean(axis=0) == pytest.approx(expected, rel=0.1)


def refuted_slowly(missed, correct, guesses, canaries, alpha):
    """The recursion as it is written in the paper, with no early end and no straight lines."""
    r, h = alpha * correct / canaries, alpha * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        higher = max(h, missed(r))
        r = min(r + i / (guesses - i) * (higher - h), 1)
        h = higher
    return r + h > guesses / canaries


@pytest.mark.parametrize("guesses", [10, 60, 200])
def test_the_fast_recursion_is_the_slow_one(guesses):
    """The largest refuted μ agrees to a thousandth, and straight lines never refute more."""
    for share in (0.6, 0.7, 0.8, 0.9, 1.0):
        correct = round(share * guesses)
        fast, _ = curve_test.gdp_lower_bound(correct, guesses, 200, delta=DELTA)
        slow = one_run.last_refuted(
            lambda mu, c=correct: refuted_slowly(lambda y: norm.cdf(norm.ppf(y) - mu), c, guesses, 200, ALPHA), 8.0, 14
        )
        assert slow * 0.999 - 1e-3 <= fast <= slow + 8 / 2**13


def test_the_accountants_curve_is_the_gaussian_one():
    """A curve drawn from δ at many ε is the exact trade-off curve, from below, within half a percent."""
    drawn, y = curves.promised_curve(promise(1.0)), np.geomspace(1e-4, 0.999, 50)
    exact = norm.cdf(norm.ppf(y) - 1.0)
    found = np.array([drawn(float(one)) for one in y])
    assert np.all(found <= exact + 1e-12)
    assert found == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize(("correct", "guesses"), [(9, 10), (30, 40), (60, 60)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_one_run_p_value_is_the_papers(correct, guesses, epsilon):
    """Against sums written out term by term."""
    q, m, delta = 1 / (1 + math.exp(-epsilon)), 100, 1e-4
    tail = [sum(binom.pmf(k, guesses, q) for k in range(v, guesses + 1)) for v in range(correct + 1)]
    worst = max((tail[correct - i] - tail[correct]) / i for i in range(1, correct + 1))
    expected = min(1.0, tail[correct] + 2 * m * delta * worst)
    assert one_run.p_value(correct, guesses, m, epsilon, delta) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("mu", "guesses"), [(0.5, 20), (1.0, 100), (2.0, 200)])
def test_expected_errors_are_those_of_drawn_worlds(mu, guesses):
    """The integral over order statistics against drawn privacy losses, within five standard errors."""
    losses = np.abs(mu**2 / 2 + mu * stream(1, "losses").normal(size=(4000, 200)))
    errors = (1 / (1 + np.exp(np.sort(losses, axis=1)[:, -guesses:]))).sum(axis=1)
    assert abs(order_statistic.expected_errors(mu, guesses, 200) - errors.mean()) < 5 * errors.std() / math.sqrt(4000)


def test_cosines_are_an_estimate_and_no_bound():
    """One release at ε = 4.38: estimates lie on both sides of it, near on average. So none may be gated on."""
    dimension, canaries, found = 10_000, 400, []
    for seed in range(8):
        draws = stream(seed, "canary clients")
        sent = draws.standard_normal((canaries, dimension), dtype=np.float32)
        sent /= np.linalg.norm(sent, axis=1, keepdims=True)
        released = sent.sum(axis=0) + draws.normal(size=dimension)
        figure = cosine.estimate(sent @ released / np.linalg.norm(released), dimension, delta=DELTA, repeats=20)
        assert figure.low <= figure.high
        found.append(figure.value)
    assert min(found) < 4.38 < max(found)
    assert np.mean(found) == pytest.approx(4.38, rel=0.25)


@given(st.floats(0.05, 5.0), st.floats(-8, 8), st.floats(0.3, 3.0))
def test_between_equal_normals_is_the_gaussian_mechanism(scale, shift, ratio):
    """Equal variances give the exact closed form; different means or variances are told apart both ways alike."""
    same = cosine.between_normals(shift * scale, scale**2, scale**2, DELTA)
    assert same == pytest.approx(gaussian.epsilon_of(abs(shift), DELTA), abs=1e-6)
    mirrored = cosine.between_normals(-shift * scale, scale**2 * ratio, scale**2, DELTA)
    assert cosine.between_normals(shift * scale, scale**2 * ratio, scale**2, DELTA) == pytest.approx(mirrored)


def test_unequal_normals_by_integration():
    """The hockey-stick in closed form against a sum over a fine grid."""
    x = np.linspace(-30, 30, 600_001)
    for mean, variance in [(0.5, 1.5), (0.5, 0.6), (2.0, 1.1), (0.0, 2.0)]:
        epsilon = cosine.between_normals(mean, variance, 1.0, 1e-3)
        p, q = norm.pdf(x, mean, math.sqrt(variance)), norm.pdf(x)
        gaps = [
            np.sum(np.maximum(one - math.exp(epsilon) * other, 0)) * (x[1] - x[0]) for one, other in ((p, q), (q, p))
        ]
        assert max(gaps) == pytest.approx(1e-3, rel=1e-3)


def test_ceilings_are_the_table():
    """What ε = 8 of one Gaussian release allows, from the methods table."""
    one = Promise.declared([(events.gaussian(1 / 1.666), 1)], DELTA, by="a table")
    assert ceiling.ceiling(one, np.array([0.001, 0.01])) == pytest.approx([0.077, 0.255], abs=2e-3)
    assert ceiling.bounds(one).auc == pytest.approx(0.881, abs=2e-3)
    assert ceiling.bounds(one).accuracy == pytest.approx(0.798, abs=2e-3)


def test_sampled_trainings_have_a_ceiling_too():
    """A plan without closed form: the ceiling is the best of its own reported rates, rising, and above chance."""
    fprs = np.array([0.0, 0.001, 0.01, 0.1, 1.0])
    found = ceiling.ceiling(training(2.0, 0.1), fprs)
    reported = ceiling.bounds(training(2.0, 0.1)).tpr_at_fpr
    assert found[1:3] == pytest.approx([reported[0.001], reported[0.01]])
    assert np.all(np.diff(found) >= 0)
    assert np.all(found >= fprs)


def test_how_many_non_members_a_certified_rate_takes():
    """At 0.1 % and 95 % exactly 3,688; one fewer says so instead of giving a number."""
    scores = np.arange(3688.0)
    enough = roc.certified_tpr(scores + 1e6, scores, fpr=0.001)
    few = roc.certified_tpr(scores + 1e6, scores[1:], fpr=0.001)
    assert (enough.certifiable, few.certifiable) == (True, False)
    assert enough.low > 0.99
    assert few.low == 0


STEPS = 200


@functools.cache
def training(noise, rate):
    """The promise of a training with sampled records."""
    return Promise.declared([(events.poisson(rate, events.gaussian(noise)), STEPS)], DELTA, by="an ideal training")


def canaries_of_training(seed, *, noise=2.0, rate=0.1, frozen=False, canaries=10_000):
    """What the best white-box canaries see: their own coordinate in every step. Scores are built from the claim."""
    draws = stream(seed, "ideal canaries")
    included = draws.random(canaries) < 0.5
    joined = draws.random((STEPS, canaries), dtype=np.float32) < rate
    drawn = draws.standard_normal((1 if frozen else STEPS, canaries), dtype=np.float32)
    seen = np.float32(noise) * drawn + (joined & included)
    odds = np.log1p(0.1 * np.expm1((seen - 0.5) / 4.0)).sum(axis=0)
    changes = np.abs(np.diff(seen, axis=0)) > 0.5
    return {"likelihood": odds, "change": changes.sum(axis=0)}, included


def rejections(count, **broken):
    claimed = training(2.0, 0.1)
    return sum(curve_test.claim_test(*canaries_of_training(seed, **broken), claimed).rejected for seed in range(count))


def test_sound_trainings_are_not_accused():
    """Ten thousand canaries, claimed ε 3.36: at most 2 of 40 sound runs are rejected at 5 %."""
    assert rejections(40) <= 2


@pytest.mark.parametrize("broken", [{"noise": 1.0}, {"rate": 0.2}, {"frozen": True}])
def test_broken_trainings_are_refuted(broken):
    """Half the noise (or twice the clip norm), twice the sampling rate, noise drawn once: at least 9 of 10 each."""
    assert rejections(10, **broken) >= 9


def test_the_printed_bound_says_something():
    """On a sound run between 0.45 ε and ε; with half the noise above the claim. Its own family is no looser."""
    claimed = training(2.0, 0.1)
    fit = curve_test.best_gdp_bound(*canaries_of_training(1), delta=DELTA)
    own = curve_test.curve_lower_bound(*canaries_of_training(1), claimed)
    assert 0.45 * claimed.epsilon <= fit.epsilon <= claimed.epsilon
    assert 0.45 * claimed.epsilon <= own.epsilon <= claimed.epsilon
    assert own.noise > 1
    broken = curve_test.curve_lower_bound(*canaries_of_training(1, noise=1.0), claimed)
    assert broken.epsilon >= 1.1 * claimed.epsilon
    assert broken.noise < 1
