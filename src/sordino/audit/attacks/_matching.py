"""Searches for records whose gradient matches a message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sordino.audit.attacks._gradients import gradients_of, targets_of
from sordino.audit.subjects.message import Batch, Content, Message, Protection
from sordino.core.seeds import stream

Record = NDArray[np.float64]


def by_distance(message: Message, batch: Batch, protection: Protection, steps: int) -> Record:
    """Records of the shape of a batch that L-BFGS brings near its message in squared distance."""
    gradients = gradients_of(message)
    target, y = targets_of(message, [(batch, protection)])
    x = _start(message, (1, *batch.x.shape), "dlg").requires_grad_()
    size = target.square().sum().clamp(min=1e-30)
    optimizer = torch.optim.LBFGS([x], max_iter=steps, history_size=50, line_search_fn="strong_wolfe", tolerance_grad=0)
    best: list[tuple[float, Tensor]] = []

    def distance() -> Tensor:
        value = (gradients(x, y) - target).square().sum() / size
        (x.grad,) = torch.autograd.grad(value, x)
        value = value.detach()
        if torch.isfinite(value) and (not best or float(value) < best[0][0]):
            best[:] = [(float(value), x.detach().clone())]
        return value

    optimizer.step(distance)  # type: ignore[no-untyped-call]  # torch's own decorator
    return best[0][1][0].numpy() if best else x.detach()[0].numpy()


def by_direction(
    message: Message, pairs: Sequence[tuple[Batch, Protection]], steps: int, lr: float, smoothness: float
) -> list[Record]:
    """Records of the shapes of the batches, each from its message alone, by signed Adam within the box."""
    gradients = gradients_of(message)
    target, y = targets_of(message, pairs)
    # The same start for all: what differs between protections is then the message only.
    start = _start(message, (1, *pairs[0][0].x.shape), "cosine_tv")
    x = start.repeat(len(pairs), *[1] * (start.dim() - 1)).requires_grad_()
    optimizer = torch.optim.Adam([x], lr=lr)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps * part // 8 for part in (3, 5, 7)])
    for _ in range(steps):
        apart = 1 - torch.cosine_similarity(gradients(x, y), target, dim=1)
        rough = _variation(x) if message.content is Content.IMAGE else x.new_zeros(len(x))
        (slope,) = torch.autograd.grad((apart + smoothness * rough).sum(), x)
        x.grad = slope.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            x.clamp_(*message.box)
    return [found.numpy() for found in x.detach()]


def _start(message: Message, shape: tuple[int, ...], purpose: str) -> Tensor:
    low, high = message.box
    return torch.from_numpy(stream(0, purpose).uniform(low, high, size=shape))


def _variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels, one number per batch."""
    axes = tuple(range(1, x.dim()))
    return x.diff(dim=-1).abs().mean(axes) + x.diff(dim=-2).abs().mean(axes)
