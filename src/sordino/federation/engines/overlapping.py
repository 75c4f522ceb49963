"""Rounds that overlap, over machines: clients begin when their model is there, and are asked when their buffer is full.

    version v ──► begin: train from v ───────────────┐ (other rounds go on)
    round r ≥ v ─────────────────────────► ask ──► the update, shrunk by its age r − v

Who is in which buffer is a public schedule, so whoever is done early waits. A client that could not be told to begin
begins when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Announced, Engine, Together, Work
from sordino.federation.engines.delayed import Starts, shrunk, weight_of
from sordino.federation.engines.flower import Flower
from sordino.privacy.permits import Line


@dataclass(frozen=True)
class Coming:
    """A later round, some of whose clients can work at their updates already.

    Args:
        plan: The round.
        versions: The round that each of them starts in, by client.
        lines: What the whole round charges.
    """

    plan: RoundPlan
    versions: Mapping[int, int]
    lines: Sequence[Line]


@dataclass(frozen=True, eq=False)
class Overlapping(Engine):
    """As `Delayed`, for clients in processes of their own, which work while other rounds are collected.

    Args:
        inner: Carries the letters.
        starts: Where each client starts.
        coming: The later rounds.

    Source:
        Nguyen et al. (2022), arXiv:2106.06639.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    inner: Flower
    starts: Starts
    coming: Sequence[Coming] = ()

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        del work, together  # every site has its own
        versions = dict(zip(cohort.tolist(), self.starts.versions.tolist(), strict=True))
        # First: a bad weight is found before anybody is asked for anything.
        weights = {client: weight_of(self.starts.discount, plan.round - v) for client, v in versions.items()}
        models = {**self.starts.models, plan.round: model}
        announced = {v: self.inner.starting(m) for v, m in models.items()}
        self._begin(announced)
        for client, update in self.inner.gathered(plan, {c: announced[version] for c, version in versions.items()}):
            yield shrunk(update, weights[client])

    def _begin(self, announced: Mapping[int, Announced]) -> None:
        written, letters = self.inner.correspondence, {}
        told: dict[str, tuple[RoundPlan, int]] = {}
        for coming in self.coming:
            for client, version in coming.versions.items():
                addressed = written.begin(coming.plan, client, announced[version], coming.lines)
                if addressed is not None:
                    address, letters[address] = addressed
                    told[address] = coming.plan, client
        reached = self.inner.post.send(letters, self.inner.timeout) if letters else ()
        for address in told.keys() - set(reached):
            written.unsent(*told[address])
