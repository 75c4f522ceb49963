"""One loss per example, never a mean over the batch: what per-example clipping needs.

A loss is any function of outputs and targets that returns a vector, one entry per example, where no entry
depends on another example (`sordino.local.probe` checks it). Two classes have one logit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Loss: TypeAlias = Callable[[Any, Tensor], Tensor]
"""Outputs and targets of a batch to one loss per example, shape (batch,)."""

IGNORE = -100
"""The target of a position that does not count: padding."""


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy per example; over sequences the mean over each example's own positions.

    Args:
        logits: Shape (batch, outputs) or (batch, time, outputs); outputs is 1 for two classes.
        target: Class numbers, shape (batch,) or (batch, time); `IGNORE` marks padding.

    Returns:
        Shape (batch,). An example with padding only has loss 0.

    >>> cross_entropy(torch.zeros(2, 1), torch.tensor([0, 1]))
    tensor([0.6931, 0.6931])
    """
    counted = target != IGNORE
    if logits.shape[-1] == 1:
        label = target.clamp(min=0).to(logits.dtype)
        each = functional.binary_cross_entropy_with_logits(logits.squeeze(-1), label, reduction="none") * counted
    else:
        # Classes belong on axis 1 for torch; positions follow.
        each = functional.cross_entropy(logits.movedim(-1, 1), target.long(), reduction="none", ignore_index=IGNORE)
    axes = tuple(range(1, each.dim()))
    if not axes:
        return each
    return each.sum(axes) / counted.sum(axes).clamp(min=1)


def probabilities(logits: Tensor) -> Tensor:
    """Class probabilities in float64, shape (..., classes): two columns for a single logit.

    >>> probabilities(torch.zeros(1, 1)).tolist()
    [[0.5, 0.5]]
    """
    wide = logits.double()
    if wide.shape[-1] == 1:
        return torch.cat([torch.sigmoid(-wide), torch.sigmoid(wide)], dim=-1)
    return torch.softmax(wide, dim=-1)


def predict(logits: Tensor) -> Tensor:
    """The most probable class, shape (...)."""
    return (logits[..., 0] > 0).long() if logits.shape[-1] == 1 else logits.argmax(dim=-1)
