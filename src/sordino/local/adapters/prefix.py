"""Prefix tuning: trained keys and values before the text's own, in every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import Whole, adapters
from sordino.local.adapters._base import Base

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sordino.local.models._registry import Shapes


@adapters.register("prefix")
@dataclass(frozen=True)
class Prefix(Whole):
    """Virtual tokens whose keys and values are trained directly, layer by layer, without a network behind them.

    Saved in PEFT's format. PEFT 0.21 runs it for models that continue text; for classification it asks transformers for
    an argument that release 5.24 has renamed, so there only Sordino runs it.

    Args:
        tokens: Number of virtual tokens. They take places from the longest text that the base can read.
        head: Train the classification head as well. If not, it keeps its public random values.

    Source: Li and Liang (2021), arXiv:2101.00190, without the reparameterisation.
    """

    example: ClassVar[dict[str, Any]] = {"tokens": 3}
    tokens: int = 8
    head: bool = True

    def __post_init__(self) -> None:
        checks.count("adapter.prefix", tokens=self.tokens)

    def plain(self, base: Base) -> bool:
        return base.task == "continue"

    def recomputes(self) -> bool:
        return False  # transformers takes the keys and values away from checkpointed layers

    def shapes(self, base: Base) -> Shapes:
        if base.architecture == "distilbert" or (base.encoder is None and base.task == "classify"):
            raise ConfigError.about(
                "adapter.prefix",
                "is not known to take keys and values from outside",
                "use `ffa`",
                architecture=base.architecture,
            )
        return (*(base.head if self.head else ()), ("prefix.weight", (self.tokens, self._width(base))))

    def _width(self, base: Base) -> int:
        """Numbers per virtual token: a key and a value for every head of every layer."""
        return base.layers * 2 * base.heads * base.width

    def attach(self, network: nn.Module, base: Base, seed: int) -> None:
        import torch

        from sordino.local.adapters._torch import drawn

        with drawn(seed) as generator:
            table = torch.nn.Embedding(self.tokens, self._width(base))
            table.weight.normal_(0.0, 0.02, generator=generator)
        network.add_module("prefix", table.to(next(network.parameters()).device))

    def context(self, network: nn.Module, base: Base, counted: Tensor) -> dict[str, Any]:
        """The cache that a network finds when it has read the virtual tokens, and a mask that lets all see them."""
        import torch

        from sordino.local.adapters._torch import cache_argument, transformers

        # Looked up once per example, so that hooks see whose gradient is whose.
        places = torch.arange(self.tokens, device=counted.device).expand(len(counted), -1)
        values = network.get_submodule("prefix")(places).view(*places.shape, base.layers, 2, base.heads, base.width)
        cache = transformers().DynamicCache()
        for layer, (keys, contents) in enumerate(values.permute(2, 3, 0, 4, 1, 5)):
            cache.update(keys, contents, layer)
        seen = torch.cat([torch.ones_like(places, dtype=torch.bool), counted], dim=1)
        if base.task == "continue":
            return {cache_argument(network): cache}
        # An encoder builds its mask for the text alone; one of four axes it takes as it is.
        whole = seen[:, None, None, :].expand(-1, 1, counted.shape[1], -1)
        return {cache_argument(network): cache, "attention_mask": whole if base.encoder else seen.long()}

    def tensors(self, network: nn.Module, base: Base) -> dict[str, Tensor]:
        from sordino.local.adapters._torch import head_of

        return {"prompt_embeddings": network.get_parameter("prefix.weight"), **head_of(network, base, "base_model")}

    def config(self, base: Base) -> Any:
        from sordino.local.adapters._torch import common, peft

        return peft().PrefixTuningConfig(
            num_virtual_tokens=self.tokens,
            num_layers=base.layers,
            num_attention_heads=base.heads,
            token_dim=base.heads * base.width,
            num_transformer_submodules=1,
            encoder_hidden_size=base.heads * base.width,
            **common(base),
        )
