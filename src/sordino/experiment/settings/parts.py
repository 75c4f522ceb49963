"""Training some of the parameters: what an adapter asks for that alternates, or gives every silo a block of its own.

Only what is trained is clipped and noised; the rest of the vector stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import Group, Vector

if TYPE_CHECKING:
    import torch

    from sordino.local.layout import Layout


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the parameters, as a vector of their own.

    Args:
        whole: All parameters.
        layout: Those that are trained.
        rows: Their positions in the whole vector.
    """

    whole: Layout
    layout: Layout
    rows: NDArray[np.int64]

    @property
    def complete(self) -> bool:
        """Whether everything is trained."""
        return self.layout.size == self.whole.size

    def taken(self, vector: Vector) -> Vector:
        """The part of a whole vector."""
        return vector[self.rows]

    def spread(self, change: Vector) -> Vector:
        """A change of the part as one of the whole vector: nothing else moves."""
        if self.complete:
            return change
        result = np.zeros(self.whole.size, dtype=np.float32)
        result[self.rows] = change
        return result

    def stepped(self, before: Vector, after: Vector) -> Vector:
        """The model after a step whose memory, such as momentum, must not move what rests."""
        if self.complete:
            return after
        result = before.copy()
        result[self.rows] = after[self.rows]
        return result

    @contextmanager
    def trained(self, module: torch.nn.Module, vector: Vector) -> Iterator[None]:
        """The module at a whole vector, with everything outside the part frozen."""
        self.whole.restore(module, vector)
        names = {group.name for group in self.layout.groups}
        resting = [p for name, p in module.named_parameters() if p.requires_grad and name not in names]
        for parameter in resting:
            parameter.requires_grad = False
        try:
            yield
        finally:
            for parameter in resting:
                parameter.requires_grad = True


def part_of(whole: Layout, names: Collection[str]) -> Part:
    """The named parameters of a layout, in its order."""
    groups, shapes, rows, start = [], [], [], 0
    for group, shape in zip(whole.groups, whole.shapes, strict=True):
        if group.name in names:
            size = group.stop - group.start
            groups.append(Group(group.name, start, start + size))
            shapes.append(shape)
            rows.append(np.arange(group.start, group.stop))
            start += size
    layout = type(whole)(tuple(groups), tuple(shapes))
    return Part(whole, layout, np.concatenate(rows))
