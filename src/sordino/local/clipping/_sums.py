"""Clipping and summing rows of per-example gradients, shared by the engines that make many rows at once.

    examples, in chunks ──gradients──► rows (one tensor per parameter) ──mean per user──► rows ──clip, add──► sum

Norms and sums are in float64: a gradient of 1e20 neither overflows nor swallows the other examples' share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from sordino.local.clipping._engine import Batch, Clip, Clipped, Groups, checked
from sordino.local.clipping._rules import factors, layers_of
from sordino.local.layout import trainable
from sordino.privacy.kernel import certify

Rows: TypeAlias = list[Tensor]
"""Per-example gradients: one tensor per parameter, shape (examples, numel)."""

CHUNK_ENTRIES = 2**21
"""Gradient entries held at once: measured fastest for the CNN, and 16 MiB at most in float64."""


def clipped(
    model: nn.Module,
    batch: Batch,
    gradients: Callable[[Tensor, Tensor], Rows],
    clip: Clip,
    groups: Groups,
    *,
    chunk: int | None,
) -> Clipped:
    """The clipped sum over a batch, a chunk of examples at a time.

    Args:
        model: Whose trainable parameters the rows belong to.
        batch: Inputs and targets.
        gradients: The rows of a chunk.
        clip: How far, whose, and by which rule.
        groups: Person of each example, or None.
        chunk: Examples per chunk; None to choose by the number of parameters.
    """
    checked(batch, clip, groups)
    sizes = {name: parameter.numel() for name, parameter in trainable(model).items()}
    step = chunk or max(1, min(512, CHUNK_ENTRIES // sum(sizes.values())))
    total = _ClippedSum(sizes, clip)
    chunks = _chunks(batch, step)
    for rows in _records(chunks, gradients) if groups is None else _users(batch, groups, step, gradients):
        total.add(rows)
    return Clipped(certify(total.vector.numpy(), unit=clip.unit, l2=clip.norm), total.nonfinite)


class _ClippedSum:
    """Adds rows, each scaled down to the norm; rows that are not finite count as zero."""

    def __init__(self, sizes: dict[str, int], clip: Clip) -> None:
        self.vector = torch.zeros(sum(sizes.values()), dtype=torch.float64)
        self.nonfinite = 0
        self._parts = torch.split(self.vector, list(sizes.values()))
        self._layers = layers_of(list(sizes))
        self._clip = clip

    def add(self, rows: Rows) -> None:
        """Clip and add some rows."""
        wide = [row.double() for row in rows]
        squares = torch.stack([torch.linalg.vector_norm(row, dim=1).square() for row in wide])
        shares, finite = factors(squares, self._layers, self._clip.norm, self._clip.rule)
        # Zero times infinity is not zero, so the entries go too.
        wide = [torch.where(finite[:, None], row, 0.0) if not finite.all() else row for row in wide]
        for part, row, share in zip(self._parts, wide, shares, strict=True):
            part.add_((share @ row).cpu())
        self.nonfinite += int((~finite).sum())


def paired(x: Tensor, y: Tensor) -> Batch:
    """The examples themselves, a lone one twice: the second is to count for nothing.

    torch computes a batch of one by other kernels than a batch of two. Their last bits differ, and where a ReLU is
    at its kink that is a whole gradient: one example would move another's.
    """
    return (x.repeat(2, *[1] * (x.dim() - 1)), y.repeat(2, *[1] * (y.dim() - 1))) if len(x) == 1 else (x, y)


def _chunks(batch: Batch, step: int) -> Iterator[Batch]:
    x, y = batch
    for start in range(0, len(x), step):
        yield x[start : start + step], y[start : start + step]


def _records(chunks: Iterator[Batch], gradients: Callable[[Tensor, Tensor], Rows]) -> Iterator[Rows]:
    for x, y in chunks:
        yield [rows[: len(x)] for rows in gradients(*paired(x, y))]


def _users(batch: Batch, groups: Groups, step: int, gradients: Callable[[Tensor, Tensor], Rows]) -> Iterator[Rows]:
    """Rows of mean gradients per person. Examples are put in order of person, so only one mean is ever unfinished."""
    _, person, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    order = torch.from_numpy(np.argsort(person, kind="stable")).to(batch[0].device)
    owner = torch.from_numpy(np.sort(person)).to(batch[0].device)
    weight = 1.0 / torch.from_numpy(counts).to(owner.device).double()
    unfinished: Rows | None = None
    first = 0  # the person of the unfinished mean
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        members = owner[start : start + step]
        made = [each[: len(rows)] for each in gradients(*paired(batch[0][rows], batch[1][rows]))]
        sums = _sums_of(made, members - first, weight[members])
        if unfinished is not None:
            for part, begun in zip(sums, unfinished, strict=True):
                part[0] += begun[0]
        yield [part[:-1] for part in sums]
        unfinished, first = [part[-1:] for part in sums], int(members[-1])
    if unfinished is not None:
        yield unfinished


def _sums_of(rows: Rows, member: Tensor, weight: Tensor) -> Rows:
    """Weighted sums of the rows of each member, shape (members, numel), float64."""
    people = int(member[-1]) + 1
    return [
        torch.zeros(people, row.shape[1], dtype=torch.float64, device=row.device).index_add_(
            0, member, row.double() * weight[:, None]
        )
        for row in rows
    ]
