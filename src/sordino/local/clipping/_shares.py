"""What one parameter adds to each example's squared norm and to the clipped sum, without the per-example gradients.

A linear map with inputs x and output gradients g has the per-example gradient Σ_t g_t x_tᵀ. Its squared norm is
|x|²|g|² for a single position and Σ_{t,t'} (x_t·x_t')(g_t·g_t') for many; the clipped sum is one weighted product.

Source: Bu et al. (2023), arXiv:2210.00038, book-keeping; Li et al. (2022), arXiv:2110.05679, the norm of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from sordino.local.clipping._engine import Unsupported

Use: TypeAlias = tuple[nn.Module, Tensor, Tensor]
"""A layer, the input of one call, and the gradient of its output; the first axis counts examples."""


@dataclass(frozen=True)
class Share:
    """One parameter's part.

    Args:
        squares: Squared norm of each example's gradient, shape (examples,), float64.
        total: Weights per example to the weighted sum, shape (numel,), float64.
    """

    squares: Tensor
    total: Callable[[Tensor], Tensor]


def supported(layer: nn.Module) -> bool:
    """Whether shares of this layer's parameters are known. By exact type: a subclass may compute anything."""
    if type(layer) is nn.Embedding:
        return not (layer.sparse or layer.scale_grad_by_freq or layer.max_norm or layer.padding_idx is not None)
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return type(layer) is nn.Linear


def weight_share(uses: list[Use]) -> Share:
    """The share of a weight over all calls of the layers that hold it."""
    kinds = {type(layer) for layer, _, _ in uses}
    if len(kinds) > 1:
        raise Unsupported.about("engine.bookkeeping", "a weight is shared by layers of two kinds")
    if kinds == {nn.Conv2d}:
        return _of_rows(sum((_convolution(*use) for use in uses[1:]), start=_convolution(*uses[0])))
    g = torch.cat([_positions(gradient) for _, _, gradient in uses], dim=1)
    if kinds == {nn.Embedding}:
        rows = cast("nn.Embedding", uses[0][0]).num_embeddings
        return _embedding(torch.cat([x.flatten(1) for _, x, _ in uses], dim=1), g, rows)
    return _linear(torch.cat([_positions(x) for _, x, _ in uses], dim=1), g)


def bias_share(uses: list[Use]) -> Share:
    """The share of a bias: the sum of the output gradients over positions."""
    parts = [g.flatten(2).sum(2) if isinstance(layer, nn.Conv2d) else _positions(g).sum(1) for layer, _, g in uses]
    return _of_rows(sum(parts[1:], start=parts[0]))


def _positions(x: Tensor) -> Tensor:
    """Shape (examples, positions, width)."""
    return x.reshape(x.shape[0], -1, x.shape[-1])


def _of_rows(rows: Tensor) -> Share:
    """The share of gradients that are at hand, shape (examples, numel)."""
    wide = rows.double()
    squares = torch.linalg.vector_norm(wide, dim=1).square()
    return Share(squares, lambda weights: weights @ torch.where(weights[:, None] > 0, wide, 0.0))


def _slack(lengths: Tensor) -> Tensor:
    """What rounding can hide when positions of these lengths cancel: a norm may be too large, never too small."""
    return 1e-12 * lengths.sum(1).square()


def _linear(x: Tensor, g: Tensor) -> Share:
    positions, width, outputs = x.shape[1], x.shape[2], g.shape[2]
    if positions > 1 and width * outputs < 2 * positions**2:  # a small weight: whole gradients are cheaper
        return _of_rows(torch.bmm(g.transpose(1, 2), x).flatten(1))
    x, g = x.double(), g.double()
    if positions == 1:
        squares = x.square().sum((1, 2)) * g.square().sum((1, 2))
    else:
        products = torch.bmm(x, x.transpose(1, 2)) * torch.bmm(g, g.transpose(1, 2))
        squares = products.sum((1, 2)) + _slack(torch.linalg.vector_norm(x, dim=2) * torch.linalg.vector_norm(g, dim=2))

    def total(weights: Tensor) -> Tensor:
        kept = weights[:, None, None] > 0  # zero times infinity is not zero
        weighted = torch.where(kept, g * weights[:, None, None], 0.0)
        return (weighted.flatten(0, 1).T @ torch.where(kept, x, 0.0).flatten(0, 1)).flatten()

    return Share(squares, total)


def _embedding(tokens: Tensor, g: Tensor, rows: int) -> Share:
    g = g.double()
    same = tokens[:, :, None] == tokens[:, None, :]
    products = torch.where(same, torch.bmm(g, g.transpose(1, 2)), 0.0)
    squares = products.sum((1, 2)) + _slack(torch.linalg.vector_norm(g, dim=2))

    def total(weights: Tensor) -> Tensor:
        weighted = torch.where(weights[:, None, None] > 0, g * weights[:, None, None], 0.0)
        table = torch.zeros(rows, g.shape[2], dtype=torch.float64, device=g.device)
        return table.index_add_(0, tokens.flatten(), weighted.flatten(0, 1)).flatten()

    return Share(squares, total)


def _convolution(layer: nn.Module, x: Tensor, g: Tensor) -> Tensor:
    """Per-example weight gradients, as the weight gradient of one convolution with a group per example."""
    convolution = cast("nn.Conv2d", layer)
    examples, shape = x.shape[0], convolution.weight.shape
    rows: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        x.reshape(1, -1, *x.shape[2:]),
        (examples * shape[0], *shape[1:]),
        g.reshape(1, -1, *g.shape[2:]),
        stride=convolution.stride,
        padding=cast("tuple[int, int]", convolution.padding),
        dilation=convolution.dilation,
        groups=examples * convolution.groups,
    )
    return rows.reshape(examples, -1)
