"""What attacks on records are given: a training that can be repeated on chosen records, and the records themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise


class Records(Protocol):
    """A pool of N records, each of which may have been trained on, and the training.

    The attacker knows the records, the labels and the training; what is asked is only who was in. Where a promise is
    made, `train` must keep to its terms: the noise, the rates and the number of releases that its events say, and
    divisors that are the same whoever was in.
    """

    @property
    def promise(self) -> Promise | None:
        """What is promised to each record of the pool, or None."""
        ...

    @property
    def x(self) -> NDArray[Any]:
        """The pool's inputs, shape (N, ...)."""
        ...

    @property
    def y(self) -> NDArray[np.int64]:
        """Its labels, shape (N,)."""
        ...

    @property
    def population(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Inputs and labels of like records that no training ever saw. There may be none."""
        ...

    @property
    def flagged(self) -> NDArray[np.bool_] | None:
        """Records of special interest, such as wrongly labelled ones, shape (N,); None where nobody knows any."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of x, for tables; else empty."""
        ...

    @property
    def public(self) -> bool:
        """Published records: figures on them may leave the silo."""
        ...

    @property
    def seed(self) -> int:
        """Of the attacker's coins."""
        ...

    def train(self, included: NDArray[np.bool_], seed: int, progress: Callable[[str], None]) -> NDArray[np.float32]:
        """One training per row of `included`, each with noise of its own.

        Args:
            included: Which records each model sees, shape (K, N).
            seed: Of shuffles, batches and noise.
            progress: Told what is being done.

        Returns:
            The models, shape (K, d).
        """
        ...

    def log_probabilities(self, models: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.float64]:
        """Log-probabilities of the classes, in float64, shape (K, n, classes).

        Args:
            models: Shape (K, d).
            x: Records, shape (n, ...).
        """
        ...
