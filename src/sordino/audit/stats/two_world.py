"""A lower bound from many runs with and without a unit: one part of the runs fixes the event, the rest is counted.

An event chosen on the counted runs is chosen for its luck; so it never is. For an event E the rates P[E] with and
without the unit are bounded by Clopper-Pearson, each at half of the error.

Source: Nasr et al. (2021), arXiv:2101.04535; for μ, Nasr et al. (2023), arXiv:2302.07956.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sordino.audit.stats.proportions import at_most
from sordino.core.seeds import stream
from sordino.privacy.renyi import Floats

_CANDIDATES = 400
"""Thresholds that are compared on the fixing runs."""

World = NDArray[Any]
"""One output a run: numbers of shape (n,), or discrete outputs of shape (n,) or (n, k)."""


@dataclass(frozen=True)
class Counts:
    """How often a fixed event happened in the counted runs.

    Args:
        false_positives: Runs without the unit in which it happened, of `absent`.
        false_negatives: Runs with the unit in which it did not, of `present`.
        absent: Counted runs without the unit.
        present: Counted runs with it.
    """

    false_positives: Any
    false_negatives: Any
    absent: int
    present: int

    def rates(self, confidence: float) -> tuple[Floats, Floats]:
        """Upper bounds on both error rates, jointly with `confidence`."""
        each = (1 + confidence) / 2
        return (
            at_most(self.false_positives, self.absent, confidence=each),
            at_most(self.false_negatives, self.present, confidence=each),
        )

    def epsilon(self, delta: float, confidence: float) -> Floats:
        """A lower bound on ε at `delta`: the event and its complement, whichever says more."""
        fpr, fnr = self.rates(confidence)
        ratio = np.maximum((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
        return np.log(np.maximum(ratio, 1.0))

    def mu(self, confidence: float) -> Floats:
        """A lower bound on μ, if the mechanism is Gaussian."""
        fpr, fnr = self.rates(confidence)
        # Beyond ±40 standard deviations nothing is left to tell apart; a bound of 1 would give infinity less infinity.
        apart: Floats = np.maximum(np.maximum(ndtri(1 - fpr), -40.0) - np.minimum(ndtri(fnr), 40.0), 0.0)
        return apart


def epsilon_bound(
    absent: Floats, present: Floats, *, delta: float, confidence: float = 0.95, fixing: float = 0.2, seed: int = 0
) -> float:
    """A lower bound on ε from one number a run, such as a score or a released coordinate.

    Args:
        absent: Runs without the unit, independent. Shape (n,).
        present: Runs with it. Shape (k,).
        delta: In [0, 1).
        confidence: Of the bound.
        fixing: Share of the runs that choose the threshold and its direction; a fifth left most power in our tests.
        seed: Of the split, so that the order of the runs does not matter.

    Guarantee:
        ε at `delta` is at least the result with `confidence`, whatever the mechanism.

    >>> same = np.arange(100.0)
    >>> epsilon_bound(same, same, delta=0.0)
    0.0
    """
    counts = _thresholded(absent, present, fixing, seed, lambda tried: tried.epsilon(delta, confidence))
    return float(counts.epsilon(delta, confidence))


def mu_bound(absent: Floats, present: Floats, *, confidence: float = 0.95, fixing: float = 0.2, seed: int = 0) -> float:
    """A lower bound on μ of a mechanism that claims to be Gaussian. Arguments as of `epsilon_bound`.

    Guarantee:
        The mechanism is not μ-GDP for any μ below the result, with `confidence`.
    """
    counts = _thresholded(absent, present, fixing, seed, lambda tried: tried.mu(confidence))
    return float(counts.mu(confidence))


def cells_epsilon_bound(
    pairs: Sequence[tuple[World, World]],
    *,
    delta: float,
    confidence: float = 0.95,
    fixing: float = 0.5,
    seed: int = 0,
) -> float:
    """A lower bound on ε from discrete outputs: the event is a set of them, {p ≥ t q}, chosen on the fixing runs.

    Args:
        pairs: Runs without and with the unit, for each pair of neighbours tried; every pair pays its share.
        delta: In [0, 1).
        confidence: Of the bound over all pairs.
        fixing: Share of the runs that choose the set.
        seed: Of the splits.

    >>> coin = np.array([0, 1] * 50)
    >>> cells_epsilon_bound([(coin, coin)], delta=0.0)
    0.0
    """
    each = 1 - (1 - confidence) / max(len(pairs), 1)
    bounds = [
        _cells(absent, present, delta, each, fixing, seed + place) for place, (absent, present) in enumerate(pairs)
    ]
    return max(bounds, default=0.0)


def _thresholded(absent: Floats, present: Floats, fixing: float, seed: int, bound: Any) -> Counts:
    """The counted runs' errors at the threshold and direction that the fixing runs like best."""
    fix_absent, absent = _split(np.asarray(absent, dtype=np.float64), fixing, seed, 0)
    fix_present, present = _split(np.asarray(present, dtype=np.float64), fixing, seed, 1)
    seen = np.unique(np.concatenate([fix_absent, fix_present]))
    if len(seen) == 0:
        return Counts(len(absent), len(present), len(absent), len(present))
    ends = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), _CANDIDATES)).astype(int))
    tried = [(sign, _above(sign * fix_absent, sign * fix_present, np.sort(sign * seen[ends]))) for sign in (1, -1)]
    best = max(tried, key=lambda one: np.max(bound(one[1])))
    sign, place = best[0], int(np.argmax(bound(best[1])))
    threshold = np.sort(sign * seen[ends])[place]
    return _above(sign * absent, sign * present, np.array([threshold]), scalar=True)


