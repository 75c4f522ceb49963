"""The most that any attack can achieve against a promise, to draw measured points under."""

from __future__ import annotations

from sordino.audit.promise import Promise
from sordino.privacy import tradeoff
from sordino.privacy.renyi import Floats
from sordino.privacy.tradeoff import AttackBounds


def ceiling(promise: Promise, fprs: Floats) -> Floats:
    """The largest true positive rate at each false positive rate that the promise's whole curve allows. Shapes (n,).

    >>> import numpy as np
    >>> from sordino.privacy import events
    >>> promise = Promise.declared([(events.gaussian(0.5), 1)], 1e-5, by="an example")
    >>> ceiling(promise, np.array([0.001, 0.01])).round(3)
    array([0.138, 0.372])
    """
    return tradeoff.true_positive_rates(promise.sequence, promise.delta, fprs, adjacency=promise.adjacency)


def bounds(promise: Promise) -> AttackBounds:
    """The largest area under the curve and balanced accuracy, and the rates that are reported.

    >>> from sordino.privacy import events
    >>> promise = Promise.declared([(events.gaussian(0.5), 1)], 1e-5, by="an example")
    >>> round(bounds(promise).auc, 3), round(bounds(promise).accuracy, 3)
    (0.921, 0.841)
    """
    return tradeoff.attack_bounds(promise.sequence, promise.delta, adjacency=promise.adjacency)
