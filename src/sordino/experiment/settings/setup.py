"""What every setting stands on: the plan, the data, one shared model instance, and where noise comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, PrivacyError
from sordino.core.types import RoundPlan, Unit, Update, Vector
from sordino.experiment import accounts as paying
from sordino.experiment.config import Experiment
from sordino.experiment.guarantee import AccountPlan
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.settings.parts import Part, part_of
from sordino.federation.aggregators.sum import Sum
from sordino.federation.engines import Announced, Engine
from sordino.federation.pipeline import Pipeline
from sordino.local.models import Model, active_names
from sordino.privacy import events
from sordino.privacy.doors import Door, GroupDoor, Release
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Line, Reservation

if TYPE_CHECKING:
    import torch

    from sordino.local.clipping import ClippingEngine
    from sordino.local.cohort.buckets import Member
    from sordino.local.cohort.plain import Stack
    from sordino.local.cohort.twin import Twin
    from sordino.local.layout import Layout
    from sordino.local.objectives import Objective
    from sordino.local.trainers._data import Data


Cohort: TypeAlias = NDArray[np.int64]
"""Positions of a round's clients; secret where the sampling is."""


@dataclass(frozen=True)
class Setup:
    """A run's fixed parts. One model instance serves all clients in turn.

    `stack` (whole clients) and `twin` (silos that protect records) are the model for many at once, where that is
    faster. `description` is the model as data: its adapter may train some parameters at a time.
    """

    plan: Plan
    population: Population
    module: torch.nn.Module
    layout: Layout
    objective: Objective
    clipping: ClippingEngine
    engine: Engine
    source: NoiseSource
    stack: Stack | None = None
    twin: Twin | None = None
    description: Model | None = None

    @property
    def experiment(self) -> Experiment:
        """The planned experiment."""
        return self.plan.experiment

    @property
    def unit(self) -> Unit:
        """Whose presence is hidden."""
        return self.experiment.privacy.unit

    def part(self, round: int, client: int | None = None) -> Part:  # noqa: A002 - the noun
        """The parameters that a client trains in a round; left out, those that any client trains."""
        names = tuple(group.name for group in self.layout.groups)
        if self.description is None:
            return part_of(self.layout, names)
        n = len(self.population)
        clients = range(n) if client is None else [client]
        return part_of(
            self.layout, {name for c in clients for name in active_names(self.description, names, round, c, n)}
        )

    @contextmanager
    def training(self, part: Part, model: Vector) -> Iterator[tuple[Setup, Vector]]:
        """The setup with some parameters as its whole vector, at a model; the others keep their values."""
        if part.complete:
            yield self, model
            return
        with part.trained(self.module, model):
            yield replace(self, layout=part.layout), part.taken(model)

    def mean(self, updates: Iterator[Update], size: int, plan: RoundPlan) -> Vector:
        """The mean of a cohort's released updates, each times its silo's weight. Shape (size,).

        All weights sum to 1; a cohort holds its expected share of them, a public number.
        """
        total = Sum().reduce(updates, size)
        return (total.vector * (len(self.population) / plan.expected)).astype(np.float32)

    def members(self, clients: Sequence[int]) -> list[Member]:
        """Clients whose records are copied out when they are needed."""
        from sordino.local.cohort.buckets import Member

        return [Member(len(self.population.train.rows[client]), partial(self._data, client)) for client in clients]

    def _data(self, client: int) -> Data:
        silo = self.population.train.silo(client)
        return silo.x, silo.y, silo.user

    def account(self, client: int) -> AccountPlan:
        """The account that pays for a client's releases."""
        return self.accounts(client)[0]

    def accounts(self, client: int) -> list[AccountPlan]:
        """The accounts that pay for a client's releases: one, or one per group of its records."""
        everyone = self.plan.accounts
        if everyone[0].client is None:
            return [everyone[0]]
        return self._by_client[client]

    @cached_property
    def _by_client(self) -> list[list[AccountPlan]]:
        found: list[list[AccountPlan]] = [[] for _ in range(len(self.population))]
        for account in self.plan.accounts:
            found[cast("int", account.client)].append(account)
        return found

    def lines(self, cohort: Cohort, releases: int) -> list[Line]:
        """What a round with this cohort charges: `releases` per account that takes part."""
        payers = self.payers(cohort)
        unlike = {(account.noise_multiplier, account.group): account for account in payers}
        keys = {terms: events.key(self.charged(account)) for terms, account in unlike.items()}
        return [Line(a.name, self.unit, keys[a.noise_multiplier, a.group], releases) for a in payers]

    def payers(self, cohort: Cohort) -> list[AccountPlan]:
        """The accounts that a round with this cohort charges.

        A shared account pays even when nobody was drawn: an empty cohort still releases noise.
        """
        shared = self.plan.accounts[0].client is None
        return [self.plan.accounts[0]] if shared else [a for client in cohort for a in self.accounts(int(client))]

    def charged(self, account: AccountPlan) -> Any:
        """One release's event for an account."""
        return paying.charged_event(self.experiment, account.noise_multiplier, len(self.population), account.group)

    def exit(self, client: int, reservation: Reservation) -> Release:
        """The exit of a client's own releases, that its account or its groups' accounts have paid for."""
        accounts = self.accounts(client)
        if accounts[0].group is None:
            return self.door(accounts, reservation)
        largest = max(paying.terms_of(self.experiment, str(a.group))[1] for a in accounts)
        return GroupDoor(
            # Over the largest clip of the groups that are here: the same noise in every silo.
            mechanism=paying.mechanism_of(self.experiment, accounts[0].noise_multiplier / largest),
            charges={str(a.group): (a.name, self.charged(a)) for a in accounts},
            reservation=reservation,
            source=self.source,
        )

    def door(self, accounts: Sequence[AccountPlan], reservation: Reservation) -> Door:
        """The exit that the accounts have paid for."""
        first = accounts[0]
        if any(a.noise_multiplier != first.noise_multiplier for a in accounts):
            raise PrivacyError.about("door", "serves accounts with different noise", "give each its own")
        return Door(
            mechanism=paying.mechanism_of(self.experiment, first.noise_multiplier),
            charged=self.charged(first),
            accounts=tuple(a.name for a in accounts),
            reservation=reservation,
            source=self.source,
        )

    def pipeline(self) -> Pipeline:
        """The experiment's stages, in order, around a plain sum. Tried once, so that nothing is charged in vain."""
        pipeline = Pipeline.from_tables(self.experiment.stages)
        pipeline.bound()
        first = RoundPlan(0, self.experiment.count, self.layout.groups, 1.0)
        pipeline.client(Update(np.zeros(self.layout.size, np.float32), records=1), first)
        return pipeline


