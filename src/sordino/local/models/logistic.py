"""Logistic regression."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sordino.local.models._registry import InputSpec, Shapes, linear, models

if TYPE_CHECKING:
    from torch import nn


@models.register("logistic")
@dataclass(frozen=True)
class Logistic:
    """Logistic regression: one linear layer, one logit for two classes.

    Args:
        init: `zeros` starts at the uniform prediction, `uniform` at small random weights.
    """

    example: ClassVar[dict[str, Any]] = {"init": "zeros"}
    init: Literal["zeros", "uniform"] = "zeros"

    def shapes(self, spec: InputSpec) -> Shapes:
        return linear("linear", math.prod(spec.shape), spec.outputs)

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        from torch import nn

        from sordino.local.models._torch import initialised

        layer = nn.Linear, math.prod(spec.shape), spec.outputs
        module = initialised(
            lambda: nn.Sequential(OrderedDict(flatten=nn.Flatten(), linear=layer[0](*layer[1:]))), seed
        )
        if self.init == "zeros":
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
        return module
