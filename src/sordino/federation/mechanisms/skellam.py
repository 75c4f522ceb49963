"""Skellam noise: whole numbers, and the sum of many parties' shares has the same law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.federation.mechanisms import mechanisms
from sordino.federation.mechanisms._whole import on_lattice
from sordino.privacy import events
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Permit, SharePermit
from sordino.privacy.shares import SharedMechanism

if TYPE_CHECKING:
    from sordino.privacy.events import Event


@mechanisms.register("skellam")
@dataclass(frozen=True)
class Skellam(SharedMechanism):
    """Add independent Skellam noise, differences of two Poisson draws, to every whole number of a sum.

    For secure summation; at a trusted place it is the Gaussian with a looser price.

    Args:
        noise_multiplier: Standard deviation over the add/remove L2 bound, > 0, dimensionless.
        l2: The L2 bound in whole steps, > 0: what the encoding's `bound()` says.
        l1: The L1 bound in whole steps, > 0; l2² where it is not given, which always holds for whole numbers.

    Guarantee:
        The Rényi divergence of `privacy/integer_noise.py`; close to that of the Gaussian once l2 is in the hundreds.

    Source:
        Agarwal, Kairouz and Liu (2021), arXiv:2110.04995.
    """

    example: ClassVar = {"noise_multiplier": 1.0}
    noise_multiplier: float
    l2: float = 2.0**15
    l1: float | None = None

    def __post_init__(self) -> None:
        checks.positive("mechanism.skellam", noise_multiplier=self.noise_multiplier, l2=self.l2, l1=self._l1)

    @property
    def _l1(self) -> float:
        return self.l2**2 if self.l1 is None else self.l1

    def event(self) -> Event:
        return events.skellam(self.noise_multiplier, self.l2, self._l1)

    def scale(self, l2: float, l1: float | None) -> float:
        del l1
        return self.noise_multiplier * l2

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        def whole(std: float) -> NDArray[np.int64]:
            return source.skellam(permit, std**2, size)

        return on_lattice(whole, scale, self.noise_multiplier, (self.l2, self._l1), size)

    def share(
        self, source: NoiseSource, permit: SharePermit, scale: float, size: int, *, honest: int
    ) -> NDArray[np.int64]:
        return source.skellam(permit, scale**2 / honest, size)
