"""Which records go through a model at once: a choice of memory and speed, never of results."""

from __future__ import annotations

import torch
from torch import Tensor, nn

POSITIONS = 2**11
"""Tokens in one pass: their activations take some hundreds of MB in a small language model."""

LOGITS = 2**25
"""Logits in one pass, where every token has a vocabulary of them: 128 MB, kept three times over in training."""


def records_per_pass(model: nn.Module, x: Tensor, most: int) -> int:
    """Records in one pass: `most`, or as many texts as hold `POSITIONS` tokens and `LOGITS` logits.

    Args:
        model: A language model says by its `outputs_per_token` how many logits a token has.
        x: The records; whole numbers are tokens.
        most: For records that are no texts, > 0.
    """
    if len(x) == 0 or x.is_floating_point():
        return most
    positions = min(POSITIONS, LOGITS // getattr(model, "outputs_per_token", 1))
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
