"""Adam, Yogi and Adagrad at the server: one step, three second moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Vector
from sordino.federation.strategies import ServerState, Strategy, strategies

SecondMoment: TypeAlias = Callable[[Vector, Vector, float], Vector]


def adam(v: Vector, square: Vector, beta: float) -> Vector:
    """Exponential mean of the squares."""
    return v + (square - v) * np.float32(1 - beta)


def yogi(v: Vector, square: Vector, beta: float) -> Vector:
    """Moves towards the square by a step of its size, whichever side it lies on."""
    step: Vector = np.sign(v - square) * square
    return v - step * np.float32(1 - beta)


def adagrad(v: Vector, square: Vector, beta: float) -> Vector:
    """Sum of the squares."""
    del beta
    return v + square


SECOND_MOMENTS: Final[dict[str, SecondMoment]] = {"adam": adam, "yogi": yogi, "adagrad": adagrad}


@strategies.register("adaptive")
@dataclass(frozen=True)
class Adaptive(Strategy):
    """model ← model + lr·m/(√v + tau), with m the mean of the means and v their second moment.

    Args:
        kind: Which second moment v is.
        lr: Server learning rate, > 0.
        beta1: Share of m that is kept, in [0, 1).
        beta2: Share of v that is kept, in [0, 1).
        tau: Adaptivity, > 0; v starts at tau².

    Source:
        Reddi et al. (2021), arXiv:2003.00295, algorithm 2.
    """

    example: ClassVar = {"kind": "adam", "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
    kind: Literal["adam", "yogi", "adagrad"] = "adam"
    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        checks.one_of("strategy.adaptive", SECOND_MOMENTS, kind=self.kind)
        checks.positive("strategy.adaptive", lr=self.lr, tau=self.tau)
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= beta < 1:
                raise ConfigError.about("strategy.adaptive", "must lie in [0, 1)", **{name: beta})

    def init(self, model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model), np.full_like(model, self.tau**2)))

    def step(self, state: ServerState, mean: Vector) -> ServerState:
        m, v = state.memory
        m = np.float32(self.beta1) * m + np.float32(1 - self.beta1) * mean
        v = SECOND_MOMENTS[self.kind](v, np.square(mean), self.beta2)
        change = np.float32(self.lr) * m / (np.sqrt(v) + np.float32(self.tau))
        return ServerState((state.model + change).astype(np.float32), (m, v), state.round + 1)
