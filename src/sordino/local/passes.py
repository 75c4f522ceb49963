"""How many records go through a model at once: a choice of memory and speed, never of results."""

from __future__ import annotations

from torch import Tensor

POSITIONS = 2**11
"""Tokens in one pass in training: activations and logits of a language model stay below a few GB."""


def records_per_pass(x: Tensor, most: int) -> int:
    """Records in one pass: `most`, or as many texts as hold `POSITIONS` tokens.

    Args:
        x: The records; whole numbers are tokens.
        most: For records that are no texts, > 0.
    """
    if len(x) == 0 or x.is_floating_point():
        return most
    return max(1, min(most, POSITIONS // max(1, x[0].numel())))
