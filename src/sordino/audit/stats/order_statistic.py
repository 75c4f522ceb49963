"""One run by order statistics: the declared mechanism would make more errors among its r most confident guesses.

The k-th most confident of m guesses is wrong with chance E[sigmoid(−|L_(k)|)], L_(k) the k-th largest of m privacy
losses. Their sum is m ∫ sigmoid(−|L|) P[Bin(m − 1, S(|L|)) ≤ r − 1] dP(L), S the chance of a larger loss. Fewer errors
than that, by Chernoff's bound, refute the mechanism.

About twice as tight as the other one-run bounds, under more: canaries whose outputs are independent, and a mechanism
that is exactly Gaussian. So it grades *conformance*; it is no falsification of an ε.

Source: Xiang et al. (2025), arXiv:2509.08704.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import binom

from sordino.audit.stats.one_run import last_refuted
from sordino.privacy import gaussian

_LARGEST_MU = 20.0
_NORMAL = np.linspace(-9.0, 9.0, 1801)


def expected_errors(mu: float, guesses: int, canaries: int) -> float:
    """How many of the `guesses` most confident are wrong on average, for a μ-GDP mechanism and its best score.

    >>> round(expected_errors(0.0, 10, 100), 2), round(expected_errors(1.0, 1000, 1000), 1)
    (5.0, 308.5)
    """
    if mu == 0:
        return guesses / 2
    loss = np.abs(mu**2 / 2 + mu * _NORMAL)
    larger = ndtr(mu / 2 - loss / mu) + ndtr(-mu / 2 - loss / mu)
    among = binom.cdf(guesses - 1, canaries - 1, np.minimum(larger, 1.0))
    density = np.exp(-(_NORMAL**2) / 2) / math.sqrt(2 * math.pi)
    return float(canaries * np.trapezoid(expit(-loss) * among * density, _NORMAL))


def p_value(correct: int, guesses: int, canaries: int, mu: float) -> float:
    """The chance of as few errors from a μ-GDP mechanism, at most. Chernoff: exp(−r KL(errors/r, expected/r)).

    >>> p_value(5, 10, 100, mu=0.0)
    1.0
    """
    if guesses <= 0:
        return 1.0
    share, expected = (guesses - correct) / guesses, expected_errors(mu, guesses, canaries) / guesses
    if share >= expected:
        return 1.0
    divergence = (1 - share) * math.log((1 - share) / (1 - expected))
    divergence += share * math.log(share / expected) if share > 0 else 0.0
    return math.exp(-guesses * divergence)


@functools.lru_cache(maxsize=65536)
def conformance_bound(
    correct: int, guesses: int, canaries: int, *, delta: float, confidence: float = 0.95
) -> tuple[float, float]:
    """The largest μ that the errors contradict, and its ε at `delta`. CONFORMANCE GRADE ONLY.

    Args:
        correct: v, right guesses.
        guesses: r, fixed in advance.
        canaries: m ≥ r.
        delta: In (0, 1).
        confidence: Of the statement about μ.

    Returns:
        (μ, ε); (0, 0) when nothing is contradicted.

    Guarantee:
        A Gaussian mechanism with independent outputs per canary has at least this μ, with `confidence`.

    >>> conformance_bound(50, 100, 100, delta=1e-5)
    (0.0, 0.0)
    """
    alpha = 1 - confidence
    mu = last_refuted(lambda m: p_value(correct, guesses, canaries, m) <= alpha, _LARGEST_MU)
    return (mu, gaussian.epsilon_of(mu, delta)) if mu > 0 else (0.0, 0.0)
