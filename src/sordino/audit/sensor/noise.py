"""Is what is released where nobody is the declared noise? Pure functions of noise over its declared std.

`z` has shape (T, L, h): releases, groups, rows that belong to nobody. If all is as declared its entries are
independent N(0, 1); noise of another law is turned into that first (`over_std`). How the noise was made does not enter.
The laws of the p-values stand in `audit.stats.mechanism`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.audit.sensor.report import Measured
from sordino.audit.sensor.world import Declared, Floats
from sordino.audit.stats import mechanism

CELL = 2.0**-16
"""Noise may lie on a grid as coarse as this part of its std; a coarser one gives neighbours away."""


def over_std(iterates: Floats, rows: NDArray[np.int64], declared: Declared, noise_multiplier: float) -> Floats:
    """The noise of some rows over its declared std, as normal draws. Shape (T, L, rows).

    Laplace noise becomes normal by its own quantiles, so that everything below has one law.
    """
    z = iterates[:, :, rows] / declared.std(noise_multiplier)
    if declared.noise == "gaussian":
        return z
    # By the lower tail, where nothing rounds to 1.
    return np.asarray(-np.sign(z) * stats.norm.ppf(stats.laplace.cdf(-np.abs(z), scale=2**-0.5)))


def too_small(z: Floats) -> Floats:
    """p-values of "less noise than declared" along the last axis: χ², exactly."""
    return np.asarray(stats.chi2.cdf(np.square(z).sum(-1), z.shape[-1]))


def all_checks(z: Floats) -> Iterator[Measured]:
    """Every check of noise alone."""
    yield scale(z)
    yield law(z)
    yield from freshness(z)
    yield from coordinates(z)
    yield groups(z)
    yield every_release(z)
    yield every_coordinate(z)
    yield every_group(z)
    yield lattice(z)


def scale(z: Floats) -> Measured:
    """The noise's std. Less than declared fails; more is only noted: it costs accuracy, not privacy."""
    found = _rms(z)
    note = f"more noise than declared: {found:.4f} of it" if mechanism.scale_above(z, 1.0) < 1e-6 else ""
    return Measured("noise scale", mechanism.scale(z, 1.0), f"{found:.4f} of the declared noise", note)


def law(z: Floats) -> Measured:
    """The noise's distribution, at its own scale."""
    own = _rms(z)
    p = mechanism.law(z, own) if own > 0 else 0.0
    return Measured("noise law", p, f"excess kurtosis {float(stats.kurtosis(z, axis=None)) if own > 0 else 0:.3f}")


def freshness(z: Floats) -> Iterator[Measured]:
    """Whether each step's noise is drawn anew: no lag on the whole, and no two steps, are alike."""
    yield Measured("freshness", mechanism.freshness(z), f"of {len(z)} steps, 1, 2, 3, 5 and 10 apart")
    yield Measured("freshness", mechanism.repeated(_series(z)), f"of any two of {len(z)} steps")


def coordinates(z: Floats) -> Iterator[Measured]:
    """Whether coordinates are independent of one another: neighbours, any two, and all together."""
    width = z.shape[1] * z.shape[2]
    for size in (2, 10, width):
        yield Measured("independent coordinates", mechanism.blocks(z, size), f"of {size} side by side")
    if len(z) > 7:  # with fewer steps two coordinates cannot be told from chance
        any_two = mechanism.repeated(_series(z).T)
        yield Measured("independent coordinates", any_two, f"of any two of {width}")


def groups(z: Floats) -> Measured:
    """Whether parameter groups have noises of their own."""
    p = mechanism.repeated(np.swapaxes(z, 0, 1).reshape(z.shape[1], -1))
    return Measured("independent groups", p, f"of any two of {z.shape[1]}")


def every_release(z: Floats) -> Measured:
    """Whether each release of each group has its noise, the least noised one."""
    return _least("every release noised", z, "step {}, group {}")


def every_coordinate(z: Floats) -> Measured:
    """Whether each coordinate has its noise over time, the least noised one."""
    return _least("every coordinate noised", np.moveaxis(z, 0, -1), "group {}, row {}")


def every_group(z: Floats) -> Measured:
    """Whether each group has its noise, the least noised one."""
    return _least("every group noised", np.swapaxes(z, 0, 1).reshape(z.shape[1], -1), "group {}")


def lattice(z: Floats) -> Measured:
    """Whether noise takes so few values that some sums can be ruled out.

    Values are put into cells first: a model's parameters, as differences of float32, blur a grid.
    """
    own = z / (_rms(z) or 1.0)
    cells = np.round(own / CELL) * CELL
    values = np.unique(cells).size
    return Measured("noise lattice", mechanism.lattice(cells, 1.0, step=CELL), f"{values} values of {z.size}")


def unrelated(name: str, first: Floats, second: Floats) -> Iterator[Measured]:
    """Whether the noises of two series of releases have nothing in common. Shapes (T, L, h)."""
    yield Measured(name, mechanism.repeated([*_series(first), *_series(second)]), "of any two releases")
    yield Measured(name, mechanism.crossed([_series(first), _series(second)]), "on the whole")
    for each in (first, second):
        yield Measured(name, mechanism.scale(each, 1.0), f"{_rms(each):.3f} of the declared noise")


def _least(name: str, z: Floats, where: str) -> Measured:
    p = too_small(z)
    at = np.unravel_index(int(p.argmin()), p.shape)
    says = f"{where.format(*map(int, at))}: {_rms(z[at]):.3f} of the declared noise"
    return Measured(name, min(1.0, float(p.min()) * p.size), says)


def _series(z: Floats) -> Floats:
    return z.reshape(len(z), -1)


def _rms(z: Floats) -> float:
    return math.sqrt(float(np.square(z).mean()))
