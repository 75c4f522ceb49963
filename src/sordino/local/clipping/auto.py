"""The engine for those who do not want to choose one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from torch import nn

from sordino.local.clipping._engine import Batch, Clip, Clipped, ClippingEngine, Groups, Unsupported, engines
from sordino.local.clipping.bookkeeping import Bookkeeping
from sordino.local.clipping.opacus import Opacus
from sordino.local.clipping.vmap import Vmap
from sordino.local.losses import Loss


@engines.register("auto")
@dataclass(frozen=True)
class Auto:
    """The fastest engine that can handle the model: `bookkeeping`, else `vmap`, else `opacus`.

    Args:
        chunk: Examples per pass (micro-batch); left out, each engine chooses.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    _ruled_out: WeakKeyDictionary[nn.Module, int] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False, metadata={"toml": False}
    )

    _order: tuple[ClippingEngine, ...] = field(init=False, repr=False, compare=False, metadata={"toml": False})

    def __post_init__(self) -> None:
        order = (Bookkeeping(self.chunk), Vmap(self.chunk), Opacus(self.chunk))
        object.__setattr__(self, "_order", order)

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        *others, last = self._order
        for i, engine in enumerate(others):
            if i < self._ruled_out.get(model, 0):
                continue
            try:
                return engine.clipped_sum(model, loss, batch, clip, groups)
            except (Unsupported, RuntimeError):
                # Value-dependent control flow under vmap raises RuntimeError and nothing finer.
                self._ruled_out[model] = i + 1
        return last.clipped_sum(model, loss, batch, clip, groups)
