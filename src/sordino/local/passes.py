"""Which records go through a model at once: a choice of memory and speed, never of results."""

from __future__ import annotations

import torch
from torch import Tensor, nn

POSITIONS = 2**11
"""Tokens in one pass."""

NUMBERS = 2**27
"""Numbers that a language model keeps for the backward pass: half a GB."""


def records_per_pass(model: nn.Module, x: Tensor, most: int) -> int:
    """Records in one pass: `most`, or as many texts as hold `POSITIONS` tokens and `NUMBERS` activations.

    Args:
        model: A language model says by its `numbers_per_token` what it keeps of each.
        x: The records; whole numbers are tokens.
        most: For records that are no texts, > 0.
    """
    if len(x) == 0 or x.is_floating_point():
        return most
    positions = min(POSITIONS, NUMBERS // getattr(model, "numbers_per_token", 1))
    return max(1, min(most, positions // max(1, x[0].numel())))


def by_length(model: nn.Module, x: Tensor) -> Tensor:
    """Rows in an order that puts texts of like length into one pass, so that little padding is computed.

    Args:
        model: A language model says by its `padding` which token fills texts up; of others the order is kept.
        x: The records.
    """
    padding = getattr(model, "padding", None)
    if padding is None or x.is_floating_point() or x.dim() != 2:
        return torch.arange(len(x), device=x.device)
    lengths = ((x != padding).flip(1).cumsum(1) > 0).sum(1)
    return torch.argsort(lengths, stable=True)
