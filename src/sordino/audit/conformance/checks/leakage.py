"""C14: the exact inversion of a linear layer: it must succeed on the raw update, and fail on what is released.

Source: x = dW[i] / db[i] for any row whose bias gradient is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.measure import TINY, Bench, Named, spike
from sordino.audit.conformance.protocol import Tensors
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.core.seeds import stream

SIDE, CLASSES = 8, 10
LINEAR: Named = {
    "head.weight": np.zeros((CLASSES, SIDE * SIDE), np.float32),
    "head.bias": np.zeros(CLASSES, np.float32),
}


@check("C14", "an attack that reads the raw update fails on what is released")
def inversion(bench: Bench) -> Iterator[Outcome]:
    """A picture is reconstructed from a linear layer's update of one unit; the mean picture is the baseline."""
    bench = bench.on(LINEAR)
    picture = _picture()
    update = _gradient(picture)
    control = _psnr(_inverted(update), picture)
    released = bench.release([*([spike(TINY, LINEAR)] * (bench.claim.cohort - 1)), update])
    found = _psnr(_inverted(released), picture)
    baseline = _psnr(np.full_like(picture, picture.mean()), picture)
    leaks = found > baseline + 3
    yield Outcome(
        result=Result.FAIL if leaks else Result.PASS,
        case="linear layer",
        evidence=f"{found:.1f} dB from the release; {control:.0f} dB from the raw update, "
        f"{baseline:.1f} dB for a picture of one grey",
        numbers={"released": found, "raw": control, "baseline": baseline},
        shows="from sordino.audit.conformance.checks.leakage import inversion\nprint(*inversion(bench))",
    )


def _picture() -> NDArray[np.float64]:
    """A bright ring on a dark ground."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    ring = np.exp(-((np.hypot(x, y) - 2.4) ** 2))
    return np.asarray(0.05 + 0.9 * ring).ravel()


def _gradient(picture: NDArray[np.float64]) -> Named:
    """Cross entropy's gradient at zero weights, for class 3."""
    error = np.full(CLASSES, 1 / CLASSES) + 0.01 * stream(0, "logits").normal(size=CLASSES)
    error[3] -= 1
    return {"head.weight": np.outer(error, picture).astype(np.float32), "head.bias": error.astype(np.float32)}


def _inverted(update: Tensors) -> NDArray[np.float64]:
    """The input, by the row with the largest bias gradient; sign and scale cancel."""
    weight, bias = (np.asarray(update[f"head.{part}"], np.float64) for part in ("weight", "bias"))
    row = int(np.abs(bias).argmax())
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.nan_to_num(np.clip(weight[row] / bias[row], 0.0, 1.0))
    return found


def _psnr(found: NDArray[np.float64], picture: NDArray[np.float64]) -> float:
    return -10 * math.log10(max(float(np.mean((found - picture) ** 2)), 1e-12))
