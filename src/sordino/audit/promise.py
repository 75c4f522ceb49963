"""What is attacked: the guarantee of a run as its ledger minted it, or what another framework declares of itself.

A promise is a whole curve, δ at every ε, computed from its events; (ε, δ) is one point of it. Attacks are tested
against the curve.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import Adjacency, Unit
from sordino.privacy import accounting, events

if TYPE_CHECKING:
    from sordino.ledger import Claim
    from sordino.privacy.events import Event


@dataclass(frozen=True)
class Promise:
    """A guarantee to attack.

    Args:
        epsilon: The promised ε, at `delta`.
        delta: Its failure probability.
        unit: Whose presence is hidden.
        adjacency: The neighbouring relation.
        events: Event keys and counts that the curve follows from.
        view: Against whom it holds.
        source: Who says so: `ledger sha256:…`, or `declared by …` for a framework without a ledger.
        test: Made in a simulation with predictable noise.
    """

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    events: tuple[tuple[str, int], ...]
    view: str
    source: str
    test: bool = False

    @classmethod
    def of_claim(cls, claim: Claim) -> Self:
        """What a ledger claims, from the events that the plan was charged for."""
        return cls(
            epsilon=claim.epsilon,
            delta=claim.delta,
            unit=claim.unit,
            adjacency=claim.adjacency,
            events=claim.planned or claim.events,
            view=claim.view,
            source=f"ledger sha256:{claim.ledger_sha256}",
            test=claim.test,
        )

    @classmethod
    def declared(
        cls,
        sequence: Iterable[tuple[Event, int]],
        delta: float,
        *,
        unit: Unit = Unit.RECORD,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        view: str = "whoever sees the releases",
        by: str,
    ) -> Self:
        """What something without a ledger declares of itself, such as a mechanism under test or another framework.

        >>> promise = Promise.declared([(events.gaussian(1.0), 1)], 1e-5, by="an example")
        >>> round(promise.epsilon, 2)
        4.38
        """
        listed = list(sequence)
        price = accounting.best_epsilon(listed, delta, adjacency=adjacency)
        keys = tuple((events.key(event), count) for event, count in listed)
        return cls(price.epsilon, delta, Unit(unit), Adjacency(adjacency), keys, view, f"declared by {by}")

    def when_changed(self) -> Self:
        """The same events as a promise to a unit that stays and whose data change, such as a client one of whose texts
        comes or goes: that moves a clipped sum twice as far as a unit that comes or goes as a whole.

        Raises:
            PrivacyError: No accountant prices the events so.

        >>> promise = Promise.declared([(events.gaussian(2.0), 1)], 1e-5, unit=Unit.CLIENT, by="an example")
        >>> round(promise.epsilon, 2), round(promise.when_changed().epsilon, 2)
        (1.99, 4.38)
        """
        if self.adjacency is Adjacency.REPLACE_ONE:
            return self
        price = accounting.best_epsilon(self.sequence, self.delta, adjacency=Adjacency.REPLACE_ONE)
        return replace(self, epsilon=price.epsilon, adjacency=Adjacency.REPLACE_ONE)

    @property
    def sequence(self) -> list[tuple[Event, int]]:
        """The events with their counts."""
        return [(events.from_key(key), count) for key, count in self.events]

    def deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """The curve: δ at each ε. Shapes (n,)."""
        return accounting.delta_curve(self.sequence, epsilons, adjacency=self.adjacency)

    def to_plain(self) -> dict[str, Any]:
        """The promise as JSON-able values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit.value,
            "adjacency": self.adjacency.value,
            "view": self.view,
            "source": self.source,
            "test": self.test,
        }
