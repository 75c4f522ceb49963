"""C18: released numbers lie on a grid, so that their last bits do not tell what was noised.

The sum of floats plus a draw of floats takes only some of all floats, and which ones depends on the sum: whoever sees
the last bits can rule neighbours out, whatever ε says. On a grid coarser than floats are, all its points can occur.

Source: Mironov (2012), "On significance of the least significant bits for differential privacy".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.measure import Bench, dense, quiet
from sordino.audit.conformance.protocol import NotApplicable
from sordino.audit.conformance.verdicts import Outcome, Result

DIGITS = 22
"""Bits that are looked at: two less than float32 has, which a public division of the sum may have rounded."""

RELEASES = 4

ENOUGH = 20
"""Values that could hold finer bits than the grid, and do not. Floats without a grid do so once in 2^20 times."""


@check("C18", "the last bits of a release tell nothing")
def bits(bench: Bench) -> Iterator[Outcome]:
    """Whether all values of a release are multiples of one power of two, before or after a division by the cohort."""
    size, norm = bench.claim.cohort, bench.claim.clip / 10
    updates = [*quiet(size - 1, bench.model, norm), dense(norm, bench.model)]
    releases = np.array([bench.vector(updates, seed=seed) for seed in range(RELEASES)])
    scale = float(np.std(releases[0] - releases[1])) / math.sqrt(2)
    if bench.claim.noise_multiplier is None or scale == 0:
        raise NotApplicable("it adds no noise of a stated scale")
    step, idle, factor = max(((*grid(releases * factor), factor) for factor in (1, size)), key=lambda found: found[1])
    finest = math.log2(step / factor / scale)
    held = idle >= ENOUGH
    yield Outcome(
        result=Result.PASS if held else Result.FAIL,
        case="a grid",
        evidence=f"all are multiples of 2^{finest:.0f} of the noise; {idle} values could hold finer bits"
        if held
        else f"values hold bits down to 2^{finest:.0f} of the noise: which of them can occur depends on the data",
        numbers={"finest": finest, "idle": idle},
        shows="from sordino.audit.conformance.checks.bits import grid\n"
        f"updates = [*quiet({size - 1}, norm={norm:g}), dense({norm:g})]\n"
        f"releases = np.array([bench.vector(updates, seed=seed) for seed in range({RELEASES})])\n"
        f"print(grid(releases), grid(releases * {size}))",
    )


def grid(values: NDArray[np.float64]) -> tuple[float, int]:
    """The finest bit that any value holds within its first digits, and how many values could hold a finer one.

    >>> grid(np.array([0.5, 0.75, 3.0]))
    (0.25, 3)
    """
    values = values[values != 0]
    if not values.size:
        return 1.0, 0
    parts, exponents = np.frexp(values)
    digits = np.abs(np.rint(np.ldexp(parts, DIGITS))).astype(np.int64)
    last = exponents - DIGITS
    finest = int((last + np.log2(digits & -digits).astype(np.int64)).min())
    return 2.0**finest, int(np.sum(last < finest))
