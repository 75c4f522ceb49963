"""Which layers book-keeping knows, and the parts that one call of each adds to its parameters' gradients.

Layers are known by exact type, since a subclass may compute anything; Hugging Face's RMSNorm classes and Conv1D by
their shape of name and attributes, since every architecture has its own. A wrong guess is found out before it counts:
the engine compares its sums with autograd's on first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight

from sordino.local.clipping._shares import Part, Rows, outer

Parts: TypeAlias = dict[str, Callable[[], Part]]
"""How to make the part of each of the layer's own parameters, by attribute name."""

Formula: TypeAlias = Callable[[Any, Tensor, Tensor], Parts]
"""Layer, input and output gradient of one call; the first axis counts examples."""

FILTER = 16
"""Weights of a filter from which on a depthwise convolution is the faster way to its gradient."""


def formula_of(layer: nn.Module) -> Formula | None:
    """How to book-keep a layer, or None."""
    kind = type(layer)
    if kind is nn.Embedding:
        table = cast("nn.Embedding", layer)
        return None if table.sparse or table.scale_grad_by_freq or table.max_norm is not None else _embedding
    if kind in (nn.Conv1d, nn.Conv2d):
        convolution = cast("nn.Conv2d", layer)
        plain = convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)
        return _convolution if plain else None
    if kind.__name__ == "Conv1D" and hasattr(layer, "nf"):
        return _transposed
    if kind.__name__.endswith("RMSNorm") and set(dict(layer.named_parameters(recurse=False))) == {"weight"}:
        return _rms_norm
    known: dict[type[nn.Module], Formula] = {nn.Linear: _linear, nn.LayerNorm: _layer_norm, nn.GroupNorm: _group_norm}
    return known.get(kind)


def parts_of(layer: nn.Module, formula: Formula, x: Tensor, g: Tensor) -> Parts:
    """The parts of one call. Products are in float32 at least, whatever autocast did."""
    if x.is_floating_point():
        x = _wide(x.to(g.dtype))  # what autocast multiplied by
    return formula(layer, x, _wide(g))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _positions(x: Tensor) -> Tensor:
    """Shape (examples, positions, width)."""
    return x.reshape(x.shape[0], -1, x.shape[-1])


def _linear(layer: nn.Linear, x: Tensor, g: Tensor) -> Parts:
    x, g = _positions(x), _positions(g)
    return {"weight": lambda: outer(g, x, layer.out_features), "bias": lambda: Rows(g.sum(1))}


def _transposed(_: Any, x: Tensor, g: Tensor) -> Parts:
    x, g = _positions(x), _positions(g)
    return {"weight": lambda: outer(x, g, x.shape[-1]), "bias": lambda: Rows(g.sum(1))}


def _embedding(layer: nn.Embedding, x: Tensor, g: Tensor) -> Parts:
    tokens, g = x.reshape(len(x), -1), _positions(g)
    if layer.padding_idx is not None:  # torch leaves this row without a gradient
        g = torch.where((tokens == layer.padding_idx)[:, :, None], 0.0, g)
    return {"weight": lambda: outer(tokens, g, layer.num_embeddings)}


def _layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> Parts:
    plain = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    return {
        "weight": lambda: _summed(plain * g, layer.weight.numel()),
        "bias": lambda: _summed(g, layer.weight.numel()),
    }


def _rms_norm(layer: Any, x: Tensor, g: Tensor) -> Parts:
    eps = getattr(layer, "variance_epsilon", getattr(layer, "eps", None))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    plain = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return {"weight": lambda: _summed(plain * g, layer.weight.numel())}


def _summed(each: Tensor, width: int) -> Rows:
    return Rows(each.reshape(len(each), -1, width).sum(1))


def _group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> Parts:
    plain = functional.group_norm(x, layer.num_groups, eps=layer.eps)
    return {"weight": lambda: Rows((plain * g).flatten(2).sum(2)), "bias": lambda: Rows(g.flatten(2).sum(2))}


def _convolution(layer: nn.Conv2d, x: Tensor, g: Tensor) -> Parts:
    """Per-example weight gradients, as the weight gradient of one convolution with a group per example."""
    if _is_depthwise(layer):
        return {"weight": lambda: _depthwise(layer, x, g), "bias": lambda: Rows(g.flatten(2).sum(2))}
    examples, shape = len(x), layer.weight.shape
    weight_of = conv2d_weight if isinstance(layer, nn.Conv2d) else conv1d_weight

    def weight() -> Part:
        rows: Tensor = weight_of(  # type: ignore[no-untyped-call]
            x.reshape(1, -1, *x.shape[2:]),
            (examples * shape[0], *shape[1:]),
            g.reshape(1, -1, *g.shape[2:]),
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=examples * layer.groups,
        )
        return Rows(rows.reshape(examples, -1)).measured()

    return {"weight": weight, "bias": lambda: Rows(g.flatten(2).sum(2))}


def _depthwise(layer: nn.Conv2d, x: Tensor, g: Tensor) -> Part:
    """The same for one input channel: each output channel's gradient, filtered by the example itself.

    Outputs are the batch and examples the channels of one depthwise convolution: half the time of groups that have
    one channel each. What comes out is turned round, because x moves over g and not g over x.
    """
    (high, wide), (above, beside) = layer.kernel_size, cast("tuple[int, int]", layer.padding)
    turned = functional.conv2d(g.transpose(0, 1), x, groups=len(x), padding=(high - 1 - above, wide - 1 - beside))
    return Rows(turned.flip(2, 3).transpose(0, 1).flatten(1)).measured()


def _is_depthwise(layer: nn.Conv2d) -> bool:
    """Whether `_depthwise` knows it, and is the faster way."""
    if not isinstance(layer, nn.Conv2d) or layer.in_channels > 1 or {*layer.stride, *layer.dilation} != {1}:
        return False
    padding = cast("tuple[int, int]", layer.padding)
    within = all(pad < size for pad, size in zip(padding, layer.kernel_size, strict=True))
    return within and math.prod(layer.kernel_size) >= FILTER
