"""Building blocks shared by the model files; imported by them only when a module is built."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sordino.core.seeds import stream

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "elu": nn.ELU, "tanh": nn.Tanh}


class Affine(nn.Module):
    """Values less a public constant, times another: nothing is learnt or released."""

    def __init__(self, shift: float, factor: float) -> None:
        super().__init__()
        self.shift, self.factor = shift, factor

    def forward(self, x: Tensor) -> Tensor:
        return x if (self.shift, self.factor) == (0, 1) else (x - self.shift) * self.factor


def rescaled(layer: nn.Module, scale: float) -> nn.Module:
    """A linear layer or convolution that starts as the same function, with parameters divided by `scale`.

    Clipped gradients and steps live in the stored parameters, so the function moves scale² times as far.
    """
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.div_(scale)
    return layer


def initialised(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module whose parameters come from the seed alone, and which leaves torch's global generator untouched.

    Weights and biases are uniform in ±1/√(fan in), embeddings standard normal: torch's own defaults.
    """
    with torch.device("meta"):
        module = make()
    module = module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(int(stream(seed, "init").integers(2**63)))
    with torch.no_grad():
        for part in module.modules():
            _draw(part, generator)
    return module


def _draw(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, nn.Embedding):
        part.weight.normal_(generator=generator)
    elif isinstance(part, (nn.Linear, nn.Conv2d)):
        bound = 1 / math.sqrt(part.weight[0].numel())
        for parameter in part.parameters(recurse=False):
            parameter.uniform_(-bound, bound, generator=generator)
