"""Which records go through a model at once: a choice of memory and speed, never of results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

POSITIONS = 2**10
"""Tokens in one pass."""

NUMBERS = 2**27
"""Numbers that a language model keeps for the backward pass: half a GB."""


def records_per_pass(model: nn.Module, x: Tensor, most: int) -> int:
    """Records in one pass: `most`, or as many texts as hold `POSITIONS` tokens and `NUMBERS` activations.

    Args:
        model: A language model says by its `numbers_per_token` what it keeps of each.
        x: The records; whole numbers are tokens.
        most: For other models, and for records that are no texts, > 0.
    """
    each: int | None = getattr(model, "numbers_per_token", None)
    if len(x) == 0 or x.is_floating_point() or each is None:
        return most
    positions = min(POSITIONS, NUMBERS // each)
    return max(1, min(most, positions // max(1, x[0].numel())))


def by_length(model: nn.Module, x: Tensor) -> Tensor:
    """Rows in an order that puts texts of like length into one pass, so that little padding is computed.

    Args:
        model: A language model says by its `padding` which token fills texts up; of others the order is kept.
        x: The records.
    """
    padding = _padding(model, x)
    if padding is None:
        return torch.arange(len(x), device=x.device)
    lengths = ((x != padding).flip(1).cumsum(1) > 0).sum(1)
    return torch.argsort(lengths, stable=True)


def _padding(model: nn.Module, x: Tensor) -> int | None:
    """The token that fills the records up, if they are texts of a model that says so."""
    padding: int | None = getattr(model, "padding", None)
    return None if x.is_floating_point() or x.dim() != 2 else padding


FEWEST = 4
"""Examples in one pass: torch computes one, two or three rows by other kernels than more."""


def likely(expected: float) -> int:
    """A public number of examples that few Poisson batches exceed: three standard deviations above the expected."""
    return max(FEWEST, math.ceil(expected + 3 * math.sqrt(expected)))


def smooth(model: nn.Module) -> bool:
    """Whether the last bits of a number stay last bits: a language model says so, of others it is not known."""
    return bool(getattr(model, "smooth", False))


@dataclass(frozen=True)
class Passes:
    """How a batch's examples go through a model.

    The last bits of an example's gradient depend on how many rows a pass has. Where a model is not smooth, a number at
    a kink (of a ReLU, say) may turn its last bit into a whole gradient: one example more or less could then move
    the others'. So passes of such a model have one public number of rows, filled up with examples that count for
    nothing.

    Args:
        step: Examples per pass at most.
        rows: A public number of examples that few batches exceed. Left out, passes are filled up to `FEWEST` only.
        smooth: The model has no kinks.
    """

    step: int
    rows: int | None
    smooth: bool

    def over(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Iterator[tuple[tuple[Tensor, Tensor], int]]:
        """Passes over a batch, texts of like length together, each with the number of examples that count."""
        x, y = batch
        if _padding(model, x) is not None:
            rows = by_length(model, x)
            x, y = x[rows], y[rows]
        for part in zip(torch.split(x, self.size), torch.split(y, self.size), strict=True):
            if len(part[0]):
                yield self.filled(*part), len(part[0])

    def filled(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The examples, and repeats of the last up to the public number."""
        size = 1 if self.smooth else FEWEST if self.rows is None else self.size
        if len(x) >= size:
            return x, y
        rows = torch.arange(size, device=x.device).clamp(max=len(x) - 1)
        return x[rows], y[rows]

    @property
    def size(self) -> int:
        """Examples per pass: the same public number in every one, unless the model is smooth."""
        return self.step if self.rows is None or self.smooth else max(1, min(self.step, self.rows))
