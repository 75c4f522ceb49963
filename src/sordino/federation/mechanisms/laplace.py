"""Laplace noise, measured against the L1 bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.federation.mechanisms import mechanisms
from sordino.privacy import events
from sordino.privacy.doors import Mechanism
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Permit

if TYPE_CHECKING:
    from sordino.privacy.events import Event


@mechanisms.register("laplace")
@dataclass(frozen=True)
class Laplace(Mechanism):
    """Add independent Laplace noise of scale noise_multiplier · L1 bound to every coordinate.

    Pure DP, but only for a sum with an L1 bound: worth it for a few coordinates, ruinous for a model.

    Args:
        noise_multiplier: Scale over the add/remove L1 bound, > 0, dimensionless.

    Guarantee:
        One release is (1/noise_multiplier, 0)-DP under add/remove.

    Source:
        Dwork, McSherry, Nissim and Smith (2006).
    """

    example: ClassVar = {"noise_multiplier": 1.0}
    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive("mechanism.laplace", noise_multiplier=self.noise_multiplier)

    def event(self) -> Event:
        return events.laplace(self.noise_multiplier)

    def scale(self, l2: float, l1: float | None) -> float:
        del l2
        if l1 is None:
            raise PrivacyError.about("mechanism.laplace", "the sum has no L1 bound", "add a 'clip_l1' stage")
        return self.noise_multiplier * l1

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        return source.laplace(permit, scale, size)
