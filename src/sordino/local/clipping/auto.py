"""The engine for those who do not want to choose one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import nn

from sordino.core.types import Unit
from sordino.local.clipping._engine import Batch, Clipped, ClippingEngine, Groups, engines
from sordino.local.clipping.opacus import Opacus
from sordino.local.clipping.vmap import Vmap
from sordino.local.losses import Loss


@engines.register("auto")
@dataclass(eq=False)
class Auto:
    """`vmap` where the model can be mapped, else `opacus`: as fast, and examples cannot see each other."""

    example: ClassVar[dict[str, Any]] = {}
    _engine: ClippingEngine = field(default_factory=Vmap, init=False, repr=False, metadata={"toml": False})

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, *, norm: float, unit: Unit, groups: Groups = None
    ) -> Clipped:
        try:
            return self._engine.clipped_sum(model, loss, batch, norm=norm, unit=unit, groups=groups)
        except RuntimeError:
            # Value-dependent control flow and operators without a batching rule raise this and nothing finer.
            if not isinstance(self._engine, Vmap):
                raise
        self._engine = Opacus()
        return self._engine.clipped_sum(model, loss, batch, norm=norm, unit=unit, groups=groups)
