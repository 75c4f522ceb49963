"""The gradient that records would have given, differentiable in the records: many batches side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from sordino.audit.subjects.message import Batch, Message, Protection
from sordino.local.layout import trainable

Gradients: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Records (m, n, ...) and labels (m, n) of m batches to their mean gradients, shape (m, d), float64."""


def gradients_of(message: Message) -> Gradients:
    """The gradients of batches at the message's parameters, in the order of its vectors."""
    module = message.module
    free = {name: parameter.detach().double() for name, parameter in trainable(module).items()}
    rest = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    fixed = {name: _wide(value.detach()) for name, value in rest.items() if name not in free}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return message.loss(functional_call(module, {**fixed, **parameters}, (x,)), y).mean()

    each = vmap(grad(loss), in_dims=(None, 0, 0))

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        found = each(free, x, y)
        return torch.cat([found[group.name].reshape(len(x), -1) for group in message.layout.groups], dim=1)

    return gradients


def targets_of(message: Message, pairs: Sequence[tuple[Batch, Protection]]) -> tuple[Tensor, Tensor]:
    """What the receiver has of each message: its gradient, shape (m, d), and its labels, shape (m, n)."""
    gradients = np.stack([message.gradient(batch, protection) for batch, protection in pairs])
    return torch.from_numpy(gradients), torch.from_numpy(np.stack([batch.y for batch, _ in pairs]))


def _wide(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value
