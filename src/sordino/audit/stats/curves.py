"""Trade-off curves as straight lines: what a whole guarantee allows, in the form that `curve_test` walks along.

A guarantee f says that every test with false positive rate x misses at least f(x). It is kept as f̄(y) = f(1 − y).

Source: Dong, Roth and Su (2022), arXiv:1905.02383, section 2.
"""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.special import ndtr

from sordino.audit.promise import Promise
from sordino.core.types import Adjacency
from sordino.privacy import accounting, events
from sordino.privacy.renyi import Floats

Keys: TypeAlias = tuple[tuple[str, int], ...]
"""Event keys with their counts."""

_TANGENTS = np.linspace(-7.0, 7.0, 701)
_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 60.0, 800)])


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
        """The share that every test with false positive rate 1 − y misses: at least f(1 − y)."""
        place = int(np.searchsorted(self.breaks, y, side="left"))
        return max(0.0, self.slopes[place] * y + self.intercepts[place])


@functools.lru_cache(maxsize=256)
def gaussian_curve(mu: float) -> Curve:
    """The curve of μ-GDP by its tangents: f̄(y) = Φ(Φ⁻¹(y) − μ)."""
    slopes = np.exp(mu * _TANGENTS - mu**2 / 2)
    return _envelope(slopes, ndtr(_TANGENTS - mu) - slopes * ndtr(_TANGENTS))


def promised_curve(promise: Promise) -> Curve:
    """The curve that the accountant allows, from its δ at many ε: both directions of every (ε, δ)."""
    return accounted(promise.events, promise.adjacency)


@functools.lru_cache(maxsize=64)
def accounted(keys: Keys, adjacency: Adjacency) -> Curve:
    """The curve of events, once per process."""
    return curve_of(_EPSILONS, accounting.delta_curve(sequence(keys), _EPSILONS, adjacency=adjacency))


def curve_of(epsilons: Floats, deltas: Floats) -> Curve:
    """The curve that a set of (ε, δ) allows together. Shapes (n,).

    >>> pure = curve_of(np.array([np.log(2.0)]), np.array([0.0]))
    >>> round(pure(0.1), 3), round(pure(0.9), 3)
    (0.05, 0.8)
    """
    down = np.exp(-epsilons)
    up = np.exp(epsilons)
    # f ≥ e^−ε (1 − δ − x) and f ≥ 1 − δ − e^ε x, at x = 1 − y.
    return _envelope(np.concatenate([down, up]), np.concatenate([-down * deltas, 1 - deltas - up]))


def with_noise(keys: Keys, noise: float) -> Keys:
    """The same events with all their noise times `noise`."""
    return tuple((json.dumps(_scaled(json.loads(key), noise), sort_keys=True), count) for key, count in keys)


def sequence(keys: Keys) -> list[tuple[events.Event, int]]:
    """The events of keys, with their counts."""
    return [(events.from_key(key), count) for key, count in keys]


def _scaled(plain: Any, noise: float) -> Any:
    """Every noise scale inside an event in plain form, times a factor."""
    if isinstance(plain, dict):
        return {
            key: value * noise if key in {"noise_multiplier", "standard_deviation"} else _scaled(value, noise)
            for key, value in plain.items()
        }
    return [_scaled(one, noise) for one in plain] if isinstance(plain, list) else plain


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
