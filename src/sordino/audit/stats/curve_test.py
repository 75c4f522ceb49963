"""One run against a whole trade-off curve: far sharper than a single (ε, δ), and it takes the accountant's own curve.

With v of r guesses right out of m canaries, start at R = αv/m, H = α(r − v)/m; for i = v−1, …, 0 raise H to
max(H, f̄(R)) and R by i/(r − i) times the rise; the curve f is refuted if R + H > r/m at the end. f̄(y) = f(1 − y).

Source: Mahloujifar, Melis and Chaudhuri (2024), arXiv:2410.22235, algorithm 3.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sordino.audit.promise import Promise
from sordino.audit.stats.one_run import Tally, last_refuted, tallies
from sordino.privacy import gaussian
from sordino.privacy.renyi import Floats

_LARGEST_MU = 50.0
_SMALLEST_ALPHA = 1e-9
_TANGENTS = np.linspace(-7.0, 7.0, 701)


@dataclass(frozen=True)
class Curve:
    """f̄(y) = f(1 − y) as the upper envelope of straight lines, each of which the guarantee allows.

    Lines below the true curve only make the test more careful, so any grid of them is valid.

    Args:
        slopes: Rising.
        intercepts: Of each line.
        breaks: Where each line hands over to the next, rising; the last is infinite.
    """

    slopes: tuple[float, ...]
    intercepts: tuple[float, ...]
    breaks: tuple[float, ...]

    def __call__(self, y: float) -> float:
        """The most a test can miss less, at a false positive rate `y`: f(1 − y)."""
        place = int(np.searchsorted(self.breaks, y, side="left"))
        return max(0.0, self.slopes[place] * y + self.intercepts[place])


def gaussian_curve(mu: float) -> Curve:
    """The curve of μ-GDP by its tangents: f̄(y) = Φ(Φ⁻¹(y) − μ)."""
    slopes = np.exp(mu * _TANGENTS - mu**2 / 2)
    return _envelope(slopes, ndtr(_TANGENTS - mu) - slopes * ndtr(_TANGENTS))


def promised_curve(promise: Promise) -> Curve:
    """The curve that the accountant allows, from its δ at many ε: both directions of every (ε, δ)."""
    near, far = np.linspace(0.0, max(promise.epsilon, 0.1) * 2, 400), np.linspace(0.0, 60.0, 200)
    epsilons = np.unique(np.concatenate([near, far]))
    return curve_of(epsilons, promise.deltas(epsilons))


def curve_of(epsilons: Floats, deltas: Floats) -> Curve:
    """The curve that a set of (ε, δ) allows together. Shapes (n,).

    >>> pure = curve_of(np.array([1.0]), np.array([0.0]))
    >>> round(pure(0.1) / 0.1, 4) == round(float(np.exp(-1)), 4)
    True
    """
    down = np.exp(-epsilons)
    up = np.exp(epsilons)
    # f ≥ e^−ε (1 − δ − x) and f ≥ 1 − δ − e^ε x, at x = 1 − y.
    return _envelope(np.concatenate([down, up]), np.concatenate([-down * deltas, 1 - deltas - up]))


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
    """The lower bound of a promise's own kind of mechanism.

    Args:
        epsilon: ε at the promise's δ of the noisiest... least private curve that is refuted; 0 when none is.
        noise: Its noise, as a multiple of the promised noise; infinite when none is refuted.
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
    steps: int = 6,
) -> CurveBound:
    """The largest ε of the promise's events, with all noise scaled by one factor, that the run refutes.

    The curves of the family are tested in turn, from a factor that the Gaussian fit suggests; each costs the
    accountant a fraction of a second.

    Args:
        scores: As of `claim_test`.
        included: As of `claim_test`.
        promise: Its events give the family.
        confidence: Of the bound.
        guesses: As of `claim_test`.
        steps: Halvings of the interval of factors; the answer is rounded down to a grid.

    Guarantee:
        If the mechanism is the promised one with its noise scaled by some factor, its ε is at least the result with
        `confidence`.
    """
    tried = tallies(scores, included, guesses)
    alpha = (1 - confidence) / len(tried)
    none = CurveBound(0.0, np.inf, tried[0], confidence)

    def refuted(noise: float) -> CurveBound | None:
        family = scaled(promise, noise)
        curve = promised_curve(family)
        for tally in tried:
            if rejects(curve, tally.correct, tally.guesses, tally.canaries, alpha):
                return CurveBound(family.epsilon, noise, tally, confidence)
        return None

    best, low, high = none, *_FACTORS
    for _ in range(steps):
        middle = (low * high) ** 0.5
        found = refuted(middle)
        best, low, high = (found, low, middle) if found else (best, middle, high)
    return best


_FACTORS = (0.125, 16.0)


def scaled(promise: Promise, noise: float) -> Promise:
    """The promise of the same events with all their noise times `noise`."""
    keys = [(json.dumps(_scaled(json.loads(key), noise)), count) for key, count in promise.events]
    moved = replace(promise, events=tuple(keys))
    return Promise.declared(
        moved.sequence,
        promise.delta,
        unit=promise.unit,
        adjacency=promise.adjacency,
        view=promise.view,
        by=f"{promise.source} with {noise:.3g} × its noise",
    )


def _scaled(plain: Any, noise: float) -> Any:
    """Every noise scale inside an event in plain form, times a factor."""
    if isinstance(plain, dict):
        return {
            key: value * noise if key in {"noise_multiplier", "standard_deviation"} else _scaled(value, noise)
            for key, value in plain.items()
        }
    return [_scaled(one, noise) for one in plain] if isinstance(plain, list) else plain


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


def _envelope(slopes: Floats, intercepts: Floats) -> Curve:
    """The highest of the lines everywhere, with the zero line."""
    order = np.lexsort((intercepts, slopes))
    lines = [(0.0, 0.0), *zip(slopes[order].tolist(), intercepts[order].tolist(), strict=True)]
    hull: list[tuple[float, float]] = []
    for slope, intercept in lines:
        if hull and slope <= hull[-1][0]:  # parallel: the later one is the higher
            hull.pop()
        while len(hull) > 1 and _meet(hull[-1], (slope, intercept)) <= _meet(hull[-2], hull[-1]):
            hull.pop()
        hull.append((slope, intercept))
    breaks = [_meet(one, other) for one, other in itertools.pairwise(hull)]
    return Curve(tuple(s for s, _ in hull), tuple(b for _, b in hull), (*breaks, np.inf))


def _meet(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Where the steeper line `other` overtakes `one`."""
    return (one[1] - other[1]) / (other[0] - one[0])
