"""Tests of noise itself: each takes what was released where nothing was sent, and gives a p-value of a stated law.

The null is always the same: independent N(0, std²) draws, `(steps, coordinates)` where time matters. A small p-value
says "this is not that noise"; every function sees one way of being wrong and is blind to the others. Nothing at all
shows nothing (p = 1); a value that is not a finite number is not that noise (p = 0).

    scale, smallest_step    too little of it, altogether or in one step
    law                     another shape
    repeated, freshness     the same draw twice; draws that lean on earlier ones
    blocks, crossed         coordinates, or whole tensors, that move together
    lattice                 values on a coarse grid
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats
from scipy.special import ndtr

from sordino.privacy.renyi import Floats

LAGS = (1, 2, 3, 5, 10)
"""Distances in time at which `freshness` looks."""

_FEWEST = 20
"""Values below which the shape of a law cannot be told."""

_LARGEST_PAIRS = 2048
"""Rows whose every pair is compared; more would cost more than they tell."""


def scale(values: Floats, std: float) -> float:
    """Whether there is as much noise as declared. More is not held against it.

    Law: Σ z²/σ² is χ² with as many degrees of freedom as values, exactly; lower tail. 100,000 values see 1.5 % missing.

    >>> scale(np.full(100, 0.5), 1.0) < 1e-9
    True
    """
    if not _finite(values):
        return 0.0
    return float(stats.chi2.cdf(_squares(values, std).sum(), np.size(values))) if np.size(values) else 1.0


def scale_above(values: Floats, std: float) -> float:
    """Whether there is no more noise than declared. Law: the upper tail of the same χ²."""
    if not _finite(values):
        return 0.0
    return float(stats.chi2.sf(_squares(values, std).sum(), np.size(values))) if np.size(values) else 1.0


def smallest_step(values: Floats, std: float) -> float:
    """Whether every step has its noise. Shape (steps, coordinates).

    Law: the smallest of independent χ² p-values (Šidák), exactly.

    >>> smallest_step(np.array([[1.0, -1.0] * 50, [0.0, 0.0] * 50]), 1.0) < 1e-9
    True
    """
    if not _finite(values):
        return 0.0
    values = _rows(values)
    if values.size == 0:
        return 1.0
    sums = _squares(values, std).sum(axis=1)
    return _smallest(float(stats.chi2.cdf(sums, values.shape[1]).min()), len(values))


def law(values: Floats, std: float) -> float:
    """Whether it is normal. At least 20 values; fewer show nothing.

    Law: Kolmogorov and Smirnov's distance (exact), and the excess kurtosis (Anscombe and Glynn 1983, an approximation
    good from 20 values on), each at half the level.

    >>> law(np.linspace(-1.7, 1.7, 2000), 1.0) < 1e-9
    True
    """
    values = np.ravel(values)
    if values.size < _FEWEST and _finite(values):
        return 1.0
    if not _finite(values) or np.ptp(values) == 0:
        return 0.0
    shape = float(stats.kurtosistest(values / np.abs(values).max()).pvalue)
    return min(1.0, 2 * min(shape, float(stats.kstest(values / std, ndtr).pvalue)))


def repeated(rows: Sequence[Floats] | Floats) -> float:
    """Whether two rows (steps, tensors, silos, or the draws before and after a resumption) share their noise.

    Law: r √(n−1)/√(1−r²) of two independent normal vectors is Student's t with n − 1 degrees of freedom, exactly,
    whatever their scales; the largest of all pairs by Bonferroni. Of two lengths the shorter counts.

    >>> draw = np.arange(1.0, 50.0)
    >>> repeated([draw, -3 * draw]) < 1e-9
    True
    """
    if not all(_finite(row) for row in rows):
        return 0.0
    rows = [np.ravel(row) for row in rows][:_LARGEST_PAIRS]
    if len({len(row) for row in rows}) == 1:
        units = _units(np.array(rows))
        cosines = np.abs((units @ units.T)[np.triu_indices(len(units), 1)])
        return _of_cosine(float(cosines.max(initial=0.0)), units.shape[1], len(cosines))
    pairs = list(itertools.combinations(rows, 2))
    levels = [_of_cosine(_cosine(a, b), min(len(a), len(b)), len(pairs)) for a, b in pairs]
    return min(levels, default=1.0)


def freshness(values: Floats, lags: Sequence[int] = LAGS) -> float:
    """Whether a step's noise owes nothing to earlier steps. Shape (steps, coordinates).

    Law: cosines of rows `lag` apart are uncorrelated with variance 1/n exactly; their scaled sum is N(0, 1) in the
    limit of many steps × coordinates (advised: 100). Two-sided, Bonferroni over the lags.

    >>> freshness(np.tile(np.arange(1.0, 30.0), (20, 1))) < 1e-9
    True
    """
    if not _finite(values):
        return 0.0
    units = _units(_rows(values))
    steps, coordinates = units.shape
    lags = [lag for lag in lags if lag < steps]
    if coordinates < 2 or not lags:
        return 1.0
    sums = [np.sum(units[:-lag] * units[lag:]) * np.sqrt(coordinates / (steps - lag)) for lag in lags]
    return min(1.0, 2 * len(lags) * float(ndtr(-np.max(np.abs(sums)))))


def blocks(values: Floats, size: int = 10) -> float:
    """Whether neighbouring coordinates are drawn independently: one scalar for all, or antithetic pairs, are not.

    Law: the mean square of block sums over that within blocks is Fisher's F, exactly, whatever the scale. Two-sided.

    Args:
        values: Shape (steps, …): what belongs to one step is cut into blocks in its order, a rest is dropped.
        size: Of a block; 2 sees pairs, large ones see slow drifts.

    >>> blocks(np.repeat([1.0, -1.0, 1.0, -1.0], 50), 10) < 1e-9
    True
    """
    if not _finite(values):
        return 0.0
    values = _rows(values)
    whole = values.shape[1] // size
    if size < 2 or whole * len(values) == 0:
        return 1.0
    largest = float(np.abs(values).max())
    if largest == 0:
        return 0.0
    # The ratio knows no scale; squares of huge noise would overflow.
    cut = values[:, : whole * size].reshape(-1, size) / largest
    between = float(np.sum(cut.sum(axis=1) ** 2)) / size
    within = float(np.sum(cut**2)) - between
    freedom = len(cut), len(cut) * (size - 1)
    if within <= 1e-12 * between or between == 0:
        return 0.0
    ratio = between / freedom[0] / (within / freedom[1])
    return min(1.0, 2 * float(min(stats.f.cdf(ratio, *freedom), stats.f.sf(ratio, *freedom))))


def crossed(tensors: Sequence[Floats]) -> float:
    """Whether tensors (or silos, or clients) have noise of their own, over all steps together. As `repeated`.

    Args:
        tensors: Each of shape (steps, coordinates), coordinates may differ; compared on the shorter.
    """
    steps = min((len(_rows(one)) for one in tensors), default=0)
    width = min((_rows(one).shape[1] for one in tensors), default=0)
    return repeated([np.ravel(_rows(one)[:steps, :width]) for one in tensors])


def lattice(values: Floats, std: float, *, step: float = 2.0**-16) -> float:
    """Whether the values lie on no grid coarser than `step` × std, which would show in their low digits.

    Law: on a grid of that step the number of equal pairs is Poisson in the limit, with mean
    n(n−1)/2 · step/(2√π); upper tail. A thousand values see a grid ten times coarser, a hundred thousand see 1.1 times.

    >>> lattice(np.round(np.linspace(-2, 2, 1000), 1), 1.0) < 1e-9
    True
    """
    if not _finite(values):
        return 0.0
    values = np.ravel(values) / std
    _, counts = np.unique(values, return_counts=True)
    pairs = int(np.sum(counts.astype(np.int64) * (counts - 1) // 2))
    expected = values.size * (values.size - 1) / 2 * step / (2 * np.sqrt(np.pi))
    return float(stats.poisson.sf(pairs - 1, expected)) if pairs else 1.0


def together(levels: Sequence[float]) -> float:
    """The p-value of several tests at once, by Bonferroni."""
    return min(1.0, len(levels) * min(levels, default=1.0))


def _rows(values: Floats) -> Floats:
    values = np.asarray(values, dtype=np.float64)
    return values.reshape(len(values), math.prod(values.shape[1:])) if values.ndim > 1 else values.reshape(1, -1)


def _finite(values: Floats) -> bool:
    return bool(np.all(np.isfinite(values)))


def _squares(values: Floats, std: float) -> Floats:
    """Squares in units of the declared noise, without overflow."""
    squares: Floats = np.clip(np.asarray(values, dtype=np.float64) / std, -1e100, 1e100) ** 2
    return squares


def _smallest(level: float, tests: int) -> float:
    """Šidák: the p-value of the smallest of `tests` independent p-values."""
    return float(-np.expm1(tests * np.log1p(-min(level, 1 - 1e-16))))


def _units(rows: Floats) -> Floats:
    """Rows of length one; a row of zeros stays."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: Floats = rows / np.where(lengths > 0, lengths, 1.0)
    return units


def _cosine(one: Floats, other: Floats) -> float:
    short = min(len(one), len(other))
    pair = _units(np.array([one[:short], other[:short]]))
    return float(abs(pair[0] @ pair[1]))


def _of_cosine(cosine: float, coordinates: int, pairs: int) -> float:
    """The p-value of the largest of several cosines between independent normal vectors."""
    if coordinates < 2 or pairs == 0:
        return 1.0
    if cosine >= 1:
        return 0.0
    student = cosine * np.sqrt((coordinates - 1) / (1 - cosine**2))
    return min(1.0, pairs * 2 * float(stats.t.sf(student, coordinates - 1)))
