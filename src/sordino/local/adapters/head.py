"""Only the classification head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import Whole, adapters
from sordino.local.adapters._base import Base

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sordino.local.models._registry import Shapes


@adapters.register("head")
@dataclass(frozen=True)
class Head(Whole):
    """The classification head alone, on the features of the frozen base: the fewest parameters, the cheapest step.

    Saved as a PEFT adapter that targets no module and holds the head.
    """

    example: ClassVar[dict[str, Any]] = {}

    def shapes(self, base: Base) -> Shapes:
        if not base.head:
            raise ConfigError.about("adapter.head", "has nothing to train: the model continues text", "use `ffa`")
        return base.head

    def attach(self, network: nn.Module, base: Base, seed: int) -> None:
        """Nothing is added: the head is the network's own."""

    def tensors(self, network: nn.Module, base: Base) -> dict[str, Tensor]:
        from sordino.local.adapters._torch import head_of

        return head_of(network, base, "base_model.model")

    def config(self, base: Base) -> Any:
        from sordino.local.adapters._torch import lora_config

        return lora_config(base, [], rank=1, alpha=1.0)
