"""True positives at a certified false positive rate: the threshold is paid for, not only the count above it.

With k non-members drawn, the (j+1)-th largest of their scores lies above the true (1 − FPR) quantile, unless at most
j of k fair draws fell beyond it. So j is chosen with P[Bin(k, FPR) ≤ j] ≤ α/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from sordino.audit.stats.proportions import at_least, at_most
from sordino.privacy.renyi import Floats


@dataclass(frozen=True)
class TprAtFpr:
    """The share of members found at a false positive rate.

    Args:
        fpr: The rate that was asked for.
        value: The share at the lowest threshold with at most that share of the drawn non-members above it.
        low: Not above the true positive rate at a *true* false positive rate of `fpr`; 0 when not certifiable.
        high: Not below it; 1 when too few non-members were drawn to say.
        realised_fpr: The share of drawn non-members above the threshold of `value`.
        certifiable: Enough non-members were drawn: (1 − FPR)^k < α/2.
        confidence: Of `low`, and of `high`, each for itself.
    """

    fpr: float
    value: float
    low: float
    high: float
    realised_fpr: float
    certifiable: bool
    confidence: float


def certified_tpr(members: Floats, others: Floats, *, fpr: float, confidence: float = 0.95) -> TprAtFpr:
    """The true positive rate at a false positive rate, with ends that hold for the population.

    Args:
        members: Scores of members, high means member. Shape (n,).
        others: Scores of non-members. Shape (k,). 0.1 % needs k of at least 3,688 at 95 %.
        fpr: The false positive rate, in (0, 1).
        confidence: Of each end.

    Guarantee:
        `low` ≤ TPR(FPR = `fpr`) with `confidence`, for scores drawn independently within each side. Ties with the
        threshold are not counted as found.

    >>> few = certified_tpr(np.ones(50), np.zeros(100), fpr=0.001)
    >>> few.certifiable, few.value, few.low
    (False, 1.0, 0.0)
    """
    ranked = np.sort(np.nan_to_num(others, nan=-np.inf))[::-1]
    members = np.nan_to_num(members, nan=-np.inf)
    each = (1 + confidence) / 2
    below = int(binom.ppf(1 - each, len(ranked), fpr)) - 1 if len(ranked) else -1
    # The mirror image: the true rate at the above-th largest score is at least `fpr`, unless Bin(k, FPR) ≥ above.
    above = int(binom.isf(1 - each, len(ranked), fpr)) + 1 if len(ranked) else 1

    threshold = _ranked(ranked, int(fpr * len(ranked)))
    sure = _count(members, _ranked(ranked, below)) if below >= 0 else 0
    most = np.count_nonzero(members >= _ranked(ranked, above - 1)) if above <= len(ranked) else len(members)
    return TprAtFpr(
        fpr=fpr,
        value=_count(members, threshold) / max(len(members), 1),
        low=float(at_least(sure, len(members), confidence=each)) if below >= 0 else 0.0,
        high=float(at_most(most, len(members), confidence=each)),
        realised_fpr=_count(ranked, threshold) / max(len(ranked), 1),
        certifiable=below >= 0,
        confidence=confidence,
    )


def certified_points(members: Floats, others: Floats, fprs: Floats, *, confidence: float = 0.95) -> list[TprAtFpr]:
    """The true positive rates at several false positive rates, to lay under a ceiling point by point.

    Args:
        members: As in `certified_tpr`.
        others: Likewise.
        fprs: The false positive rates, chosen before anybody looks.
        confidence: That all low ends hold together, and that all high ends do (Bonferroni).

    >>> points = certified_points(np.arange(100.0) + 50, np.arange(100.0), np.array([0.1, 0.5]))
    >>> [point.value for point in points]
    [0.6, 1.0]
    """
    each = 1 - (1 - confidence) / max(len(fprs), 1)
    return [certified_tpr(members, others, fpr=float(fpr), confidence=each) for fpr in fprs]


def roc_curve(members: Floats, others: Floats, points: int = 200) -> tuple[Floats, Floats]:
    """False and true positive rates to draw, from strict to lenient thresholds. Shapes (≤ points + 2,).

    Scores tied with a threshold are found together, as an attacker who cannot tell them apart would.

    >>> roc_curve(np.array([1.0, 3.0]), np.array([0.0, 2.0]))
    (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    members, others = (np.nan_to_num(side, nan=-np.inf) for side in (members, others))
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    if len(thresholds) > points:
        # Dense among the highest scores: the left end of the curve is what is read.
        steps = np.unique(np.geomspace(1, len(thresholds), points).astype(int)) - 1
        thresholds = thresholds[steps]
    rates = [
        (len(side) - np.searchsorted(np.sort(side), thresholds, side="left")) / max(len(side), 1)
        for side in (others, members)
    ]
    fpr, tpr = (
        np.concatenate([[0.0], rate, [1.0]]) if rate[-1] < 1 else np.concatenate([[0.0], rate]) for rate in rates
    )
    return fpr, tpr


def _ranked(ranked: Floats, place: int) -> float:
    """The score at a place from above, counted from 0; −∞ beyond the last."""
    return float(ranked[place]) if place < len(ranked) else -np.inf


def _count(scores: Floats, threshold: float) -> int:
    return int(np.count_nonzero(scores > threshold))
