"""Federated rounds that take crafted clients beside the run's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.core.types import Vector

if TYPE_CHECKING:
    from sordino.privacy.events import Event

Floats: TypeAlias = NDArray[np.floating[Any]]


class Clients(Protocol):
    """One round of a run's aggregation, which can be driven again and again.

    Everybody takes part in a driven round: what is tested is the release, not the sampling of clients.
    """

    @property
    def promise(self) -> Promise | None:
        """What the run claims for one client, or None."""
        ...

    @property
    def size(self) -> int:
        """Length d of what a client sends and of what is released."""
        ...

    @property
    def noise_multiplier(self) -> float:
        """The run's noise over how far one client moves the sum."""
        ...

    @property
    def seed(self) -> int:
        """Of the attack's own choices."""
        ...

    @property
    def public(self) -> bool:
        """The run's own clients hold published records: figures on their rounds may leave them."""
        ...

    def event(self, noise_multiplier: float) -> Event:
        """What one round costs a client that takes part, at a noise multiplier."""
        ...

    def sent(self, updates: Floats) -> Floats:
        """What clients with these changes of the model send, after the run's own stages. Shapes (k, d)."""
        ...

    def released(self, crafted: Sequence[Floats], noise_multiplier: float, seed: int) -> Iterator[Vector]:
        """What rounds release, one after another, each anew.

        Args:
            crafted: For each round the changes of the crafted clients that join the run's own, shape (k, d) each.
            noise_multiplier: As it would be declared.
            seed: Of the noise: a test's, never a run's.

        Returns:
            The released vectors, shape (d,) each.
        """
        ...

    def held_out(self) -> Floats:
        """Changes of clients that do not take part in driven rounds, shape (j, d). Private; never released."""
        ...

    def gradient(self, avoid: Floats, seed: int) -> Vector:
        """The gradient of one crafted record that is as orthogonal as can be to some vectors.

        Args:
            avoid: Shape (j, d).
            seed: Of the record it starts from.

        Returns:
            Shape (d,), of length 1.
        """
        ...
