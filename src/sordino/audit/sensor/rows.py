"""Sensor rows as a model and records: every canary is an ordinary record, and moves its own row of every layer."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.audit.sensor.world import Floats, World


class SensorRows(nn.Module):
    """L linear layers without bias, added up to one logit. All weights are zero at the start."""

    def __init__(self, rows: int, groups: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(rows, 1, bias=False) for _ in range(groups))
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor) -> Tensor:
        """The logit of each record, shape (records, 1)."""
        return torch.stack([layer(x) for layer in self.layers]).sum(0)


def records(world: World, lengths: Floats) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """One record per canary, of label 0: at weights near zero its loss has a gradient of the asked length.

    Args:
        world: The canaries.
        lengths: Length of each canary's gradient, shape (n,).

    Returns:
        Inputs of shape (n, m) and labels.
    """
    x = np.zeros((world.canaries, world.rows), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        # d loss / d logit is sigmoid(0) − 0 = ½, and the record's only entry goes through every layer.
        entries = (2 * lengths / world.groups**0.5).astype(np.float32)
    x[np.arange(world.canaries), world.canary_rows] = entries
    return x, np.zeros(world.canaries, np.int64)
