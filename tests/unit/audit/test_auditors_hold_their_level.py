"""The auditors audited: on worlds whose truth is known, no estimator says too much more often than it admits."""

from __future__ import annotations

import numpy as np
import pytest
from known_worlds import ALPHA, DELTA, limit, promise, violations, worlds
from scipy.special import ndtr, ndtri

from sordino.audit.stats import curve_test, one_run, order_statistic, proportions, roc, two_world

SIZES = {200: 400, 1000: 100}
"""Canaries, and how many worlds of that size."""
TRUTHS = [0.0, 0.5, 1.0, 2.0]
SURE = 1 - ALPHA
FPR = 0.05


def order_statistic_bound(world):
    """The order-statistic bound paid for like the others: a share of the error for each number of guesses."""
    tried = one_run.tallies({"score": world.scores}, world.included)
    share = 1 - ALPHA / len(tried)
    return max(
        order_statistic.conformance_bound(t.correct, t.guesses, t.canaries, delta=DELTA, confidence=share)[1]
        for t in tried
    )


def tpr_truth(world):
    return float(ndtr(world.mu + ndtri(FPR)))


def tpr(world):
    return roc.certified_tpr(world.members, world.others, fpr=FPR, confidence=SURE)


SAYS_TOO_MUCH = {
    "one run": lambda w: one_run.best_bound({"s": w.scores}, w.included, delta=DELTA).epsilon > w.epsilon,
    "curve": lambda w: curve_test.best_gdp_bound({"s": w.scores}, w.included, delta=DELTA).mu > w.mu,
    "claim": lambda w: curve_test.claim_test({"s": w.scores}, w.included, promise(w.mu)).rejected,
    "order statistic": lambda w: order_statistic_bound(w) > w.epsilon,
    "two worlds": lambda w: two_world.epsilon_bound(w.others, w.members, delta=DELTA) > w.epsilon,
    "two worlds, mu": lambda w: two_world.mu_bound(w.others, w.members) > w.mu,
    "cells": lambda w: two_world.cells_epsilon_bound([cells(w)] * 3, delta=DELTA) > w.epsilon,
    "true positives": lambda w: tpr(w).low > tpr_truth(w),
    "true positives, above": lambda w: tpr(w).high < tpr_truth(w),
}


def cells(world):
    """Scores in cells of half a standard deviation, without and with the unit."""
    return np.floor(2 * world.others), np.floor(2 * world.members)


@pytest.mark.parametrize("canaries", SIZES)
@pytest.mark.parametrize("mu", TRUTHS)
@pytest.mark.parametrize("name", SAYS_TOO_MUCH)
def test_holds_its_level(name, mu, canaries):
    """Violations stay within what 5 % allows (99.9 % limit), with no privacy loss at all and with a known one."""
    assert violations(SAYS_TOO_MUCH[name], mu, canaries, SIZES[canaries]) <= limit(SIZES[canaries])


@pytest.mark.parametrize("mu", TRUTHS)
def test_resampled_areas_are_nominal(mu):
    """The bootstrap is asymptotic: each end fails in about 5 % of worlds; half as often again is allowed here."""
    truth, count = ndtr(mu / np.sqrt(2)), 200
    figures = [
        proportions.bootstrap(proportions.auc, world.members, world.others, confidence=1 - 2 * ALPHA, repeats=100)
        for world in worlds(mu, 200, count)
    ]
    assert sum(figure.low > truth for figure in figures) <= limit(count, 1.5 * ALPHA)
    assert sum(figure.high < truth for figure in figures) <= limit(count, 1.5 * ALPHA)


