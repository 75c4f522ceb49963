"""Heavy-ball momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Vector
from sordino.federation.strategies import ServerState, Strategy, strategies


@strategies.register("momentum")
@dataclass(frozen=True)
class Momentum(Strategy):
    """m ← beta·m + mean;  model ← model + lr·decay^t · m.

    Args:
        lr: Server learning rate, > 0. A constant mean moves the model lr/(1 − beta) per round in the end.
        debias: Divide m by 1 − beta^(t+1), so that it does so from the first round: short runs waste no start.
        beta: Share of the memory that is kept, in [0, 1).
        decay: Factor on the learning rate per round, in (0, 1].

    Source:
        Hsu, Qi and Brown (2019), arXiv:1909.06335.
    """

    example: ClassVar = {"lr": 0.1, "beta": 0.9, "decay": 1.0}
    lr: float = 0.1
    beta: float = 0.9
    decay: float = 1.0
    debias: bool = False

    def __post_init__(self) -> None:
        checks.positive("strategy.momentum", lr=self.lr)
        checks.rate("strategy.momentum", decay=self.decay)
        if not 0 <= self.beta < 1:
            raise ConfigError.about("strategy.momentum", "must lie in [0, 1)", beta=self.beta)

    def init(self, model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model),))

    def step(self, state: ServerState, mean: Vector) -> ServerState:
        lr = np.float32(self.lr * self.decay**state.round)
        memory = np.float32(self.beta) * state.memory[0] + mean
        if self.debias:
            lr = lr / np.float32(1 - self.beta ** (state.round + 1))
        return ServerState(state.model + lr * memory, (memory,), state.round + 1)