def _above(absent: Floats, present: Floats, thresholds: Floats, *, scalar: bool = False) -> Counts:
    """Errors of "above the threshold means present", at each threshold."""
    fp = len(absent) - np.searchsorted(np.sort(absent), thresholds, side="right")
    fn = np.searchsorted(np.sort(present), thresholds, side="right")
    return Counts(fp[0], fn[0], len(absent), len(present)) if scalar else Counts(fp, fn, len(absent), len(present))


def _cells(absent: World, present: World, delta: float, confidence: float, fixing: float, seed: int) -> float:
    both = np.concatenate([absent, present])
    _, cell = np.unique(both, axis=0, return_inverse=True)
    cell = np.asarray(cell).ravel()
    cells = int(cell.max(initial=-1)) + 1
    fix_absent, absent = _split(cell[: len(absent)], fixing, seed, 0)
    fix_present, present = _split(cell[len(absent) + len(fix_absent) :], fixing, seed, 1)
    if cells == 0 or len(absent) == 0 or len(present) == 0:
        return 0.0
    q, p, q2, p2 = (np.bincount(one, minlength=cells) for one in (fix_absent, fix_present, absent, present))
    # Neyman and Pearson: the best sets hold the outputs with the largest ratio. Half a count keeps ratios finite.
    order = np.argsort(-(p + 0.5) / (q + 0.5), kind="stable")
    fixed = Counts(np.cumsum(q[order]), len(fix_present) - np.cumsum(p[order]), len(fix_absent), len(fix_present))
    place = int(np.argmax(fixed.epsilon(delta, confidence)))
    chosen = order[: place + 1]
    counted = Counts(q2[chosen].sum(), len(present) - p2[chosen].sum(), len(absent), len(present))
    return float(counted.epsilon(delta, confidence))


def _split(runs: World, fixing: float, seed: int, side: int) -> tuple[World, World]:
    """The fixing and the counted runs, drawn at random."""
    order = stream(seed, "two worlds", side).permutation(len(runs))
    cut = math.ceil(fixing * len(runs))
    return runs[order[:cut]], runs[order[cut:]]
