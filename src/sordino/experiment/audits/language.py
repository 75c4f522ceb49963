"""A run's own language model, trained again with planted sequences, under TEST books and seeded noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Sequences, Tokens
from sordino.core.seeds import stream
from sordino.core.types import Vector
from sordino.data.canaries import craft, insert
from sordino.data.examples import IGNORE
from sordino.data.federation import FederatedData
from sordino.experiment import config
from sordino.experiment.audits._again import again
from sordino.experiment.audits._audited import Audited
from sordino.experiment.audits._sequences import Form, form_of
from sordino.experiment.population import Population
from sordino.experiment.settings import setting_of
from sordino.privacy.noise import SeededNoise

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class Retrained:
    """The attacked silo's language model.

    Args:
        audited: The run.
        form: How its records hold sequences.

    Guarantee:
        A training keeps the plan's clips, rates, noise multipliers, steps and rounds, and its divisors whoever is
        planted or left out: what was promised to a record of the run is promised to each planted one.
    """

    audited: Audited
    form: Form

    @property
    def promise(self) -> Promise | None:
        return self.audited.promise

    @property
    def seed(self) -> int:
        return self.audited.seed

    @property
    def public(self) -> bool:
        return self.audited.population.public

    @property
    def vocabulary(self) -> int:
        return int(self.form.spec.vocabulary or 0)

    @property
    def labels(self) -> int | None:
        return self.form.labels

    @property
    def longest(self) -> int:
        return self.form.longest

    @property
    def size(self) -> int:
        return sum(parameter.numel() for parameter in self.audited.built.setup.module.parameters())

    @property
    def start(self) -> Vector:
        return self.audited.built.start

    @cached_property
    def _used(self) -> Tokens:
        examples = self._train.examples
        targets = examples.y[examples.y != IGNORE] if self.labels is None else []
        return np.setdiff1d(np.append(examples.x, targets).astype(np.int64), self._filling)

    @property
    def _filling(self) -> list[int]:
        """The token that fills short texts up, if there is one."""
        padding = self.form.spec.padding
        return [] if padding is None else [padding]

    def used(self) -> Tokens:
        return self._used

    def unused(self) -> Tokens:
        return np.setdiff1d(np.arange(self.vocabulary), [*self._used, *self._filling])

    def encode(self, texts: Sequence[str]) -> Sequences:
        return self.form.encoded(texts)

    def own(self) -> Sequences:
        silo = self._train.silo(self.audited.client)
        return self.form.sequences(silo.x, silo.y)

    def records_of(self, sequences: Sequences) -> int:
        return self.form.records_of(sequences)

    def train(self, planted: Sequences, seed: int, *, keep: NDArray[np.bool_] | None = None) -> Vector:
        population = self.audited.population
        held = self._planted(self._kept(keep), planted)
        return retrained(self.audited, replace(population, train=held), self._training_seed(seed))

    def log_likelihoods(self, model: Vector, sequences: Sequences, since: int = 1) -> NDArray[np.float64]:
        return self.form.log_likelihoods(self._at(model), sequences, since)

    def next_token(self, model: Vector, prefixes: Tokens) -> NDArray[np.float64]:
        return self.form.next_token(self._at(model), prefixes)

    @property
    def _train(self) -> FederatedData:
        return self.audited.population.train

    def _at(self, model: Vector) -> nn.Module:
        setup = self.audited.built.setup
        setup.layout.restore(setup.module, model)
        return setup.module

    def _training_seed(self, seed: int) -> int:
        return int(stream(self.seed, "language audit", seed).integers(2**31))

    def _kept(self, keep: NDArray[np.bool_] | None) -> FederatedData:
        train, client = self._train, self.audited.client
        if keep is None:
            return train
        return replace(train, rows=(*train.rows[:client], train.rows[client][keep], *train.rows[client + 1 :]))

    def _planted(self, train: FederatedData, planted: Sequences) -> FederatedData:
        """The silo with the planted records, each of a person of its own."""
        x, y = self.form.records(planted)
        if not len(y):
            return train
        strangers = craft(train, train.names[self.audited.client], len(y), self.seed, "random")
        records = replace(strangers.records, x=x, y=y).validated("planted sequences")
        return insert(train, replace(strangers, records=records, included=np.ones(len(y), dtype=bool)))


def subject(audited: Audited) -> Retrained:
    """The run's language model.

    Raises:
        DoesNotFit: The model does not read texts, or what a planted record is promised is not clear.
    """
    form = form_of(audited.population.spec)
    if audited.plan.experiment.groups:
        raise DoesNotFit("the silo's groups of records have promises of their own: this attack knows of one only.")
    if audited.plan.experiment.local.records_per_person is not None:
        raise DoesNotFit("the run divides by capped counts of persons' records: they would tell who was planted.")
    return Retrained(audited, form)


def retrained(audited: Audited, population: Population, seed: int) -> Vector:
    """The final model of the run's own rounds on other records.

    The public counts, and with them every divisor and weight, stay those of the run.
    """
    plan = replace(audited.plan, experiment=config.changed(audited.plan.experiment, seed=seed))
    setup = replace(audited.built.setup, plan=plan, population=population, source=SeededNoise(seed))
    return again(replace(audited.built, setup=setup), audited.built.start, setting_of(setup), plan)
