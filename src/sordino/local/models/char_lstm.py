"""A recurrent network over characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.models._registry import InputSpec, Shapes, linear, models

if TYPE_CHECKING:
    from torch import nn


@models.register("char_lstm")
@dataclass(frozen=True)
class CharLstm:
    """Characters in, logits of what follows the last one out, by stacked LSTM layers.

    The layers are plain linear maps, so that every engine can take per-example gradients of them.
    The default has the size of the federated Shakespeare benchmark.

    Args:
        embedding: Width of a character's vector.
        hidden: Width of each layer's state.
        layers: Number of LSTM layers.

    Source: McMahan et al. (2017), arXiv:1602.05629, the stacked character LSTM.
    """

    example: ClassVar[dict[str, Any]] = {"embedding": 4, "hidden": 8, "layers": 2}
    embedding: int = 8
    hidden: int = 256
    layers: int = 2

    def __post_init__(self) -> None:
        checks.count("model.char_lstm", embedding=self.embedding, hidden=self.hidden, layers=self.layers)

    def _vocabulary(self, spec: InputSpec) -> int:
        if spec.vocabulary is None or len(spec.shape) != 1:
            raise ConfigError.about(
                "model.char_lstm", "is not a sequence of tokens", "use a text dataset", shape=spec.shape
            )
        return spec.vocabulary

    def shapes(self, spec: InputSpec) -> Shapes:
        result: Shapes = (("embedding.weight", (self._vocabulary(spec), self.embedding)),)
        for i in range(self.layers):
            width = self.hidden if i else self.embedding
            result += linear(f"cells.{i}.input", width, 4 * self.hidden)
            result += linear(f"cells.{i}.state", self.hidden, 4 * self.hidden, bias=False)
        return (*result, *linear("head", self.hidden, spec.outputs))

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        from sordino.local.models._lstm import CharacterNetwork
        from sordino.local.models._torch import initialised

        vocabulary = self._vocabulary(spec)
        return initialised(
            lambda: CharacterNetwork(vocabulary, self.embedding, self.hidden, self.layers, spec.outputs), seed
        )