def best_threshold_by_the_labels(world):
    """The mutant of two published auditors: every pair of thresholds is tried, the luckiest is reported."""
    right = world.included[np.argsort(-world.scores)]
    found = 0.0
    for k in range(5, len(right) // 2, len(right) // 40):
        correct = int(right[:k].sum() + (~right[-k:]).sum())
        found = max(found, one_run.epsilon_lower_bound(correct, 2 * k, len(right), DELTA, SURE))
        found = max(found, one_run.epsilon_lower_bound(int(right[:k].sum()), k, len(right), DELTA, SURE))
    return found > world.epsilon


def every_score_at_full_level(world):
    """The mutant that forgets to pay for trying: twenty scores without meaning, each tested at 5 %."""
    draws = np.random.default_rng(abs(int(world.scores[0] * 1e9)))
    tried = [one_run.guess(draws.normal(size=len(world.scores)), world.included, 40) for _ in range(20)]
    return max(one_run.epsilon_lower_bound(t.correct, t.guesses, t.canaries, DELTA, SURE) for t in tried) > 0


def set_on_the_counted_runs(world):
    """The mutant of two worlds: the set of outputs is chosen where it is counted."""
    absent, present = np.floor(20 * world.others), np.floor(20 * world.members)
    values = np.unique(world.scores // 0.05)
    q, p = (np.count_nonzero(one[:, None] == values, axis=0) for one in (absent, present))
    chosen = p > q
    counts = two_world.Counts(q[chosen].sum(), p[~chosen].sum(), len(absent), len(present))
    return counts.epsilon(DELTA, SURE) > world.epsilon


def more_canaries_than_coins(world):
    """A mutant of the subject: the same coin twice, so that the guesses are not independent."""
    scores, coins = np.repeat(world.scores, 8), np.repeat(world.included, 8)
    return one_run.best_bound({"s": scores}, coins, delta=DELTA).epsilon > world.epsilon


def false_positives_as_drawn(world):
    """The mutant of membership tables: the threshold of the drawn non-members is taken for the true one."""
    threshold = np.quantile(world.others, 1 - FPR)
    found = int(np.count_nonzero(world.members > threshold))
    return proportions.at_least(found, len(world.members), confidence=SURE) > tpr_truth(world)


MUTANTS = [
    best_threshold_by_the_labels,
    every_score_at_full_level,
    set_on_the_counted_runs,
    more_canaries_than_coins,
    false_positives_as_drawn,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_broken_auditors_are_caught(mutant):
    """Each way of cheating exceeds the limit that the honest estimators keep, where there is nothing to find."""
    assert violations(mutant, 0.0, 200, 400) > limit(400)


def test_the_published_selection_fails_at_any_size():
    """ "Best threshold by the labels" is wrong in far more than 5 % of worlds with more canaries, too."""
    assert violations(best_threshold_by_the_labels, 0.0, 1000, 100) > 2 * limit(100)


def test_every_try_is_paid_for():
    """The same score under a second name teaches nothing and costs half of the error, in every search."""
    world = worlds(2.0, 200, 400)[0]
    once, twice = {"a": world.scores}, {"a": world.scores, "b": world.scores}
    included = world.included
    assert (
        one_run.best_bound(twice, included, delta=DELTA, confidence=SURE).epsilon
        == one_run.best_bound(once, included, delta=DELTA, confidence=1 - ALPHA / 2).epsilon
        < one_run.best_bound(once, included, delta=DELTA, confidence=SURE).epsilon
    )
    assert (
        curve_test.best_gdp_bound(twice, included, delta=DELTA).mu
        < curve_test.best_gdp_bound(once, included, delta=DELTA).mu
    )
    claimed = promise(0.5)
    single, double = (curve_test.claim_test(scores, included, claimed) for scores in (once, twice))
    assert double.p_value == pytest.approx(2 * single.p_value, rel=5e-3)
    assert single.rejected == (single.p_value <= ALPHA)
    assert (
        curve_test.curve_lower_bound(twice, included, claimed, confidence=0.9).epsilon
        <= curve_test.curve_lower_bound(once, included, claimed, confidence=0.9).epsilon
    )
    pair = cells(world)
    alone = two_world.cells_epsilon_bound([pair], delta=DELTA, confidence=1 - ALPHA / 3)
    assert two_world.cells_epsilon_bound([pair, (pair[0], pair[0]), (pair[1], pair[1])], delta=DELTA) == alone > 0


def test_both_error_rates_hold_together():
    """A two-world event's rates are bounded at half of the error each; the bound follows from them alone."""
    counts = two_world.Counts(false_positives=3, false_negatives=7, absent=100, present=80)
    fpr, fnr = counts.rates(SURE)
    assert fpr == proportions.clopper_pearson(3, 100, confidence=SURE)[1]
    assert fnr == proportions.clopper_pearson(7, 80, confidence=SURE)[1]
    assert counts.epsilon(0.01, SURE) == pytest.approx(np.log(max((0.99 - fnr) / fpr, (0.99 - fpr) / fnr)))
    assert counts.mu(SURE) == pytest.approx(ndtri(1 - fpr) - ndtri(fnr))
