"""One run against a whole trade-off curve: far sharper than a single (ε, δ), and it takes the accountant's own curve.

With v of r guesses right out of m canaries, start at R = αv/m, H = α(r − v)/m; for i = v−1, …, 0 raise H to
max(H, f̄(R)) and R by i/(r − i) times the rise; the curve f is refuted if R + H > r/m at the end. f̄(y) = f(1 − y).

Source: Mahloujifar, Melis and Chaudhuri (2024), arXiv:2410.22235.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.audit.stats.curves import Curve, accounted, gaussian_curve, promised_curve, sequence, with_noise
from sordino.audit.stats.one_run import LARGEST_EPSILON, Tally, last_refuted, tallies
from sordino.privacy import accounting, gaussian
from sordino.privacy.renyi import Floats

_LARGEST_MU = 50.0
_SMALLEST_ALPHA = 1e-9
_OCTAVE = 16
"""Factors of noise tried for each doubling."""
_PLACES = (-4 * _OCTAVE, 6 * _OCTAVE)


def rejects(curve: Curve, correct: int, guesses: int, canaries: int, alpha: float) -> bool:
    """Whether the curve is refuted at level `alpha`.

    Args:
        curve: What is tested.
        correct: v, right guesses.
        guesses: r, fixed in advance.
        canaries: m ≥ r.
        alpha: The chance of refuting a true curve, at most.

    >>> rejects(gaussian_curve(0.1), correct=100, guesses=100, canaries=100, alpha=0.05)
    True
    >>> rejects(gaussian_curve(0.1), correct=55, guesses=100, canaries=100, alpha=0.05)
    False
    """
    if guesses <= 0 or canaries <= 0:
        return False
    hits, misses, enough = alpha * correct / canaries, alpha * (guesses - correct) / canaries, guesses / canaries
    slopes, intercepts, breaks = curve.slopes, curve.intercepts, curve.breaks
    # `hits` only grows, so the line that is highest is found by walking on, never by searching.
    place = 0
    for i in range(correct - 1, -1, -1):
        while hits > breaks[place]:
            place += 1
        raised = slopes[place] * hits + intercepts[place]
        if raised <= misses:
            break
        hits = min(1.0, hits + i / (guesses - i) * (raised - misses))
        misses = raised
        if hits + misses > enough:
            return True
    return hits + misses > enough


@functools.lru_cache(maxsize=65536)
def gdp_lower_bound(
    correct: int, guesses: int, canaries: int, *, delta: float, confidence: float = 0.95
) -> tuple[float, float]:
    """The largest μ whose Gaussian curve is refuted, and its ε at `delta`.

    Returns:
        (μ, ε); (0, 0) when no curve is refuted.

    Guarantee:
        With `confidence` the mechanism is not μ'-GDP for any μ' below μ. For a mechanism that is not Gaussian this is a
        fit, not a bound on its ε: test its own curve with `claim_test`.

    >>> mu, epsilon = gdp_lower_bound(90, 100, 100, delta=1e-5)
    >>> round(mu, 1), round(epsilon, 1)
    (0.8, 3.6)
    """
    alpha = 1 - confidence
    mu = last_refuted(lambda m: rejects(gaussian_curve(m), correct, guesses, canaries, alpha), _LARGEST_MU)
    return (mu, gaussian.epsilon_of(mu, delta)) if mu > 0 else (0.0, 0.0)


@dataclass(frozen=True)
class GdpBound:
    """A Gaussian fit's lower bound over several ways of guessing.

    Args:
        mu: The largest refuted μ.
        epsilon: Its ε at the asked δ.
        tally: The way of guessing that refuted it.
        confidence: Of the whole search.
    """

    mu: float
    epsilon: float
    tally: Tally
    confidence: float


def best_gdp_bound(
    scores: Mapping[str, Floats],
    included: NDArray[np.bool_],
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[int] | None = None,
) -> GdpBound:
    """`gdp_lower_bound` of the best score and number of guesses, each tried at its share of the error."""
    tried = tallies(scores, included, guesses)
    each = 1 - (1 - confidence) / len(tried)
    found = [gdp_lower_bound(t.correct, t.guesses, t.canaries, delta=delta, confidence=each) for t in tried]
    best = max(range(len(tried)), key=lambda place: found[place])
    return GdpBound(*found[best], tried[best], confidence)


@dataclass(frozen=True)
class ClaimTest:
    """Whether one run contradicts a promise as a whole curve.

    Args:
        rejected: The promise is false, with confidence 1 − `alpha`.
        p_value: The smallest level that would reject, all ways of guessing paid for; at least 1e-9.
        alpha: The chance of rejecting a true promise, at most.
        tally: The way of guessing that speaks loudest against it.
    """

    rejected: bool
    p_value: float
    alpha: float
    tally: Tally


def claim_test(
    scores: Mapping[str, Floats],
    included: NDArray[np.bool_],
    promise: Promise,
    *,
    alpha: float = 0.05,
    guesses: Sequence[int] | None = None,
) -> ClaimTest:
    """Test a promise's whole curve on one run's canaries.

    Args:
        scores: Of the canaries, by name; high means in; computed without the coins. Shape (m,) each.
        included: The coins: fair, independent, thrown before the run. Shape (m,).
        promise: What is tested, for adding or removing one canary.
        alpha: The chance of rejecting a true promise, at most.
        guesses: Numbers of guesses, fixed in advance; by default `one_run.SHARES` of the canaries.

    Guarantee:
        A mechanism that keeps the promise is rejected with probability at most `alpha`.

    >>> from sordino.privacy import events
    >>> promise = Promise.declared([(events.gaussian(1.0), 1)], 1e-5, by="an example")
    >>> coins = np.arange(400) % 2 == 0
    >>> claim_test({"tells all": coins * 1.0}, coins, promise).rejected
    True
    """
    curve, tried = promised_curve(promise), tallies(scores, included, guesses)
    best, smallest = tried[0], 1.0
    for tally in tried:
        level = _smallest_level(curve, tally, smallest / len(tried)) * len(tried)
        if level < smallest:
            best, smallest = tally, level
    return ClaimTest(smallest <= alpha, smallest, alpha, best)


@dataclass(frozen=True)
class CurveBound:
    """The lower bound within the family of a promise's own events, all their noise scaled by one factor.

    Args:
        epsilon: ε, at the promise's δ, of the largest curve of the family that is refuted; 0 when none is.
        noise: Its noise as a multiple of the promised noise; infinite when none is refuted.
        tally: The way of guessing that refuted it.
        confidence: Of the bound.
    """

    epsilon: float
    noise: float
    tally: Tally
    confidence: float


def curve_lower_bound(
    scores: Mapping[str, Floats],
    included: NDArray[np.bool_],
    promise: Promise,
    *,
    confidence: float = 0.95,
    guesses: Sequence[int] | None = None,
) -> CurveBound:
    """The largest ε that is refuted among the promise's own events with all noise scaled by one factor.

    The factors tried lie on a grid of sixteenths of an octave, between 1/16 and 64; the answer is rounded down to it.
    Each factor costs the accountant a fraction of a second, once per process; a Gaussian fit says where to begin.

    Args:
        scores: As of `claim_test`.
        included: As of `claim_test`.
        promise: Its events give the family.
        confidence: Of the bound.
        guesses: As of `claim_test`.

    Guarantee:
        If the mechanism is the promised one with its noise times some factor, its ε is at least the result with
        `confidence`. For any other mechanism it is a fit; that the promise itself is false is for `claim_test` to say.
    """
    tried = tallies(scores, included, guesses)
    alpha = (1 - confidence) / len(tried)

    def refuter(place: int) -> Tally | None:
        curve = accounted(with_noise(promise.events, _factor(place)), promise.adjacency)
        refutes = (t for t in tried if rejects(curve, t.correct, t.guesses, t.canaries, alpha))
        return next(refutes, None)

    fit = best_gdp_bound(scores, included, delta=promise.delta, confidence=confidence, guesses=guesses)
    if fit.mu == 0:
        return CurveBound(0.0, math.inf, fit.tally, confidence)
    fitted = gaussian.mu_of(min(max(promise.epsilon, 1e-3), LARGEST_EPSILON), promise.delta) / fit.mu
    place = _first(lambda one: refuter(one) is not None, round(_OCTAVE * math.log2(fitted)))
    tally = refuter(place) if place is not None else None
    if place is None or tally is None:
        return CurveBound(0.0, math.inf, fit.tally, confidence)
    family = sequence(with_noise(promise.events, _factor(place)))
    price = accounting.best_epsilon(family, promise.delta, adjacency=promise.adjacency)
    return CurveBound(price.epsilon, _factor(place), tally, confidence)


def _factor(place: int) -> float:
    """The factor at a place of the grid."""
    return float(2.0 ** (place / _OCTAVE))


def _first(holds: Callable[[int], bool], guess: int) -> int | None:
    """The first place of the grid from which `holds` holds on, looked for around a guess; None if it never does."""
    start, end = _PLACES
    at, step = min(max(guess, start), end), 1
    below, above = start - 1, end + 1  # fails at or left of the one, holds at or right of the other
    while above - below > 1:
        if holds(at):
            above, at = at, max(at - step, (at + below) // 2 if below >= start else start)
        else:
            below, at = at, min(at + step, (at + above + 1) // 2 if above <= end else end)
        step *= 2
    return above if above <= end else None


def _smallest_level(curve: Curve, tally: Tally, below: float) -> float:
    """The smallest level that rejects, to three digits, if it is below `below`; else `below`."""

    def level_rejects(level: float) -> bool:
        return rejects(curve, tally.correct, tally.guesses, tally.canaries, level)

    if not level_rejects(below):
        return below
    low, high = _SMALLEST_ALPHA, below
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if level_rejects(middle) else (middle, high)
    return high
