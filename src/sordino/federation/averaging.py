"""The mean of the last iterates: free of privacy cost, and it averages much of the noise away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.core.types import RoundPlan, Vector


@dataclass(frozen=True)
class TailState:
    """The mean so far, of `count` iterates; before the tail begins, the latest iterate and 0.

    Args:
        mean: Shape (d,), float64.
        count: Iterates in the mean.
    """

    mean: NDArray[np.float64]
    count: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The state as named arrays, for a checkpoint."""
        return {"mean": self.mean, "count": np.array(self.count, np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> TailState:
        """The state of named arrays: the inverse of `to_arrays`."""
        return cls(arrays["mean"], int(arrays["count"]))


@dataclass(frozen=True)
class TailAverage:
    """The mean of the iterates of the last `share` of the rounds.

    Post-processing of released models on a public schedule, so it costs nothing. A run that stops before the
    tail begins has its latest iterate as result.

    Args:
        share: Share of the rounds that is averaged, in [0, 1]; rounded to whole rounds, at least the last one.

    Source:
        Polyak and Juditsky (1992) for the idea.
    """

    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError.about("averaging", "must lie in [0, 1]", share=self.share)

    def start(self, rounds: int) -> int:
        """The first round whose iterate counts."""
        return rounds - max(1, round(self.share * rounds))

    def init(self, model: Vector) -> TailState:
        """The state before the first round."""
        return TailState(model.astype(np.float64))

    def step(self, state: TailState, model: Vector, plan: RoundPlan) -> TailState:
        """The state after round `plan.round` has given `model`."""
        if plan.round < self.start(plan.rounds) or state.count == 0:
            return TailState(model.astype(np.float64), int(plan.round >= self.start(plan.rounds)))
        count = state.count + 1
        return TailState(state.mean + (model - state.mean) / count, count)

    def result(self, state: TailState) -> Vector:
        """The averaged model. Shape (d,), float32."""
        return state.mean.astype(np.float32)
