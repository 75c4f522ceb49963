"""Rounds of whoever is done: silos with noise of their own send at their own pace, and nobody waits for the slowest.

    free silo ──► the newest model ──► trains, as long as it takes ──► its update, charged by itself
                                                                          │ the first `size` of them make a round
    free again once its update is in a model ◄────────────────────────────┘ older ones weigh less

What a silo sends is released before it leaves, so whose updates share a round is post-processing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, SordinoError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Announced, Engine, Together, Work
from sordino.federation.engines.delayed import shrunk, weight_of
from sordino.federation.engines.flower import Flower
from sordino.federation.post import Letter, Mail
from sordino.privacy.permits import Line

LOOK_S = 15.0
"""How often a round that nobody adds to looks for silos that are back, in seconds."""


@dataclass(frozen=True)
class Brought:
    """An answer that holds.

    Args:
        silo: Whose.
        vector: The update. Shape (d,). None: it was charged and lost in a crash, and takes its place in a round.
        grant: The silo's consent to its charge.
    """

    silo: str
    vector: Vector | None
    grant: str


@dataclass(frozen=True)
class Pace:
    """How a run's rounds come about.

    Args:
        models: The models of versions that silos still work from, but the newest.
        size: Updates that make a round.
        discount: Weight of an update of so many rounds' age, in (0, 1].
        lines: What an update of a client charges.
    """

    models: Mapping[int, Vector]
    size: int
    discount: Callable[[int], float]
    lines: Callable[[int], Sequence[Line]]


class Desk(Protocol):
    """What is written to silos that work at their own pace, and what of theirs has come."""

    def due(
        self, plan: RoundPlan, size: int, starts: Callable[[int], Announced], lines: Callable[[int], Sequence[Line]]
    ) -> Mapping[str, Letter]:
        """Letters to silos that may begin now, and to those at work that have to be told again.

        Args:
            plan: The round.
            size: Updates that make a round.
            starts: What a version announces.
            lines: What an update of a client charges.
        """
        ...

    def brought(self, plan: RoundPlan, address: str, asked: Letter, answer: Letter, width: int) -> Brought | None:
        """What an answer to a letter brings; None if nobody waits for it any more.

        Raises:
            SordinoError: Nothing, or it does not hold.
        """
        ...

    def keep(self, brought: Brought) -> None:
        """Keep it, durably: from now on it is in a round.

        Raises:
            PrivacyError: The run was taken over by another process.
        """
        ...

    def silent(self, address: str, why: str) -> None:
        """Nothing comes of what a silo was asked: it has to join again."""
        ...

    def come(self, first: int, last: int) -> Sequence[tuple[int, Vector | None]]:
        """What was kept, in that order, from one number to before another: version and vector; None for a lost one."""
        ...

    def at_work(self) -> frozenset[int]:
        """The versions that silos work from."""
        ...

    def welcome_back(self) -> None:
        """Let silos that are back join."""
        ...


@dataclass(frozen=True)
class FirstCome(Flower):
    """Every free silo works; a round is the first `size` updates.

    Args:
        mail: Carries letters that are answered in their own time.
        pace: Of the run; without it no round can be run.

    Source:
        Nguyen et al. (2022), arXiv:2106.06639.
    """

    mail: Mail | None = None
    pace: Pace | None = None

    def at(self, pace: Pace) -> Engine:
        """The engine for a round."""
        return replace(self, pace=pace)

    def at_work(self) -> frozenset[int]:
        """The versions that silos work from."""
        return self._desk.at_work()

    @property
    def _desk(self) -> Desk:
        return cast("Desk", self.correspondence)

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        del cohort, work, together  # whoever comes, with work of its own
        pace = cast("Pace", self.pace)
        self._fill(plan, {**pace.models, plan.round: model})
        for version, vector in self._buffer(plan):
            if vector is not None:
                yield shrunk(Update(vector), weight_of(pace.discount, plan.round - version))

    def _buffer(self, plan: RoundPlan) -> Sequence[tuple[int, Vector | None]]:
        size = cast("Pace", self.pace).size
        return self._desk.come(plan.round * size, (plan.round + 1) * size)

    def _fill(self, plan: RoundPlan, models: Mapping[int, Vector]) -> None:
        """Write to whoever is free, and keep what comes, until the round is full.

        Raises:
            EngineError: Nothing came for `timeout` seconds.
        """
        mail, desk, pace = cast("Mail", self.mail), self._desk, cast("Pace", self.pace)
        heard, here = time.monotonic(), len(self._buffer(plan))
        while here < pace.size:
            mail.send(desk.due(plan, pace.size, lambda v: self.starting(models[v]), pace.lines), self.timeout)
            for address, asked, answer in mail.answers(LOOK_S):
                self._take(plan, address, asked, answer, len(models[plan.round]))
            before, here = here, len(self._buffer(plan))
            if here > before:
                heard = time.monotonic()
                continue
            if time.monotonic() - heard >= self.timeout:
                raise EngineError.about(
                    "run",
                    f"waits for {pace.size - here} of {pace.size} updates, and none came for {self.timeout:g} s",
                    "the same command goes on from here when silos are back",
                    round=plan.round + 1,
                )
            desk.welcome_back()

    def _take(self, plan: RoundPlan, address: str, asked: Letter, answer: Letter, width: int) -> None:
        try:
            brought = self._desk.brought(plan, address, asked, answer, width)
        except SordinoError as problem:
            self._desk.silent(address, str(problem))
            return
        if brought is not None:
            self._desk.keep(brought)
