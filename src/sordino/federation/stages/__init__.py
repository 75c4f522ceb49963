"""What a client does to its update before sending, and what the coordinator does to the sum to undo it.

client:  update ──► stage 1 ──► … ──► stage n ──► wire
server:  sum    ──► stage n ──► … ──► stage 1 ──► door ──► settle n ──► … ──► settle 1 ──► strategy
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sordino.core import registry
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.bounds import Bound


class Stage(Protocol):
    """One step of a pipeline: a frozen dataclass that overrides only what it has.

    No method writes to its input. Everything a stage holds is public.
    """

    example: ClassVar[Mapping[str, Any]]

    def bound(self, incoming: Bound) -> Bound:
        """How far one client can move the decoded sum after this stage, given how far it could before."""
        return incoming

    def size(self, size: int) -> int:
        """Length of the vector after the client half, given its length before."""
        return size

    def client(self, update: Update, plan: RoundPlan) -> Update:
        """The client half."""
        del plan
        return update

    def server(self, total: NDArray[np.float64], plan: RoundPlan) -> NDArray[np.float64]:
        """The server half: a linear decoding of the private sum, before noise."""
        del plan
        return total

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Self]:
        """After the noise: the released vector without what this stage added, and the stage of the next round."""
        del plan
        return released, self


stages: registry.Registry[Stage] = registry.Registry("stage")

registry.load(__name__, __path__)
