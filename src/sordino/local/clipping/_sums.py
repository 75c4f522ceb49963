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
from sordino.local.passes import Passes, smooth
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
    passes: Passes,
) -> Clipped:
    """The clipped sum over a batch, a chunk of examples at a time.

    Args:
        model: Whose trainable parameters the rows belong to.
        batch: Inputs and targets.
        gradients: The rows of a chunk.
        clip: How far, whose, and by which rule.
        groups: Person of each example, or None.
        passes: How examples go through the model.
    """
    checked(batch, clip, groups)
    sizes = {name: parameter.numel() for name, parameter in trainable(model).items()}
    total = _ClippedSum(sizes, clip)
    made = _records(model, batch, passes, gradients) if groups is None else _users(batch, groups, passes, gradients)
    for rows in made:
        total.add(rows)
    return Clipped(certify(total.vector.numpy(), unit=clip.unit, l2=clip.norm), total.nonfinite)


def passes_of(model: nn.Module, chunk: int | None, rows: int | None) -> Passes:
    """Passes whose gradients fit into memory: of `chunk` examples, or as many as the number of parameters allows."""
    numel = sum(parameter.numel() for parameter in trainable(model).values())
    return Passes(chunk or max(1, min(512, CHUNK_ENTRIES // max(1, numel))), rows or chunk, smooth(model))


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


def _records(
    model: nn.Module, batch: Batch, passes: Passes, gradients: Callable[[Tensor, Tensor], Rows]
) -> Iterator[Rows]:
    for part, real in passes.over(model, batch):
        yield [rows[:real] for rows in gradients(*part)]


def _users(batch: Batch, groups: Groups, passes: Passes, gradients: Callable[[Tensor, Tensor], Rows]) -> Iterator[Rows]:
    """Rows of mean gradients per person. Examples are put in order of person, so only one mean is ever unfinished."""
    _, person, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    order = torch.from_numpy(np.argsort(person, kind="stable")).to(batch[0].device)
    owner = torch.from_numpy(np.sort(person)).to(batch[0].device)
    weight = 1.0 / torch.from_numpy(counts).to(owner.device).double()
    unfinished: Rows | None = None
    first = 0  # the person of the unfinished mean
    for start in range(0, len(order), passes.size):
        rows = order[start : start + passes.size]
        members = owner[start : start + passes.size]
        made = [each[: len(rows)] for each in gradients(*passes.filled(batch[0][rows], batch[1][rows]))]
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