class Setting(Protocol):
    """One round's questions. A setting without state of its own keeps the answers given here."""

    setup: Setup

    def at(self, setup: Setup) -> Setting:
        """The same setting over another setup: some of the parameters."""
        return cast("Setting", replace(cast("Any", self), setup=setup))

    def seeing(self, model: Vector) -> Setting:
        """The same setting for a round that starts from this whole model: an engine may have to send it."""
        announced = Announced(model, self.memory(), self.wire_size())
        return self.at(replace(self.setup, engine=self.setup.engine.seeing(announced)))

    def wire_size(self) -> int:
        """Length of what a client sends."""
        return self.setup.layout.size

    def lines(self, cohort: Cohort) -> list[Line]:
        """What this round must charge before anything is drawn."""
        ...

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        """Train and release. What comes back is public: it is committed, then published."""
        ...

    def sent(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation | None) -> Update:  # noqa: ARG002 - for those that do
        """What one client sends in a round, in whatever process it lives.

        Args:
            client: Its position.
            start: The model. Shape (d,).
            plan: The round.
            reservation: The charge that covers its releases, where it draws the noise itself.

        Raises:
            EngineError: Nothing that one client sends by itself would be right.
        """
        raise EngineError.about("setting", "has clients that only together send something", "run it in one process")

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Setting]:  # noqa: ARG002 - for those that do
        """The mean change for the strategy, and the setting for the next round. Post-processing only."""
        return released, self

    def memory(self) -> dict[str, Any]:
        """Public state that moves between rounds, JSON-able, for the checkpoint."""
        return {}

    def restored(self, memory: dict[str, Any]) -> Setting:  # noqa: ARG002 - for those that have some
        """The setting with that state."""
        return self


def paid(reservation: Reservation | None) -> Reservation:
    """The round's charge, which every private setting needs."""
    if reservation is None:
        raise PrivacyError.about("release", "has no reservation", "reserve the round first")
    return reservation
