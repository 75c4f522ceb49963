"""Whole clients protected by noise that they draw in shares: only the masked sum is seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sordino.core.types import RoundPlan, Vector
from sordino.experiment.settings.setup import Setting
from sordino.experiment.settings.shared_sum import SharedSum
from sordino.experiment.settings.training import plain_change
from sordino.federation.pipeline import Pipeline

if TYPE_CHECKING:
    from sordino.privacy.kernel import BoundedSum


@dataclass(frozen=True)
class ClientAtSum(SharedSum):
    """Local training of any kind, then weight → clip → secure sum, divided by the number of clients."""

    pipeline: Pipeline

    def wire_size(self) -> int:
        return self.pipeline.wire_size(self.setup.layout.size)

    def clip(self) -> float | None:
        return self.pipeline.bound().l2

    def total(self, client: int, start: Vector, plan: RoundPlan) -> BoundedSum:
        update = self.pipeline.client(plain_change(self.setup, client, start, plan), plan)
        return self.pipeline.own(update, plan, self.setup.layout.size, self.setup.unit)

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Setting]:
        vector, pipeline = self.pipeline.settle(released, plan)
        return vector / plan.expected, replace(self, pipeline=pipeline)

    def memory(self) -> dict[str, Any]:
        return {"stages": self.pipeline.to_tables()}

    def restored(self, memory: dict[str, Any]) -> Setting:
        return replace(self, pipeline=Pipeline.from_tables(memory["stages"]))
