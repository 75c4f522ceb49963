"""A lower bound on ε from one training with many independent canaries.

Each of m canaries was in by a fair coin. Whoever sees only the result guesses r of the coins and is right v times.
Under (ε, δ)-DP v is stochastically at most W + (rare failures), W ~ Bin(r, e^ε/(1 + e^ε)).

What makes it valid: the coins are independent (not exactly m/2 heads), r is fixed in advance or paid for by a share of
the error (`tallies` lists the shares), and the guesses use no coin.

Source: Steinke, Nasr and Jagielski (2023), arXiv:2305.08846.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from sordino.privacy.renyi import Floats

SHARES = (0.02, 0.1, 0.4)
"""Guesses for each canary that are tried when none are named."""

LARGEST_EPSILON = 50.0
"""Where searches end: no count of canaries tells more."""

_HALVINGS = 30


@dataclass(frozen=True)
class Tally:
    """How one label-free way of guessing did.

    Args:
        score: Which score was used.
        correct: v, right guesses.
        guesses: r, fixed in advance.
        canaries: m, all whose coin was thrown, guessed or not.
    """

    score: str
    correct: int
    guesses: int
    canaries: int


@dataclass(frozen=True)
class Bound:
    """The largest lower bound of several ways of guessing, each at its share of the error.

    Args:
        epsilon: ε is at least this, with `confidence`.
        tally: The way of guessing that gave it.
        confidence: Of the whole search.
    """

    epsilon: float
    tally: Tally
    confidence: float


def p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The chance of as many right guesses under (ε, δ)-DP, at most.

    Args:
        correct: v, right guesses.
        guesses: r.
        canaries: m ≥ r.
        epsilon: ≥ 0.
        delta: In [0, 1).

    >>> round(p_value(correct=10, guesses=10, canaries=10, epsilon=0.0, delta=0.0), 6)
    0.000977
    """
    chance = float(expit(epsilon))
    beta = float(binom.sf(correct - 1, guesses, chance))
    if delta == 0 or correct <= 0:
        return min(1.0, beta)
    fewer = np.arange(1, correct + 1)
    worst = float(np.max((binom.sf(correct - fewer - 1, guesses, chance) - beta) / fewer))
    return min(1.0, beta + 2 * canaries * delta * max(0.0, worst))


@functools.lru_cache(maxsize=65536)
def epsilon_lower_bound(correct: int, guesses: int, canaries: int, delta: float, confidence: float) -> float:
    """The largest ε that `correct` of `guesses` refute.

    Returns:
        ε in nats; 0 when the count is no better than chance.

    Guarantee:
        The true ε at `delta` is at least the result with probability `confidence`, if each canary was in by a fair,
        independent coin, and `guesses` was fixed before the scores were seen.

    >>> epsilon_lower_bound(50, 100, 100, delta=0.0, confidence=0.95)
    0.0
    >>> round(epsilon_lower_bound(100, 100, 100, delta=0.0, confidence=0.95), 2)
    3.49
    """
    alpha = 1 - confidence
    return last_refuted(lambda epsilon: p_value(correct, guesses, canaries, epsilon, delta) <= alpha, LARGEST_EPSILON)


def guess(scores: Floats, included: NDArray[np.bool_], r: int, *, name: str = "score") -> Tally:
    """Guess the `r` canaries whose scores lie farthest from the middle: above it in, below it out.

    The middle is the median of all scores, so a score that is off-centre (as one built from the *claimed* noise is,
    when the true noise is less) still guesses both ways. No coin is used before the count.

    Args:
        scores: High means in. Shape (m,). What is not a number counts as the middle.
        included: The coins. Shape (m,).
        r: Guesses, fixed in advance; at most m.
        name: Of the score.

    >>> guess(np.array([9.0, 1.0, 0.0, -7.0]), np.array([True, False, True, False]), 2)
    Tally(score='score', correct=2, guesses=2, canaries=4)
    """
    coins = np.asarray(included, dtype=bool)
    limit = np.finfo(np.float64).max / 4  # differences of scores within it are finite
    scores = np.clip(np.asarray(scores, dtype=np.float64), -limit, limit)
    known = scores[~np.isnan(scores)]
    middle = float(np.median(known)) if len(known) else 0.0
    away = np.nan_to_num(scores - middle)
    r = max(0, min(int(r), len(away)))
    chosen = np.argsort(-np.abs(away), kind="stable")[:r]
    return Tally(name, int(np.count_nonzero((away[chosen] > 0) == coins[chosen])), r, len(away))


def tallies(
    scores: Mapping[str, Floats], included: NDArray[np.bool_], guesses: Sequence[int] | None = None
) -> list[Tally]:
    """Every score with every number of guesses. Whoever takes the best one tests each at α / len(list).

    Args:
        scores: By name; all that were computed, not only those that did well.
        included: The coins. Shape (m,).
        guesses: Numbers of guesses, fixed in advance; by default `SHARES` of the canaries.
    """
    counts = guesses if guesses is not None else sorted({max(1, round(share * len(included))) for share in SHARES})
    return [guess(values, included, r, name=name) for name, values in scores.items() for r in counts]


def best_bound(
    scores: Mapping[str, Floats],
    included: NDArray[np.bool_],
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[int] | None = None,
) -> Bound:
    """The lower bound of the best score and number of guesses, each tried at its share of the error.

    Guarantee:
        The true ε at `delta` is at least the result with `confidence`, whatever the mechanism.
    """
    tried = tallies(scores, included, guesses)
    each = 1 - (1 - confidence) / len(tried)
    bounds = [epsilon_lower_bound(t.correct, t.guesses, t.canaries, delta, each) for t in tried]
    best = int(np.argmax(bounds))
    return Bound(bounds[best], tried[best], confidence)


def last_refuted(refutes: Callable[[float], bool], largest: float, halvings: int = _HALVINGS) -> float:
    """The largest value, up to `largest`, that is refuted; values below a refuted one are refuted too."""
    if not refutes(0.0):
        return 0.0
    low, high = 0.0, largest
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low
