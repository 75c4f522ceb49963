"""What an objective file must offer, and the registry it enters."""

from __future__ import annotations

from typing import Protocol

from sordino.core.registry import Registry
from sordino.core.types import Vector


class Objective(Protocol):
    """A regulariser that depends on released parameters only, so that its gradient needs no clip and no noise."""

    @property
    def pulls(self) -> bool:
        """Whether the regulariser can be other than zero: where it cannot, it need not be asked for."""
        ...

    def regulariser(self, theta: Vector, start: Vector) -> Vector:
        """Gradient added to the released mean gradient. Shape (d,).

        Args:
            theta: The silo's present parameters.
            start: The parameters that the round began with.
        """
        ...


objectives: Registry[Objective] = Registry("objective")
