"""What any attacker can achieve at most: the explainable form of ε.

For unsampled Gaussians the trade-off curve is known exactly. Else it is the lower envelope of the lines that each
(ε, δ(ε)) allows; more lines only tighten it, so any grid gives a valid bound.

Source: Dong, Roth and Su (2022), arXiv:1905.02383; Kairouz, Oh and Viswanath (2015), arXiv:1311.0776.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from sordino.core.types import Adjacency
from sordino.privacy import gaussian
from sordino.privacy.accounting import best_accountant, delta_curve, epsilon
from sordino.privacy.relations import gaussian_part, plan_of
from sordino.privacy.renyi import Floats

if TYPE_CHECKING:
    from sordino.privacy.events import Events

RATES = (0.001, 0.01)
"""False positive rates that are reported."""

LARGEST_EPSILON = 500.0
"""Lines beyond it bound nothing that shows, and e^ε soon leaves the floats."""


@dataclass(frozen=True)
class AttackBounds:
    """Upper bounds on every membership attack against one unit.

    Args:
        tpr_at_fpr: The largest true positive rate at each false positive rate.
        auc: The largest area under the curve, in [0.5, 1].
        accuracy: The largest balanced accuracy, in [0.5, 1].
    """

    tpr_at_fpr: Mapping[float, float]
    auc: float
    accuracy: float


def attack_bounds(events: Events, delta: float, *, adjacency: Adjacency) -> AttackBounds:
    """What an attacker who knows everything else can achieve at most against a plan.

    Args:
        events: Distinct events with how often each happens.
        delta: Where the range of ε ends that the bound looks at; the plan has one curve whatever δ is.
        adjacency: The neighbouring relation the attack decides between.
    """
    mu = _exact_mu(events, delta, adjacency)
    return of_mu(mu) if mu is not None else of_curve(*_lines(events, delta, adjacency))


def true_positive_rates(events: Events, delta: float, false_positive: Floats, *, adjacency: Adjacency) -> Floats:
    """The largest true positive rate at each false positive rate: what measured points are drawn under. Shapes (n,).

    Args:
        events: Distinct events with how often each happens.
        delta: Where the range of ε ends that the bound looks at, as in `attack_bounds`.
        false_positive: Rates in [0, 1].
        adjacency: The neighbouring relation the attack decides between.
    """
    mu = _exact_mu(events, delta, adjacency)
    if mu is not None:
        exact: Floats = ndtr(mu + ndtri(false_positive))
        return exact
    return _envelope(false_positive, *_lines(events, delta, adjacency))


def _exact_mu(events: Events, delta: float, adjacency: Adjacency) -> float | None:
    """μ of a plan of unsampled Gaussians, whose curve is known exactly; None for others."""
    if best_accountant(events, delta, adjacency=adjacency) != "gdp":
        return None
    return math.sqrt(gaussian_part(plan_of(events), Adjacency(adjacency))[0])


def _lines(events: Events, delta: float, adjacency: Adjacency) -> tuple[Floats, Floats]:
    """The (ε, δ) whose lines bound a plan's curve."""
    accountant = best_accountant(events, delta, adjacency=adjacency)
    last = min(epsilon(events, delta, adjacency=adjacency, accountant=accountant), LARGEST_EPSILON)
    grid = np.concatenate([[0.0], np.geomspace(min(1e-3, last or 1e-3), max(last, 1e-3), 400)])
    return grid, delta_curve(events, grid, adjacency=adjacency)


def of_mu(mu: float) -> AttackBounds:
    """The bounds of a Gaussian release with signal-to-noise ratio μ, exact.

    >>> bounds = of_mu(2.0)
    >>> round(bounds.tpr_at_fpr[0.01], 3), round(bounds.auc, 3), round(bounds.accuracy, 3)
    (0.372, 0.921, 0.841)
    """
    rates = {rate: gaussian.true_positive_rate(mu, rate) for rate in RATES}
    return AttackBounds(rates, float(ndtr(mu / math.sqrt(2))), float(ndtr(mu / 2)))


def of_guarantee(epsilon: float, delta: float) -> AttackBounds:
    """The bounds that a single (ε, δ) implies: all one can say when the events are not known.

    >>> round(of_guarantee(1.0, 1e-5).tpr_at_fpr[0.01], 3)
    0.027
    """
    return of_curve(np.array([epsilon]), np.array([delta]))


def of_curve(epsilons: Floats, deltas: Floats) -> AttackBounds:
    """The bounds that a whole curve δ(ε) implies. Shapes (n,)."""
    rates = {rate: float(_envelope(np.array([rate]), epsilons, deltas)[0]) for rate in RATES}
    # The envelope is concave, so the midpoint rule can only overestimate its area.
    edges = np.concatenate([[0.0], np.geomspace(1e-8, 0.5, 1000), 1 - np.geomspace(0.5, 1e-8, 1000)[1:], [1.0]])
    middles = (edges[1:] + edges[:-1]) / 2
    auc = float(np.sum(np.diff(edges) * _envelope(middles, epsilons, deltas)))
    # Balanced accuracy is (1 + TPR − FPR)/2; each line allows at most (e^ε − 1 + 2δ)/(e^ε + 1) for TPR − FPR.
    advantage = np.tanh(epsilons / 2) + 2 * deltas / (np.exp(epsilons) + 1)
    return AttackBounds(rates, min(auc, 1.0), float((1 + min(1.0, advantage.min())) / 2))


def _envelope(false_positive: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """The largest true positive rate at each false positive rate."""
    odds = np.exp(np.minimum(epsilons, 700.0))[:, None]
    below = odds * false_positive + deltas[:, None]
    above = 1 - (1 - false_positive - deltas[:, None]) / odds
    envelope: Floats = np.clip(np.minimum(below, above).min(axis=0), 0.0, 1.0)
    return envelope
