"""The engine for those who do not want to choose one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from torch import nn

from sordino.local.clipping._engine import Batch, Clip, Clipped, ClippingEngine, Groups, Unsupported, checked, engines
from sordino.local.clipping._rehearsal import made_up
from sordino.local.clipping.bookkeeping import Bookkeeping
from sordino.local.clipping.opacus import Opacus
from sordino.local.clipping.vmap import Vmap
from sordino.local.layout import trainable
from sordino.local.losses import Loss
from sordino.local.passes import FEWEST


@engines.register("auto")
@dataclass(frozen=True)
class Auto:
    """The fastest engine that can handle the model: `bookkeeping`, else `vmap`, else `opacus`.

    Args:
        chunk: Examples per pass (micro-batch); left out, each engine chooses.
        rows: A public number of examples that few batches exceed; see `Passes`.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    rows: int | None = None
    _chosen: WeakKeyDictionary[nn.Module, dict[tuple[str, ...], ClippingEngine]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False, metadata={"toml": False}
    )
    _order: tuple[ClippingEngine, ...] = field(init=False, repr=False, compare=False, metadata={"toml": False})

    def __post_init__(self) -> None:
        order = tuple(kind(self.chunk, self.rows) for kind in (Bookkeeping, Vmap, Opacus))
        object.__setattr__(self, "_order", order)

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        checked(batch, clip, groups)
        chosen, names = self._chosen.setdefault(model, {}), tuple(trainable(model))
        if names not in chosen:
            chosen[names] = self._choice(model, loss, batch)
        return chosen[names].clipped_sum(model, loss, batch, clip, groups)

    def serve_alike(self, model: nn.Module, other: nn.Module) -> None:
        """Serve another model by the engine that was chosen for a model as it is trained now, if there was a choice."""
        chosen = self._chosen.get(model, {}).get(tuple(trainable(model)))
        if chosen is not None:
            self._chosen[other] = {tuple(trainable(other)): chosen}

    def _choice(self, model: nn.Module, loss: Loss, like: Batch) -> ClippingEngine:
        """The first engine that takes made-up examples of the same shape: no record has a part in the choice."""
        *others, last = self._order
        for engine in others:
            try:
                engine.clipped_sum(model, loss, made_up(model, like, FEWEST), Clip(1.0))
            except (Unsupported, RuntimeError):
                # Value-dependent control flow under vmap raises RuntimeError and nothing finer.
                continue
            return engine
        return last
