"""The membership game: K models, each trained on a random half of a pool of records.

Every record is in by a fair coin of its own, in every model anew. The first T models are the targets; the rest are
references, whose coins the attacker threw.

Source: Carlini et al. (2022), arXiv:2112.03570.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Progress
from sordino.audit.subjects.records import Records
from sordino.core.seeds import stream
from sordino.privacy.renyi import Floats

Coins = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Game:
    """K trained models, and how well each knows every record.

    Args:
        targets: T; the models after them are references.
        models: Shape (K, d).
        included: Who was in, shape (K, N).
        log_p: Log-probability of each record's label, shape (K, N).
        log_odds: The same, less the log-probability of all other labels, shape (K, N).
        outside: Log-probability of the label of records that nobody trained on, shape (K, Z).
    """

    targets: int
    models: NDArray[np.float32]
    included: Coins
    log_p: Floats
    log_odds: Floats
    outside: Floats

    @property
    def coins(self) -> Coins:
        """The targets' coins, shape (T, N): the secret."""
        return self.included[: self.targets]

    @property
    def known(self) -> Coins:
        """The references' coins, shape (K − T, N)."""
        return self.included[self.targets :]


def play(subject: Records, targets: int, references: int, progress: Progress) -> Game:
    """Throw the coins, train the models, and ask them about every record."""
    count = targets + references
    included = stream(subject.seed, "membership").random((count, len(subject.y))) < 0.5
    models = subject.train(included, subject.seed, progress)
    progress(f"scoring {len(subject.y)} records by {count} models")
    log_p, log_odds = of_label(subject.log_probabilities(models, subject.x), subject.y)
    x, y = subject.population
    outside = of_label(subject.log_probabilities(models, x), y)[0] if len(y) else np.empty((count, 0))
    return Game(targets, models, included, log_p, log_odds, outside)


def of_label(log_probabilities: Floats, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Each record's log p and log p − log (1 − p) of its label, where 1 − p is summed over the other classes.

    Args:
        log_probabilities: Shape (K, n, classes).
        y: Shape (n,).

    >>> log_p, odds = of_label(np.log([[[0.25, 0.75]]]), np.array([1]))
    >>> round(float(np.exp(log_p[0, 0])), 2), round(float(np.exp(odds[0, 0])), 2)
    (0.75, 3.0)
    """
    at = np.broadcast_to(y[None, :, None], (*log_probabilities.shape[:2], 1))
    own = np.take_along_axis(log_probabilities, at, axis=2)
    others = np.array(log_probabilities)
    np.put_along_axis(others, at, -np.inf, axis=2)
    odds = own[..., 0] - np.logaddexp.reduce(others, axis=2)
    return own[..., 0], odds
