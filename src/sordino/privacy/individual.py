"""Budgets of their own for public groups: the same release costs a group less, because its records join less often
or are clipped harder.

sample    one noise multiplier z, a rate q_g per group        a record of group g risks  Poisson(q_g, Gaussian(z))
scale     one rate q, a clip share s_g per group              a record of group g risks  Poisson(q, Gaussian(z / s_g))

Who is in which group is public; it is no part of what is protected.

Source: Boenisch et al. (2023), arXiv:2303.17046.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import events, gaussian
from sordino.privacy.accounting import COARSE, GRID, best_epsilon
from sordino.privacy.calibration import NOISE_RANGE, calibrate_noise

CLOSE, BATCH_CLOSE = 4e-3, 8e-3
"""How near a group's price comes to its budget, and the expected batch to the wanted one."""

TRIES = 16
"""Noise multipliers to try until the batch is met; three or four are enough but for huge budgets."""


@dataclass(frozen=True)
class GroupBudget:
    """What one group may spend.

    Args:
        epsilon: Its budget, > 0.
        size: Its records, public.
        steps: Releases that touch them.
    """

    epsilon: float
    size: int
    steps: int


def sampling_rates(
    groups: Mapping[str, GroupBudget], expected: float, delta: float, *, adjacency: Adjacency
) -> tuple[dict[str, float], float]:
    """The rate of each group, and the one noise multiplier, at which every group spends its budget.

    Args:
        groups: The groups.
        expected: Wanted expected batch, Σ size · rate; below the number of records.
        delta: In (0, 1).
        adjacency: The neighbouring relation.

    Returns:
        Rates whose price is at most the budget, and the multiplier. Σ size · rate is within 1 % of `expected`.

    Raises:
        PrivacyError: No multiplier gives such a batch.

    >>> groups = {"open": GroupBudget(2.0, 500, 100), "strict": GroupBudget(1.0, 500, 100)}
    >>> rates, noise = sampling_rates(groups, 50.0, 1e-5, adjacency=Adjacency.ADD_REMOVE)
    >>> rates["strict"] < rates["open"], 49.5 < 500 * sum(rates.values()) < 50.5
    (True, True)
    """
    checks.positive("sampling_rates", expected=expected)
    if expected >= sum(group.size for group in groups.values()):
        raise PrivacyError.about("individual", "leaves nothing to sample", "use a smaller batch", expected=expected)
    # By the central limit of small rates, q ∝ μ(ε, δ) and falls with z as below; prices then say how far that is off.
    factors = {name: gaussian.mu_of(g.epsilon, delta) / math.sqrt(g.steps) for name, g in groups.items()}
    noise = _noise_for(groups, factors, expected)
    rates = {name: min(1.0, factor * _falling(noise)) for name, factor in factors.items()}
    known: tuple[float, float] | None = None
    low, high = NOISE_RANGE
    for _ in range(TRIES):
        rates = {name: _rate(g, noise, rates[name], delta, adjacency) for name, g in groups.items()}
        here = math.log(noise), math.log(_batch(groups, rates) / expected)
        if abs(here[1]) < BATCH_CLOSE:
            break
        low, high = (noise, high) if here[1] < 0 else (low, noise)
        if known is None or known[0] == here[0]:
            factors = {name: rate / _falling(noise) for name, rate in rates.items()}
            noise = _noise_for(groups, factors, expected)
        else:  # the batch is nearly a power of the noise
            power = max((here[1] - known[1]) / (here[0] - known[0]), 0.2)
            noise *= math.exp(min(max(-here[1] / power, -1.0), 1.0))
        if not low < noise < high:  # no power where a group's records all join
            noise = math.sqrt(low * high)
        known = here
    else:
        raise PrivacyError.about("individual", "is met by no rates that were tried", "use another", batch=expected)
    return {name: _confirmed(g, noise, rates[name], delta, adjacency) for name, g in groups.items()}, noise


