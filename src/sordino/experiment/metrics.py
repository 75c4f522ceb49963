"""How good a model is, per client and pooled. Computed beside the data; whether it may be shown is typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import Vector
from sordino.data import pooled
from sordino.experiment.settings import Setup
from sordino.local import evaluate


@dataclass(frozen=True)
class Metrics:
    """A model's figures on held-out records.

    Args:
        accuracy: Share of right labels, over all clients' test records.
        auc: Area under the ROC curve, pooled; two classes only.
        within: Mean of the clients' own AUCs weighted by their test records, where a client has both classes.
        visibility: `public` for published research data; else `local`: for the eyes of this machine only.
        loss: Mean loss in nats per counted token; language models that continue texts only.
    """

    accuracy: float
    auc: float | None
    within: float | None
    visibility: str
    loss: float | None = None

    def to_plain(self) -> dict[str, Any]:
        """JSON-able, without the figures that do not exist."""
        values = {"accuracy": self.accuracy, "auc": self.auc, "within_client_auc": self.within, "loss": self.loss}
        return {k: round(v, 6) for k, v in values.items() if v is not None} | {"visibility": self.visibility}


def figures(setup: Setup, model: Vector) -> dict[str, Any] | None:
    """What a run's summary says of a model; None at a coordinator, whose sites keep held-out records and figures."""
    return None if setup.population.test.elsewhere else metrics(setup, model).to_plain()


def metrics(setup: Setup, model: Vector) -> Metrics:
    """Figures of a flat model on the test parts.

    Raises:
        ConfigError: They are elsewhere.
    """
    test, classes = setup.population.test, setup.population.spec.classes
    setup.layout.restore(setup.module, model)
    x, y = pooled(test)
    visibility = "public" if setup.population.public else "local"
    if setup.population.spec.per_position:
        loss, accuracy = evaluate.continued(setup.module, x, y)
        return Metrics(accuracy, None, None, visibility, loss)
    scores = evaluate.scores(setup.module, x)
    return Metrics(
        accuracy=evaluate.accuracy(scores, y),
        auc=evaluate.auc(scores, y) if classes == 2 else None,
        within=_within(scores, y, test.sizes) if classes == 2 else None,
        visibility=visibility,
    )


def _within(scores: NDArray[np.float64], y: NDArray[np.int64], sizes: Sequence[int]) -> float | None:
    edges = np.cumsum([0, *sizes])
    own = [evaluate.auc(scores[a:b], y[a:b]) for a, b in pairwise(edges)]
    known = [(value, size) for value, size in zip(own, sizes, strict=True) if value is not None]
    if not known:
        return None
    values, weights = zip(*known, strict=True)
    return float(np.average(values, weights=weights))
