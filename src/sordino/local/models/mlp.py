"""A multi-layer perceptron."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sordino.core import checks
from sordino.local.models._registry import InputSpec, Shapes, linear, models

if TYPE_CHECKING:
    from torch import nn


@models.register("mlp")
@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with one activation between them.

    Args:
        hidden: Widths of the hidden layers.
        activation: `tanh` keeps gradients of bounded size, which suits clipping; `relu` is the common choice.
    """

    example: ClassVar[dict[str, Any]] = {"hidden": [16], "activation": "tanh"}
    hidden: tuple[int, ...] = (64,)
    activation: Literal["relu", "tanh"] = "tanh"

    def __post_init__(self) -> None:
        checks.count("model.mlp", **{f"hidden[{i}]": width for i, width in enumerate(self.hidden)})

    def _layers(self, spec: InputSpec) -> list[tuple[str, int, int]]:
        widths = [math.prod(spec.shape), *self.hidden, spec.outputs]
        return [(f"linear{i}", *pair) for i, pair in enumerate(itertools.pairwise(widths), 1)]

    def shapes(self, spec: InputSpec) -> Shapes:
        return tuple(item for layer in self._layers(spec) for item in linear(*layer))

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        from torch import nn

        from sordino.local.models._torch import ACTIVATIONS, initialised

        layers = self._layers(spec)

        def make() -> nn.Module:
            parts: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
            for i, (name, inputs, outputs) in enumerate(layers, 1):
                parts[name] = nn.Linear(inputs, outputs)
                if i < len(layers):
                    parts[f"activation{i}"] = ACTIVATIONS[self.activation]()
            return nn.Sequential(parts)

        return initialised(make, seed)
