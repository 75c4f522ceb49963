"""What released numbers say: accuracy and loss with the standard errors that the noise gives. Post-processing only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.core.types import Visibility


@dataclass(frozen=True)
class Figures:
    """What somebody's released vector says, with the standard errors that its noise alone gives.

    Args:
        name: The silo, or `all` for the sum over silos.
        vector: Right − count/2; loss/bound − count/2, where the loss is released; count.
        std: Of the noise on each of them.
        bound: The largest loss that counts, or None.
    """

    name: str
    vector: tuple[float, ...]
    std: float
    bound: float | None

    def to_plain(self) -> dict[str, Any]:
        """JSON-able. The errors are those of a ratio of two noised numbers, to first order."""
        count = max(self.vector[-1], 1.0)
        found: dict[str, Any] = {"name": self.name}
        scales = (("accuracy", 1.0), ("loss", self.bound or 0.0))
        for (what, scale), total in zip(scales, self.vector[:-1], strict=False):
            centred = min(max(total / count, -0.5), 0.5)
            found[what] = round(scale * (0.5 + centred), 6)
            found[f"{what}_error"] = round(scale * self.std * math.sqrt(1 + centred**2) / count, 6)
        return found | {"units": round(self.vector[-1], 3), "units_error": round(self.std, 3)}


@dataclass(frozen=True)
class Released:
    """Every silo's figures, and those of all together: a sum of what was released, so it costs nothing more.

    Args:
        silos: Those that released some: one or more.
        away: Names of silos that did not answer, on other machines: charged, and in no figure.
    """

    silos: tuple[Figures, ...]
    away: tuple[str, ...] = ()

    @property
    def pooled(self) -> Figures:
        """Over all silos."""
        total = tuple(np.sum([silo.vector for silo in self.silos], axis=0).tolist())
        std = math.sqrt(sum(silo.std**2 for silo in self.silos))
        return Figures("all", total, std, self.silos[0].bound)

    @property
    def score(self) -> float:
        """The pooled share of right targets, to choose among candidates by: not rounded, so hardly ever even."""
        right, *_, count = self.pooled.vector
        return 0.5 + min(max(right / max(count, 1.0), -0.5), 0.5)

    def to_plain(self) -> dict[str, Any]:
        """JSON-able."""
        pooled = self.pooled.to_plain() | {"visibility": str(Visibility.RELEASED)}
        pooled.pop("name")
        return pooled | {"silos": [silo.to_plain() for silo in self.silos], "away": list(self.away)}
