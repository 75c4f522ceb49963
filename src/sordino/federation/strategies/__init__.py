"""Pure steps from the server's state and a released mean to its next state. All of it is post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.core import registry
from sordino.core.types import Vector


@dataclass(frozen=True)
class ServerState:
    """Where the server stands after a number of rounds. Released: it may be shown and stored.

    Args:
        model: The flat vector of trainable parameters. Shape (d,), float32.
        memory: What the strategy remembers, each of shape (d,), float32.
        round: Rounds done.
    """

    model: Vector
    memory: tuple[Vector, ...] = ()
    round: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The state as named arrays, for a checkpoint."""
        memory = {f"memory.{i}": array for i, array in enumerate(self.memory)}
        return {"model": self.model, "round": np.array(self.round, np.int64), **memory}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ServerState:
        """The state of named arrays: the inverse of `to_arrays`."""
        count = sum(name.startswith("memory.") for name in arrays)
        memory = tuple(arrays[f"memory.{i}"] for i in range(count))
        return cls(arrays["model"], memory, int(arrays["round"]))


class Strategy(Protocol):
    """How a released mean moves the model. A mean of zero changes only the memory, once the memory is zero."""

    example: ClassVar[Mapping[str, Any]]

    def init(self, model: Vector) -> ServerState:
        """The state before the first round."""
        return ServerState(model)

    def step(self, state: ServerState, mean: Vector) -> ServerState:
        """The state after one round.

        Args:
            state: The state before.
            mean: The released sum over the public expected cohort. Shape (d,).
        """
        ...


strategies: registry.Registry[Strategy] = registry.Registry("strategy")

registry.load(__name__, __path__)
