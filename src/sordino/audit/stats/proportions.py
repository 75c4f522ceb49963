"""Proportions, areas and resampling: the intervals that every other estimator stands on.

Source: Clopper and Pearson (1934), Biometrika 26; Efron (1979), Annals of Statistics 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import betaincinv

from sordino.audit.findings import Figure
from sordino.core.seeds import stream
from sordino.privacy.renyi import Floats


def at_least(successes: Any, trials: Any, *, confidence: float) -> Any:
    """A value that a proportion is not below, with one-sided `confidence`. Numbers or arrays.

    >>> round(float(at_least(8, 10, confidence=0.95)), 3)
    0.493
    """
    wins, tries = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    inside = betaincinv(np.maximum(wins, 1), np.maximum(tries - wins, 0) + 1, 1 - confidence)
    return np.where(wins > 0, inside, 0.0)


def at_most(successes: Any, trials: Any, *, confidence: float) -> Any:
    """A value that a proportion is not above, with one-sided `confidence`. Numbers or arrays.

    >>> round(float(at_most(0, 100, confidence=0.95)), 4)
    0.0295
    """
    wins, tries = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    inside = betaincinv(np.maximum(wins, 0) + 1, np.maximum(tries - wins, 1), confidence)
    return np.where(wins < tries, inside, 1.0)


def clopper_pearson(successes: int, trials: int, *, confidence: float) -> tuple[float, float]:
    """An interval that holds a proportion with at least `confidence`, exact at any size.

    Args:
        successes: Observed, 0 to `trials`.
        trials: Independent trials; none at all gives (0, 1).
        confidence: Two-sided coverage, in (0, 1).

    >>> [round(end, 3) for end in clopper_pearson(8, 10, confidence=0.95)]
    [0.444, 0.975]
    """
    each = (1 + confidence) / 2
    return float(at_least(successes, trials, confidence=each)), float(at_most(successes, trials, confidence=each))


def auc(members: Floats, others: Floats) -> float:
    """The chance that a member scores above a non-member; ties count one half, and so does an empty side.

    >>> auc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    if len(members) == 0 or len(others) == 0:
        return 0.5
    ranked = np.sort(np.nan_to_num(others, nan=-np.inf))
    members = np.nan_to_num(members, nan=-np.inf)
    below = np.searchsorted(ranked, members, side="left") + np.searchsorted(ranked, members, side="right")
    return float(np.mean(below) / 2 / len(ranked))


def bootstrap(
    statistic: Callable[..., float], *samples: Floats, confidence: float = 0.95, repeats: int = 1000, seed: int = 0
) -> Figure:
    """A statistic with the percentiles of its value on resampled data.

    Args:
        statistic: Takes as many arrays as there are `samples`.
        samples: Each resampled with replacement on its own, along its first axis; rows are independent.
        confidence: Nominal coverage: asymptotic, so it supports a figure and never a refutation.
        repeats: Resamples.
        seed: Of the resampling.

    >>> bootstrap(lambda x: float(np.mean(x)), np.zeros(5), repeats=10)
    Figure(value=0.0, low=0.0, high=0.0)
    """
    value = float(statistic(*samples))
    if any(len(sample) == 0 for sample in samples):
        return Figure(value)
    draws = stream(seed, "bootstrap")
    again = [statistic(*(one[draws.integers(len(one), size=len(one))] for one in samples)) for _ in range(repeats)]
    low, high = np.quantile(again, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Figure(value, float(low), float(high))
