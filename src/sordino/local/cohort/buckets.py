"""Clients of like size together, and their records side by side: padded, with a mask.

client 0   r r r r r r r      order of rows: example first, client second,
client 1   r r r r r r .      so that a grouped convolution needs no copy
client 2   r r r r . . .
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sordino.local.passes import FEWEST
from sordino.local.trainers._data import Data

ENTRIES = 2**20
"""Parameters of all clients of a bucket: 4 MiB for each copy in float32."""

ROWS = 2**10
"""Records of one step of all clients of a bucket: what their activations are allowed to take."""


@dataclass(frozen=True)
class Member:
    """One client of a cohort.

    Args:
        records: How many it holds.
        load: Its records, copied out when they are needed.
    """

    records: int
    load: Callable[[], Data]


def buckets(sizes: Sequence[int], batch_size: int | None, parameters: int) -> Iterator[list[int]]:
    """The cohort's positions in buckets: largest clients first, none less than half as large as its bucket's first.

    Args:
        sizes: Records of each client.
        batch_size: Records per step; None for all of a client's.
        parameters: Length of the flat vector.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    while order:
        largest = sizes[order[0]]
        rows = max(1, largest if batch_size is None else min(batch_size, largest))
        room = max(1, min(ENTRIES // parameters, ROWS // rows))
        fits = [i for i in order[:room] if 2 * sizes[i] >= largest]
        yield fits
        order = order[len(fits) :]


@dataclass(frozen=True)
class Padded:
    """One step's records of some clients.

    Args:
        x: Shape (examples, clients, ...), zero where there is no record.
        y: Shape (examples, clients, ...), zero likewise.
        present: Which are records, shape (examples, clients), bool.
    """

    x: Tensor
    y: Tensor
    present: Tensor

    @property
    def weights(self) -> Tensor:
        """What makes a weighted sum of losses each client's own mean, shape (examples, clients)."""
        counts = self.present.sum(0).clamp(min=1)
        return self.present / counts


def padded(
    datas: Sequence[Data], rows: Sequence[NDArray[np.int64]], device: torch.device, least: int = FEWEST
) -> Padded:
    """The chosen rows of every client side by side, `least` at least: a public number that few batches exceed."""
    longest = max(least, *(len(each) for each in rows))
    present = np.zeros((longest, len(rows)), dtype=bool)
    sides = []
    for side in ([data[0] for data in datas], [data[1] for data in datas]):
        first = side[0]
        kind = np.float32 if np.issubdtype(first.dtype, np.floating) else np.int64
        filled = np.zeros((longest, len(rows), *first.shape[1:]), dtype=kind)
        for i, (values, each) in enumerate(zip(side, rows, strict=True)):
            filled[: len(each), i] = values[each]
            present[: len(each), i] = True
        sides.append(torch.from_numpy(filled).to(device))
    return Padded(sides[0], sides[1], torch.from_numpy(present).to(device))