def clip_shares(
    groups: Mapping[str, GroupBudget], rate: float, delta: float, *, adjacency: Adjacency
) -> tuple[dict[str, float], float]:
    """Each group's clip over the largest, in (0, 1], and the noise multiplier over the largest, at a common rate.

    >>> groups = {"open": GroupBudget(2.0, 500, 100), "strict": GroupBudget(1.0, 500, 100)}
    >>> shares, noise = clip_shares(groups, 0.1, 1e-5, adjacency=Adjacency.ADD_REMOVE)
    >>> shares["open"], 0 < shares["strict"] < 1
    (1.0, True)
    """
    found = {name: _noise(g, rate, delta, adjacency) for name, g in groups.items()}
    least = min(found.values())
    # Rounded down, so that dividing by a share gives no less noise than was found.
    shares = {name: 1.0 if noise == least else least / noise * (1 - 1e-12) for name, noise in found.items()}
    return shares, least


def _events(rate: float, steps: int, noise: float) -> events.Events:
    return ((events.poisson(rate, events.gaussian(noise)), steps),)


def _noise(group: GroupBudget, rate: float, delta: float, adjacency: Adjacency) -> float:
    """The multiplier over a group's own clip, within 1 %, whose price on the reporting grid is within the budget."""
    events_of = functools.partial(_events, rate, group.steps)
    noise = calibrate_noise(events_of, group.epsilon, delta, adjacency=adjacency, rough=True)
    while best_epsilon(events_of(noise), delta, adjacency=adjacency).epsilon > group.epsilon:
        noise *= 1 + CLOSE / 2
    return noise


def _falling(noise: float) -> float:
    """How the rate of a fixed price falls as noise falls: 1/√(e^{1/z²} − 1)."""
    return 1.0 / math.sqrt(math.expm1(min(noise**-2, 700.0)))


def _batch(groups: Mapping[str, GroupBudget], rates: Mapping[str, float]) -> float:
    return sum(group.size * rates[name] for name, group in groups.items())


def _noise_for(groups: Mapping[str, GroupBudget], factors: Mapping[str, float], expected: float) -> float:
    """The multiplier at which rates of factor · falling(z), at most 1, make the batch."""

    def too_small(noise: float) -> bool:
        rates = {name: min(1.0, factor * _falling(noise)) for name, factor in factors.items()}
        return _batch(groups, rates) < expected

    low, high = NOISE_RANGE
    if too_small(high):
        raise PrivacyError.about("individual", "cannot be reached by any noise", "use a smaller batch", batch=expected)
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return high


def _rate(group: GroupBudget, noise: float, near: float, delta: float, adjacency: Adjacency) -> float:
    """The rate whose price is just below the budget, from a guess: the price is nearly a power of the rate."""
    price = _pricing(group.steps, noise, delta, adjacency, COARSE)
    rate, before, power = near, None, 1.0
    for _ in range(12):
        cost = price(rate)
        if before is not None and rate != before[0] and 0 < cost != before[1] > 0:
            power = min(max(math.log(cost / before[1]) / math.log(rate / before[0]), 0.5), 4.0)
        if (1 - CLOSE) * group.epsilon <= cost <= group.epsilon or (rate == 1 and cost <= group.epsilon):
            return rate
        before = (rate, cost)
        aim = (1 - CLOSE / 2) * group.epsilon
        rate = min(1.0, rate * min(max((aim / cost) ** (1 / power), 0.1), 10.0))
    return rate


def _confirmed(group: GroupBudget, noise: float, rate: float, delta: float, adjacency: Adjacency) -> float:
    """The rate, or the nearest below it, whose price on the reporting grid is within the budget."""
    price = _pricing(group.steps, noise, delta, adjacency, GRID)
    while (cost := price(rate)) > group.epsilon:
        rate *= min(1 - CLOSE / 2, group.epsilon / cost)
    return rate


def _pricing(steps: int, noise: float, delta: float, adjacency: Adjacency, grid: float) -> Callable[[float], float]:
    return lambda rate: best_epsilon(_events(rate, steps, noise), delta, adjacency=adjacency, grid=grid).epsilon
