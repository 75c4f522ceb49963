"""What a person risks whose records join one by one: the privacy loss of a mixture of Gaussians.

    at most K records, each joins with probability p, each clipped to C, noise z·C on the sum

    with the person      Σⱼ Binom(K, p)(j) · N(j, z²)          in units of C
    without              N(0, z²)

The pair dominates whatever the gradients are, and fewer records risk less. It is more than K times a record's ε:
moving K records multiplies δ as well. `dp_accounting` knows the same distribution and inverts the loss by bisection;
Newton's method on a table does it in a fiftieth of the time.

Source: Charles et al. (2024), arXiv:2407.07737, for training; Choquette-Choo et al. (2023), arXiv:2310.15526,
corollary 4.7, for vectors and adaptivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from sordino.privacy.renyi import Floats

if TYPE_CHECKING:
    from sordino.privacy.events import Event

TAIL = math.exp(-50) / 2
"""Mass beyond the ends of the distribution: counted as an infinite loss."""

POINTS = 2**16
"""Most points of one loss distribution; what would need more is hopeless, and gets a coarser grid."""

_TABLE, _CHUNK = 2**12, 2**13


@dataclass(frozen=True)
class Mixture:
    """Σ pⱼ N(sⱼ, σ²) against N(0, σ²), on the line. All shifts point the same way.

    Args:
        std: σ.
        shifts: sⱼ ≥ 0, shape (n,).
        chances: pⱼ > 0, summing to 1, shape (n,).
    """

    std: float
    shifts: Floats
    chances: Floats

    @classmethod
    def of(cls, event: Event) -> Mixture:
        """The mixture of a `MixtureOfGaussiansDpEvent`."""
        chances = np.asarray(event.sampling_probs, dtype=np.float64)
        shifts = np.asarray(event.sensitivities, dtype=np.float64)
        return cls(float(event.standard_deviation), shifts[chances > 0], chances[chances > 0])

    def loss(self, x: Floats) -> tuple[Floats, Floats]:
        """log(with / without) at the points x, and its slope: it rises with x. Shapes of `x`."""
        terms = np.log(self.chances) + (x[:, None] * self.shifts - self.shifts**2 / 2) / self.std**2
        largest = terms.max(axis=1, keepdims=True)
        weights = np.exp(terms - largest)
        total = weights.sum(axis=1)
        return largest[:, 0] + np.log(total), weights @ self.shifts / total / self.std**2

    def ends(self) -> tuple[float, float]:
        """The points between which all but `TAIL` lies, on either side and of both distributions."""
        width = self.std * 10.0  # a standard normal is beyond 10 with probability 8e-24
        low, high = 0.0, float(self.shifts.max()) + width
        while high - low > 1e-3 * self.std:  # the far shifts may be too unlikely to matter
            middle = (low + high) / 2
            far = self.chances @ ndtr((self.shifts - middle) / self.std)
            low, high = (middle, high) if far > TAIL else (low, middle)
        return -width, high

    def where(self, losses: Floats) -> Floats:
        """The points at which the loss takes given values within `ends`, by table and Newton. Shape of `losses`."""
        table = np.linspace(*self.ends(), _TABLE)
        x = np.interp(losses, self.loss(table)[0], table)
        for part in np.array_split(np.arange(len(losses)), 1 + len(losses) // _CHUNK):
            for _ in range(4):
                value, slope = self.loss(x[part])
                step = (value - losses[part]) / np.maximum(slope, 1e-200)  # flat where the person has no influence
                x[part] = np.clip(x[part] - step, table[0], table[-1])
        return x


def loss_span(event: Event) -> float:
    """How far the privacy losses of a mixture lie apart: what its grid has to cover."""
    mixture = Mixture.of(event)
    low, high = mixture.loss(np.array(mixture.ends()))[0]
    return float(high - low)


def loss_distribution(event: Event, grid: float) -> Any:
    """The privacy loss distribution of a mixture under add/remove, as dp_accounting's object. An upper bound.

    Source: Doroshenko et al. (2022), arXiv:2207.04380, algorithm 1.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    mixture = Mixture.of(event)
    low, high = mixture.loss(np.array(mixture.ends()))[0]
    steps = np.arange(math.floor(low / grid), math.ceil(high / grid) + 1)
    inside = np.clip(steps * grid, low, high)
    x = mixture.where(inside)
    return PrivacyLossDistribution(_removed(mixture, steps, x, grid), _added(mixture, steps, x, grid))


def _removed(mixture: Mixture, steps: Floats, x: Floats, grid: float) -> Any:
    """Losses of the side with the person: δ(ε) = with(X > x) − e^ε · without(X > x)."""
    with_person = np.zeros(len(x))
    for shift, chance in zip(mixture.shifts, mixture.chances, strict=True):
        with_person += chance * ndtr((shift - x) / mixture.std)
    return _pmf(steps, with_person - _exp(steps * grid + log_ndtr(-x / mixture.std)), grid)


def _added(mixture: Mixture, steps: Floats, x: Floats, grid: float) -> Any:
    """Losses of the side without: they are the negatives, δ(ε) = without(X < x) − e^ε · with(X < x)."""
    logs = np.full(len(x), -np.inf)
    for shift, chance in zip(mixture.shifts, mixture.chances, strict=True):
        logs = np.logaddexp(logs, math.log(chance) + log_ndtr((x - shift) / mixture.std))
    deltas = ndtr(x / mixture.std) - _exp(logs - steps * grid)
    return _pmf(-steps[::-1], deltas[::-1], grid)


def _pmf(steps: Floats, deltas: Floats, grid: float) -> Any:
    from dp_accounting.pld import pld_pmf

    # Rounding may break the order of a curve that cannot rise, at its smallest values: towards more loss.
    falling = np.maximum.accumulate(np.clip(deltas + TAIL, 0.0, 1.0)[::-1])[::-1]
    with np.errstate(over="ignore"):  # a hopeless plan's grid is wider than a float's exponent
        return pld_pmf.create_pmf_pessimistic_connect_dots(grid, steps, falling)


def _exp(exponents: Floats) -> Floats:
    """A probability from its logarithm; at the ends a coarse grid may ask for more than 1."""
    return np.exp(np.minimum(exponents, 1.0))
