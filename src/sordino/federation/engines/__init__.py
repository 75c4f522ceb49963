"""Carry a round plan to the cohort and yield what comes back, as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core import registry
from sordino.core.errors import EngineError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.secure import Terms
from sordino.privacy.shares import Share

Work: TypeAlias = Callable[[int, Vector, RoundPlan], Update]
"""What one client does in a round: its position in the population, the model, the plan; its update."""

Together: TypeAlias = Callable[[NDArray[np.int64], Vector, RoundPlan], Iterable[Update]]
"""What several clients do in a round, side by side: the same updates as `Work` gives one by one, in any order."""


@dataclass(frozen=True)
class Announced:
    """What a round starts from, besides its plan. All of it is released.

    Args:
        model: The whole model, also where a round trains a part of it. Shape (d,).
        memory: What the setting has learnt so far, JSON-able.
        size: Length of what a client sends.
    """

    model: Vector
    memory: Mapping[str, Any]
    size: int


@dataclass(frozen=True)
class Summing:
    """A secure sum of one round.

    Args:
        terms: Of the sum.
        share: Trains one client at a model, and gives its part, sealed: called for clients in this process.
        following: Terms of the next round's sum, if there is one.
    """

    terms: Terms
    share: Callable[[int, Vector], Share]
    following: Terms | None = None


class Engine(Protocol):
    """Runs one round's work at each client of a cohort."""

    example: ClassVar[Mapping[str, Any]]

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        """One update per client that answers, as they arrive.

        Args:
            plan: What everyone may know.
            cohort: Positions of the clients that take part; secret.
            model: The current model. Shape (d,). A client cannot change it for others.
            work: What each client does.
            together: The same for several clients, for engines that have them in one process.
        """
        ...

    def summed(self, plan: RoundPlan, sums: Summing, model: Vector) -> NDArray[np.uint64]:  # noqa: ARG002 - as above
        """The secure sum of what the members send, modulo 2^bits. Shape (size,).

        Args:
            plan: What everyone may know.
            sums: Who sends what.
            model: The current model. Shape (d,).

        Raises:
            EngineError: Fewer members than the threshold are left; nothing was opened.
        """
        raise EngineError.about("engine", "has no secure summation", "use another", engine=type(self).__name__)

    def seeing(self, announced: Announced) -> Engine:  # noqa: ARG002 - for those that send it
        """The engine for a round that starts from this."""
        return self


engines: registry.Registry[Engine] = registry.Registry("engine")

registry.load(__name__, __path__)
