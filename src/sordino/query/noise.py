"""The doors of a question: a permit, whole numbers, and OpenDP's exact noise. OpenDP itself says what it costs.

permit ─ use ─► measurement ─ map(move) ≤ charged? ─► answer        refused before anything is drawn, if not

OpenDP draws from the operating system and cannot be seeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sordino.core.errors import ConfigError, PrivacyError
from sordino.privacy.permits import Permit
from sordino.query.prices import Law, Tariff
from sordino.query.rows import Steps

CONFIDENCE = 0.95
NORMAL = {0.95: 1.959963984540054, 0.975: 2.241402727604947}
"""Two-sided quantiles of the normal law."""


@dataclass(frozen=True)
class Spread:
    """How far noise on whole numbers scatters.

    Args:
        law: Which noise.
        scale: Of Laplace, or σ of the Gaussian, in steps.
    """

    law: Law
    scale: float

    @property
    def deviation(self) -> float:
        """The standard deviation, in steps."""
        if self.law == "gaussian":
            return self.scale  # an upper bound for the discrete law
        ratio = math.exp(-1 / self.scale)
        return math.sqrt(2 * ratio) / -math.expm1(-1 / self.scale)

    def width(self, confidence: float = CONFIDENCE) -> int:
        """So many steps that the noise stays within them with at least this probability.

        Laplace: P(|N| > w) = 2 r^(w+1) / (1 + r) with r = e^(−1/scale). Gaussian: its tail is below that of the
        normal law one step further in.
        """
        if self.law == "gaussian":
            return math.ceil(NORMAL[confidence] * self.scale) + 1
        ratio = math.exp(-1 / self.scale)
        return max(0, math.ceil(-self.scale * math.log((1 - confidence) * (1 + ratio) / 2)) - 1)


def noised(permit: Permit, exact: Steps, move: int, tariff: Tariff) -> tuple[list[int], Spread]:
    """Whole numbers with discrete noise on each.

    Args:
        permit: From the charge; used up.
        exact: Shape (d,).
        move: How far a neighbour moves the vector, in L1 and in L2.
        tariff: What was charged.

    Raises:
        PrivacyError: The permit was used, or OpenDP prices the noise above the charge; nothing is drawn.

    Guarantee:
        ε of discrete Laplace noise over L1, ρ of discrete Gaussian noise over L2, at most what was charged.
    """
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T=dp.i64))

    def build(scale: float) -> Any:
        if tariff.law == "laplace":
            return dp.m.make_laplace(space, dp.l1_distance(T=dp.i64), scale=scale)
        return dp.m.make_gaussian(space, dp.l2_distance(T=dp.i64), scale=scale)

    first = move / tariff.amount if tariff.law == "laplace" else move / math.sqrt(2 * tariff.amount)
    measurement, scale = _fitted(build, first, move, tariff.amount)
    _use(permit)
    return [int(value) for value in measurement(exact.tolist())], Spread(tariff.law, scale)


def chosen(
    permit: Permit, cells: Sequence[Steps], points: Sequence[int], level: float, rows: int, tariff: Tariff
) -> tuple[list[int], float]:
    """For each cell the candidate nearest to a rank, by noisy maximum; one release, as cells share no row.

    Args:
        permit: From the charge; used up.
        cells: The values of each cell, in steps.
        points: The candidates, in steps, rising.
        level: The rank as a share, in [0, 1].
        rows: How many rows a neighbour moves, over all cells together.
        tariff: What was charged.

    Returns:
        Which candidate, per cell; and by how many rows each may be further from the rank than the best candidate,
        with 95 % probability.

    Guarantee:
        At most what was charged: k rows of a person in one cell cost it k/K of ε, so all its rows together cost ε;
        ρ likewise, by squares.

    Source: Smith (2011), for the score; McKenna and Sheldon (2020), arXiv:2010.12603, for ε of the noisy maximum.
    """
    dp = opendp()
    kind = dp.max_divergence() if tariff.law == "laplace" else dp.zero_concentrated_divergence()
    space = dp.vector_domain(dp.atom_domain(T=dp.i64))
    scores = dp.t.make_quantile_score_candidates(space, dp.symmetric_distance(), list(points), level)

    def build(scale: float) -> Any:
        choice = dp.m.make_noisy_max(scores.output_domain, scores.output_metric, kind, scale=scale, negate=True)
        return scores >> choice

    move = scores.map(1)
    epsilon = tariff.amount if tariff.law == "laplace" else math.sqrt(8 * tariff.amount)
    measurement, scale = _fitted(build, 2 * move * rows / epsilon, rows, tariff.amount)
    _use(permit)
    # A row above all candidates and one below them move the first score by the level's two parts: their sum is a row.
    row = sum(scores([value])[0] for value in (points[0] - 1, points[-1] + 1))
    bound = scale * math.log(len(points) / (1 - CONFIDENCE)) / row
    return [int(measurement(values.tolist())) for values in cells], bound


def opendp() -> Any:
    """The library, with the parts that have no reviewed proof yet switched on: most of it.

    Raises:
        ConfigError: The extra is not installed.
    """
    try:
        import opendp.prelude as dp
    except ImportError as missing:
        raise ConfigError.about("query", f"needs {missing.name}", "pip install 'sordino[query]'") from None
    dp.enable_features("contrib")
    return dp


def _fitted(build: Callable[[float], Any], scale: float, move: int, charged: float) -> tuple[Any, float]:
    """A measurement that OpenDP prices at the charge or below, with the least scale up to the last bits."""
    for _ in range(60):
        measurement = build(scale)
        if measurement.map(move) <= charged:
            return measurement, scale
        scale *= 1 + 2.0**-48
    raise PrivacyError.about("query", "the noise costs more than is charged", "nothing was drawn", charged=charged)


def _use(permit: Permit) -> None:
    if not isinstance(permit, Permit):
        raise PrivacyError.about("query", "is drawn only under a permit", "take it from a ledger's reservation")
    permit.use()
