"""How long each unit's gradient may stay: three rules, one bound.

flat        g · min(1, C / ‖g‖)                 one factor for the whole gradient
per_layer   g_l · min(1, C_l / ‖g_l‖)           every layer by itself, C_l = C / √L, so that Σ C_l² = C²
automatic   g · C / (‖g‖ + γ)                   every gradient brought near the norm: no clip to tune
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

Rule: TypeAlias = Literal["flat", "per_layer", "automatic"]
"""The name of a rule, as in `local.clipping`."""

STABILITY = 0.01
"""γ of automatic clipping: gradients much shorter than this stay short, so a solved example does not shout."""


def layers_of(names: Sequence[str]) -> list[int]:
    """The number of each parameter's layer: parameters of one module belong together.

    >>> layers_of(["conv.weight", "conv.bias", "head.weight"])
    [0, 0, 1]
    """
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name.rpartition(".")[0], len(numbers)) for name in names]


def factors(squares: Tensor, layers: Sequence[int], norm: Tensor | float, rule: Rule) -> tuple[Tensor, Tensor]:
    """What to multiply each unit's gradient by.

    Args:
        squares: Squared norm of each parameter's part, shape (parameters, units), float64.
        layers: Number of each parameter's layer.
        norm: The bound C, one for all or one per unit, > 0.
        rule: Which rule.

    Returns:
        Factors, shape (parameters, units): 0 for a unit that is not finite. And which units are finite.

    Guarantee:
        The scaled gradient of every unit has norm at most C. Flat: by definition. Automatic: ‖g‖ C/(‖g‖+γ) < C.
        Per layer: √(Σ C_l²) = C.

    Source: Bu et al. (2023), arXiv:2206.07136, automatic clipping (AUTO-S).
    """
    lengths = squares.sum(0).sqrt()
    finite = torch.isfinite(lengths)
    if rule == "per_layer":
        member = torch.tensor(layers, device=squares.device)
        count = int(member.max()) + 1
        each = torch.zeros(count, squares.shape[1], dtype=squares.dtype, device=squares.device)
        each = each.index_add_(0, member, squares).sqrt()
        kept = ((norm / count**0.5) / each).clamp(max=1.0)[member]
    elif rule == "automatic":
        kept = (norm / (lengths + STABILITY)).expand(squares.shape)
    else:
        kept = (norm / lengths).clamp(max=1.0).expand(squares.shape)
    return torch.where(finite, kept, 0.0), finite
