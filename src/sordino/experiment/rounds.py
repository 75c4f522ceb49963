"""The loop: one round at a time, charge before release, publish after commit.

reserve ──► release (noise) ──► commit with bytes ──► step ──► checkpoint ──► published
   └ refused? stop here           └ after a crash, the same bytes again; a reservation without bytes is forfeited
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from sordino.core.errors import PrivacyError
from sordino.core.types import RoundPlan, Vector
from sordino.experiment import accounts as paying
from sordino.experiment import asynchrony
from sordino.experiment.settings import Setting, Setup
from sordino.federation.averaging import TailAverage, TailState
from sordino.federation.strategies import ServerState, Strategy
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class State:
    """Everything public that the next round depends on. `memory` is the setting's, such as an adapted clip.

    `versions` are models of earlier rounds, by round, that clients of asynchronous rounds are still at work on.
    """

    server: ServerState
    average: TailState
    memory: dict[str, Any]
    round: int = 0
    versions: Mapping[int, Vector] = field(default_factory=dict)


class Books(Protocol):
    """What the loop needs of a ledger; `NoBooks` stands in where nothing is protected."""

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002 - the noun
        lines: list[Line],
        purpose: str = "train",
    ) -> Reservation | None:
        """Charge a round, or another release of the plan, durably before anything is drawn.

        Raises:
            Lost: Another ledger knows the round already: it is charged here too, and never drawn.
        """
        ...

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        """Record what was drawn, with its bytes, before anybody sees it."""
        ...

    def earlier(self, txid: str) -> bytes | bool | None:
        """The bytes committed under this name, True if it was forfeited, None if it is new."""
        ...

    def published(self, txid: str) -> None:
        """The bytes are safe elsewhere."""
        ...


class Lost(Exception):
    """A round is charged but can never be drawn: a crash came between its charge and its bytes, in some ledger."""


@dataclass(frozen=True)
class Loop:
    """A run's moving parts, all values.

    Args:
        setup: The fixed parts.
        strategy: From mean change to next model.
        average: Which iterates the final model averages.
        books: The charges.
        run: The run's name in the books.
        save: Called with each state, durably, before its bytes are dropped.
        seen: Called after each round, for progress.
    """

    setup: Setup
    strategy: Strategy
    average: TailAverage
    books: Books
    run: str
    save: Callable[[State], None]
    seen: Callable[[State], None]

    def start(self, model: Vector) -> State:
        """The state before the first round."""
        return State(self.strategy.init(model), self.average.init(model), {})

    def rounds(self, state: State, setting: Setting) -> State:
        """Run all rounds that the state has not seen."""
        setting = setting.restored(state.memory) if state.memory else setting
        for number in range(state.round, self.setup.experiment.count):
            try:
                state, setting = self._round(number, state, setting)
            except Lost:
                state = replace(state, round=number + 1, versions=asynchrony.kept(self.setup, state))
                self.save(state)
            self.seen(state)
        return state

    def _round(self, number: int, state: State, setting: Setting) -> tuple[State, Setting]:
        txid = f"{self.run}/{number}"
        sampler = paying.sampler_of(self.setup.experiment)
        expected = sampler.expected(len(self.setup.population))
        part = self.setup.part(number)
        plan = RoundPlan(number, self.setup.experiment.count, part.layout.groups, expected)
        artefact = self.books.earlier(txid)
        if artefact is True:
            # A crash between reserve and commit: the charge is lost, the noise may have been drawn, so never again.
            raise Lost
        with self.setup.training(part, state.server.model) as (setup, model):
            setting = setting.at(setup).seeing(state.server.model)
            if isinstance(artefact, bytes):
                released: Vector = np.frombuffer(artefact, dtype=np.float32)
            else:
                cohort = sampler.draw(len(self.setup.population), number, self.setup.source)
                if np.unique(cohort).size < cohort.size:
                    raise PrivacyError.about(
                        "sampling", "names a client twice, which could move the sum twice as far", round=number
                    )
                setting = asynchrony.delayed(setting, plan, state)
                reservation = self.books.reserve(txid, number, setting.lines(cohort))
                released = setting.release(plan, cohort, model, reservation)
                self.books.commit(reservation, released.astype(np.float32).tobytes())
            mean, setting = setting.settle(released, plan)
        setting = setting.at(self.setup)
        server = self.strategy.step(state.server, part.spread(mean))
        server = replace(server, model=part.stepped(state.server.model, server.model))
        average = self.average.step(state.average, server.model, plan)
        versions = asynchrony.kept(self.setup, state)
        state = State(server, average, setting.memory(), number + 1, versions)
        self.save(state)
        self.books.published(txid)
        return state, setting
