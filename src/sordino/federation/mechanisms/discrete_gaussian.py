"""Discrete Gaussian noise: whole numbers; a sum of shares is nearly of that law, and priced for what it is not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.federation.mechanisms import mechanisms
from sordino.federation.mechanisms._whole import on_lattice
from sordino.privacy import events
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Permit, SharePermit
from sordino.privacy.shares import SharedMechanism

if TYPE_CHECKING:
    from sordino.privacy.events import Event


@mechanisms.register("discrete_gaussian")
@dataclass(frozen=True)
class DiscreteGaussian(SharedMechanism):
    """Add discrete Gaussian noise, a Gaussian on the whole numbers only, to every whole number of a sum.

    For secure summation. Each share must be at least half a step wide; below two steps it begins to cost.

    Args:
        noise_multiplier: Standard deviation over the add/remove L2 bound, > 0, dimensionless.
        l2: The L2 bound in whole steps, > 0: what the encoding's `bound()` says.
        l1: The L1 bound in whole steps, > 0; l2² where it is not given, which always holds for whole numbers.
        shares: How many draws make up the noise that is charged.
        size: Number of coordinates; it matters only for more than one share.

    Guarantee:
        The Rényi divergence of `privacy/integer_noise.py`: that of the Gaussian for one share, and for shares of more
        than two steps.

    Source:
        Kairouz, Liu and Steinke (2021), arXiv:2102.06387; Canonne, Kamath and Steinke (2020), arXiv:2004.00010.
    """

    example: ClassVar = {"noise_multiplier": 1.0}
    noise_multiplier: float
    l2: float = 2.0**15
    l1: float | None = None
    shares: int = 1
    size: int = 1

    def __post_init__(self) -> None:
        where = "mechanism.discrete_gaussian"
        checks.positive(where, noise_multiplier=self.noise_multiplier, l2=self.l2, l1=self._l1)
        checks.count(where, shares=self.shares, size=self.size)

    @property
    def _l1(self) -> float:
        return self.l2**2 if self.l1 is None else self.l1

    def event(self) -> Event:
        return events.discrete_gaussian(self.noise_multiplier, self.l2, self._l1, self.shares, self.size)

    def scale(self, l2: float, l1: float | None) -> float:
        del l1
        return self.noise_multiplier * l2

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        def whole(std: float) -> NDArray[np.int64]:
            return source.discrete_gaussian(permit, std, size)

        return on_lattice(whole, scale, self.noise_multiplier, (self.l2, self.l2**2), size)

    def share(
        self, source: NoiseSource, permit: SharePermit, scale: float, size: int, *, honest: int
    ) -> NDArray[np.int64]:
        if honest > self.shares:
            raise PrivacyError.about("share", "are more, hence smaller, shares than are charged", honest=honest)
        return source.discrete_gaussian(permit, scale / math.sqrt(honest), size)
