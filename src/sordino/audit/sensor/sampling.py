"""Who joined which step? Pure functions of the participation that a quiet run shows, shape (T, n)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.audit.sensor.report import Measured
from sordino.audit.sensor.world import Declared, Floats

LAGS = (1, 2, 3, 5, 10)
"""Steps apart, at which a canary's joining is compared with itself."""

RATIO = "{:.2f} times the variance of the declared law"


def all_checks(joined: NDArray[np.bool_], declared: Declared) -> Iterator[Measured]:
    """Every check of who joins, for the declared law; of all canaries, as sizes are compared."""
    n = joined.shape[1]
    if declared.sampling == "each alone" or not joined.size:
        return
    if declared.sampling == "all":
        yield _exactly("sampling rate", joined.sum(1), n, "join")
        return
    sizes = joined.sum(1)
    if declared.sampling in {"fixed", "turns", "arrivals"}:
        yield _exactly("batch-size law", sizes, declared.size or n, "join")
    if declared.sampling == "turns":
        counts = joined.sum(0)
        spread = int(counts.max() - counts.min())
        yield Measured("participation law", float(spread <= 1), f"canaries join {spread} times more or less often")
        return
    if declared.sampling == "arrivals":  # whoever is at work does not come: coins say nothing of that
        yield from rate(joined, declared.rate(n))
        return
    if declared.sampling == "truncated":
        most = int(sizes.max())
        yield Measured("batch-size law", float(most <= (declared.size or n)), f"{most} join at most")
    rates = declared.rate(n)
    yield from rate(joined, rates)
    yield from participation(joined, rates)
    if declared.sampling == "poisson":
        yield from batch_size(joined, rates)
        yield from company(joined, rates)


def rate(joined: NDArray[np.bool_], rates: Floats) -> Iterator[Measured]:
    """No group of canaries joins more often than declared. Rarer is only noted."""
    for q in np.unique(rates):
        of_group = joined[:, rates == q]
        count, trials = int(of_group.sum()), of_group.size
        rarer = float(stats.binom.cdf(count, trials, q)) < 1e-6
        note = f"canaries join more rarely than the declared {q:g}" if rarer else ""
        p = float(stats.binom.sf(count - 1, trials, q)) if q < 1 else 1.0
        yield Measured("sampling rate", min(1.0, p * np.unique(rates).size), f"{count / trials:.4f} for {q:g}", note)


def participation(joined: NDArray[np.bool_], rates: Floats) -> Iterator[Measured]:
    """Each canary joins as often as coins say: not by turns, not some always; and afresh every step."""
    steps = len(joined)
    variance = rates * (1 - rates)
    if not variance.all():
        return
    counts = (joined.sum(0) - steps * rates) / np.sqrt(steps * variance)
    says = RATIO.format(float(np.square(counts).mean()))
    # Excess of the fourth moment of one centred coin, over the number of coins in a count.
    excess = (1 - 6 * variance) / variance / steps
    yield Measured("participation law", _variance(np.square(counts), excess), says)
    centred = (joined - rates) / np.sqrt(variance)
    lags = [lag for lag in LAGS if lag < steps]
    worst, found = 1.0, 0.0
    for lag in lags:
        # Given the later steps, a sum over coins: bounded parts, so nearly normal.
        products = centred[lag:] * centred[:-lag]
        p = float(2 * stats.norm.sf(abs(float(products.sum())) / products.size**0.5))
        if p <= worst:
            worst, found = p, float(products.mean())
    if lags:
        yield Measured("participation law", min(1.0, worst * len(lags)), f"joining correlates {found:.3f} over time")


def batch_size(joined: NDArray[np.bool_], rates: Floats) -> Iterator[Measured]:
    """The number that joins varies from step to step as a sum of coins: not fixed, and nobody joins in company."""
    variance = rates * (1 - rates)
    total = float(variance.sum())
    if total == 0:
        return
    sizes = (joined.sum(1) - rates.sum()) / total**0.5
    excess = np.full(len(joined), float((variance * (1 - 6 * variance)).sum()) / total**2)
    says = RATIO.format(float(np.square(sizes).mean()))
    yield Measured("batch-size law", _variance(np.square(sizes), excess), says)


def company(joined: NDArray[np.bool_], rates: Floats) -> Iterator[Measured]:
    """No two canaries join the same steps more often than two coins agree: exact for every pair."""
    if joined.shape[1] < 2:
        return
    ones = joined.astype(np.float64)
    agreed = ones.T @ ones + (1 - ones).T @ (1 - ones)
    chance = np.outer(rates, rates) + np.outer(1 - rates, 1 - rates)
    pairs = np.triu_indices(len(rates), 1)
    p = stats.binom.sf(agreed[pairs] - 1, len(joined), chance[pairs])
    says = f"two canaries agree in {int(agreed[pairs].max())} of {len(joined)} steps"
    yield Measured("participation law", min(1.0, float(p.min()) * p.size), says)


def _exactly(name: str, sizes: NDArray[np.int64], wanted: int, verb: str) -> Measured:
    least, most = int(sizes.min()), int(sizes.max())
    return Measured(name, float(least == most == wanted), f"{least} to {most} {verb} where {wanted} should")


def _variance(squares: Floats, excess: Floats) -> float:
    """Two-sided p-value of a sum of squares of independent, nearly normal numbers of variance 1.

    Each square has mean 1 and variance 2 + excess; the sum is compared with the Γ of these moments.
    """
    mean, variance = float(squares.size), float((2 + np.maximum(excess, -1.5)).sum())
    law = stats.gamma(mean**2 / variance, scale=variance / mean)
    total = float(squares.sum())
    return min(1.0, 2 * min(float(law.cdf(total)), float(law.sf(total))))
