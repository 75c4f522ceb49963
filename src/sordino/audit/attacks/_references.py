"""What reference models tell of a record: their means with it and without it."""

from __future__ import annotations

import numpy as np

from sordino.audit.attacks._membership import Coins
from sordino.privacy.renyi import Floats

SMALLEST = 1e-12
"""No variance is smaller: scores are divided by it."""


def mean(values: Floats, chosen: Coins) -> Floats:
    """Each record's mean over the chosen models; over all chosen values where none was chosen for it.

    Args:
        values: Shape (models, N).
        chosen: Which count, shape (models, N).

    >>> mean(np.array([[1.0, 5.0], [3.0, 7.0]]), np.array([[True, False], [True, True]])).tolist()
    [2.0, 7.0]
    """
    counts = chosen.sum(axis=0)
    overall = values[chosen].mean() if chosen.any() else values.mean()
    return np.asarray(np.where(counts > 0, np.where(chosen, values, 0.0).sum(axis=0) / np.maximum(counts, 1), overall))


def variance(values: Floats, chosen: Coins, least: int) -> Floats:
    """Each record's variance over the chosen models; one variance for all records where any has fewer than `least`.

    Args:
        values: Shape (models, N).
        chosen: Which count, shape (models, N).
        least: Models from which a record's own variance is better than everybody's.

    >>> variance(np.array([[1.0, 5.0], [3.0, 7.0]]), np.ones((2, 2), bool), least=64).tolist()
    [2.0, 2.0]
    """
    counts = chosen.sum(axis=0)
    squares = np.where(chosen, np.square(values - mean(values, chosen)), 0.0).sum(axis=0)
    degrees = np.maximum(counts - 1, 0)
    if counts.min(initial=least) < least:
        squares, degrees = np.full(len(squares), squares.sum()), np.full(len(degrees), degrees.sum())
    return np.asarray(np.maximum(squares / np.maximum(degrees, 1), SMALLEST))
