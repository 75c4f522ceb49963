"""A federated round driven anew: the run's stages, sum, certificate, door and noise; clients of the audit's making.

crafted ─┐
         ├─ stages ──► held to the bound ──► Sum ──► certified total ──door──► settle ──► what everybody sees
honest  ─┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sordino.audit.promise import Promise
from sordino.audit.subjects._books import ACCOUNT, reserved
from sordino.audit.subjects.clients import Floats
from sordino.core.types import Group, RoundPlan, Unit, Update, Vector
from sordino.federation.pipeline import Pipeline
from sordino.privacy.doors import Door, Mechanism
from sordino.privacy.noise import SeededNoise

if TYPE_CHECKING:
    from sordino.privacy.events import Event

MANY = 10**9
"""Records that a crafted client says it has: full weight, wherever weights are capped."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """Everything that a driven round is made of.

    Args:
        promise: What the run claims for one client, or None.
        noise_multiplier: The run's noise over its bound.
        pipeline: The run's stages around a plain sum.
        mechanism: The noise law at a multiplier.
        groups: The parameter tensors.
        honest: Changes of the run's own clients that take part, shape (n, d).
        held: Of those that do not, shape (j, d).
        craft: `gradient` of the protocol.
        public: The run's own clients hold published records.
        seed: Of the attack's own choices.
    """

    promise: Promise | None
    noise_multiplier: float
    pipeline: Pipeline
    mechanism: Callable[[float], Mechanism]
    groups: tuple[Group, ...]
    honest: Floats
    held: Floats
    craft: Callable[[Floats, int], Vector]
    public: bool = False
    seed: int = 0
    _kept: list[Update] = field(default_factory=list, repr=False)

    @property
    def size(self) -> int:
        return self.groups[-1].stop

    @property
    def _plan(self) -> RoundPlan:
        return RoundPlan(0, 1, self.groups, max(1.0, float(len(self.honest))))

    def event(self, noise_multiplier: float) -> Event:
        return self.mechanism(noise_multiplier).event()

    def held_out(self) -> Floats:
        return self.held

    def gradient(self, avoid: Floats, seed: int) -> Vector:
        return self.craft(avoid, seed)

    def sent(self, updates: Floats) -> Floats:
        return np.stack([update.vector[: self.size] for update in self._through(updates)])

    def released(self, crafted: Sequence[Floats], noise_multiplier: float, seed: int) -> Iterator[Vector]:
        if not self._kept:
            self._kept.extend(self._through(self.honest))
        plan, event = self._plan, self.event(noise_multiplier)
        reservation = reserved(event, len(crafted), Unit.CLIENT)
        for number, own in enumerate(crafted):
            source = SeededNoise(seed + number)
            door = Door(self.mechanism(noise_multiplier), event, (ACCOUNT,), reservation, source)
            updates = (*self._kept, *self._through(own))
            total = self.pipeline.total(updates, plan, self.size, Unit.CLIENT)
            yield self.pipeline.settle(door(total), plan)[0]

    def _through(self, changes: Floats) -> Iterator[Update]:
        """What clients with these changes send."""
        for change in changes:
            yield self.pipeline.client(Update(np.asarray(change, dtype=np.float32), records=MANY), self._plan)
