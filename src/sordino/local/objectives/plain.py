"""The loss alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.core.types import Vector
from sordino.local.objectives._registry import objectives


@objectives.register("plain")
@dataclass(frozen=True)
class Plain:
    """The mean loss over the silo's records, nothing else."""

    example: ClassVar[dict[str, Any]] = {}
    pulls: ClassVar[bool] = False

    def regulariser(self, theta: Vector, start: Vector) -> Vector:  # noqa: ARG002 - the protocol's arguments
        return np.zeros_like(theta)
