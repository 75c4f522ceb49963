"""An engine whose clients may have started rounds ago: each has its own model, and old updates weigh less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import PrivacyError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Engine, Together, Work


@dataclass(frozen=True, eq=False)
class Starts:
    """Where the clients of a cohort start, that may have begun rounds ago.

    Args:
        versions: The round that each of them started in. Shape of the cohort.
        models: The models of those rounds but the current one.
        discount: Weight of an update of so many rounds' age, in (0, 1].
    """

    versions: NDArray[np.int64]
    models: Mapping[int, Vector]
    discount: Callable[[int], float]


@dataclass(frozen=True, eq=False)
class Delayed(Engine):
    """Hand every client the model and the round that it started from, and shrink what it sends by its age.

    What a client sends is clipped, or noised, before it is shrunk. The weight is a public number of at most 1, so the
    bound of an update holds after it as before.

    Args:
        inner: Carries the messages.
        starts: Where each client starts.

    Source:
        Nguyen et al. (2022), arXiv:2106.06639.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    inner: Engine
    starts: Starts

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        versions, models = self.starts.versions, {**self.starts.models, plan.round: model}
        for version in np.unique(versions).tolist():
            weight = weight_of(self.starts.discount, plan.round - version)
            announced = replace(plan, round=version)
            mine = cohort[versions == version]
            for update in self.inner.run(announced, mine, models[version], work, together):
                yield shrunk(update, weight)


def weight_of(discount: Callable[[int], float], age: int) -> float:
    """The weight of an update of so many rounds' age.

    Raises:
        PrivacyError: It lies outside (0, 1].
    """
    weight = discount(age)
    if not 0 < weight <= 1:
        raise PrivacyError.about(
            "staleness", "must lie in (0, 1]: a longer update moves the sum further than its bound", weight=weight
        )
    return weight


def shrunk(update: Update, weight: float) -> Update:
    """An update times its weight."""
    return replace(update, vector=(update.vector * weight).astype(update.vector.dtype))
