"""A record whose gradient is long and orthogonal to what others send: it can be heard in a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.audit.subjects.clients import Floats
from sordino.core.types import Vector
from sordino.local.layout import trainable
from sordino.local.losses import cross_entropy

STEPS, RATE = 30, 0.05
"""Of the search in the space of inputs, where inputs are numbers."""


def crafted_gradient(module: nn.Module, x: NDArray[Any], y: NDArray[Any], avoid: Floats) -> Vector:
    """The gradient of one crafted record, of length 1, shape (d,).

    The best of the candidates is taken; where inputs are numbers it is improved by descent on the squared cosines with
    what is to be avoided.

    Args:
        module: With its parameters in place.
        x: Candidates, shape (n, ...).
        y: Their labels.
        avoid: Vectors that the gradient is to be orthogonal to, shape (j, d).

    Source: Maddock, Sablayrolles and Stock (2023), arXiv:2210.02912: the canary's design loss.
    """
    others = torch.from_numpy(_directions(avoid))
    real = np.issubdtype(x.dtype, np.floating)
    inputs, targets = torch.from_numpy(x.astype(np.float32 if real else np.int64)), torch.from_numpy(y)
    overlaps = [
        float(_overlap(_gradient(module, inputs[i : i + 1], targets[i : i + 1]), others)) for i in range(len(y))
    ]
    best = int(np.argmin(overlaps))
    record, target = inputs[best : best + 1].clone(), targets[best : best + 1]
    if real:
        record = _improved(module, record, target, others)
    gradient = _gradient(module, record, target).detach().double().numpy()
    length = float(np.linalg.norm(gradient))
    return (gradient / (length if length > 0 else 1.0)).astype(np.float32)


def _improved(module: nn.Module, record: Tensor, target: Tensor, others: Tensor) -> Tensor:
    """Descent; the best record that was met, so never worse than the first."""
    record = record.requires_grad_()
    optimiser = torch.optim.Adam([record], lr=RATE)
    best, least = record.detach().clone(), np.inf
    for _ in range(STEPS):
        overlap = _overlap(_gradient(module, record, target, create_graph=True), others)
        found = float(overlap.detach())
        if found < least:
            best, least = record.detach().clone(), found
        optimiser.zero_grad()
        record.grad = torch.autograd.grad(overlap, record)[0]
        optimiser.step()
    return best


def _overlap(gradient: Tensor, others: Tensor) -> Tensor:
    """Sum of squared cosines, and a penalty on gradients that vanish."""
    length = gradient.norm()
    cosines: Tensor = (others @ gradient) / (length + 1e-12)
    overlap: Tensor = cosines.square().sum() + 1e-6 / (length + 1e-12)
    return overlap


def _gradient(module: nn.Module, x: Tensor, y: Tensor, *, create_graph: bool = False) -> Tensor:
    """The flat gradient of one record's loss."""
    parameters = list(trainable(module).values())
    loss = cross_entropy(module(x), y).sum()
    found = torch.autograd.grad(loss, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True)
    return torch.cat([part.reshape(-1) for part in found])


def _directions(vectors: Floats) -> NDArray[np.float32]:
    """Each vector at length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
