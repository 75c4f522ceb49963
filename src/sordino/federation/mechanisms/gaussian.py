"""Gaussian noise, measured against the L2 bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.federation.mechanisms import mechanisms
from sordino.privacy import events
from sordino.privacy.doors import Mechanism
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Permit

if TYPE_CHECKING:
    from sordino.privacy.events import Event


@mechanisms.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Add independent N(0, (noise_multiplier · L2 bound)²) to every coordinate.

    Args:
        noise_multiplier: Standard deviation over the add/remove L2 bound, > 0, dimensionless.

    Guarantee:
        One release is 1/noise_multiplier-GDP under add/remove.

    Source:
        Balle and Wang (2018), arXiv:1805.06530.
    """

    example: ClassVar = {"noise_multiplier": 1.0}
    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive("mechanism.gaussian", noise_multiplier=self.noise_multiplier)

    def event(self) -> Event:
        return events.gaussian(self.noise_multiplier)

    def scale(self, l2: float, l1: float | None) -> float:
        del l1
        return self.noise_multiplier * l2

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        return source.normal(permit, scale, size)
