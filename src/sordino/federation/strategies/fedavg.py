"""Add the mean change to the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.types import Vector
from sordino.federation.strategies import ServerState, Strategy, strategies


@strategies.register("fedavg")
@dataclass(frozen=True)
class FedAvg(Strategy):
    """model ← model + lr·decay^t · mean.

    Args:
        lr: Server learning rate, > 0; 1 is plain averaging.
        decay: Factor on the learning rate per round, in (0, 1].

    Source:
        McMahan et al. (2017), arXiv:1602.05629.
    """

    example: ClassVar = {"lr": 1.0, "decay": 1.0}
    lr: float = 1.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("strategy.fedavg", lr=self.lr)
        checks.rate("strategy.fedavg", decay=self.decay)

    def step(self, state: ServerState, mean: Vector) -> ServerState:
        lr = np.float32(self.lr * self.decay**state.round)
        return ServerState(state.model + lr * mean, (), state.round + 1)
