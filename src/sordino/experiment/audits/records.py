"""A run's own training, to be repeated on random halves of one silo's records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Progress
from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.core import seeds
from sordino.core.types import Unit
from sordino.data import pooled
from sordino.experiment.audits._audited import Audited
from sordino.experiment.build import Built
from sordino.experiment.plan import Plan

MOST = 2000
"""Records under attack; a larger silo's others are trained on in every copy."""

STRANGERS = 4000
"""Records of the population that are looked at; 0.1 % false alarms need a thousand."""

FEWEST = 20
"""Records from which a figure about them says anything."""


@dataclass(eq=False)
class RetrainedRecords:
    """The attacked silo's records, and the run's training on subsets of them.

    Args:
        promise: What the silo's records were promised.
        built: The run's parts.
        client: The silo.
        pool: The records under attack, as rows of the run's examples.
        rest: The silo's other records: in every training.
        seed: Of the attacker's coins.
        flagged: Records of special interest, shape (N,), or None.

    Guarantee:
        Every repetition keeps the plan's clip, rates, noise multipliers, steps and rounds, and divides by half the
        pool (and the rest) whoever is in, so that its records have the promise of the run's.
    """

    promise: Promise | None
    built: Built
    client: int
    pool: NDArray[np.int64]
    rest: NDArray[np.int64]
    seed: int = 0
    flagged: NDArray[np.bool_] | None = None
    _done: list[tuple[int, NDArray[np.bool_], NDArray[np.float32]]] = field(default_factory=list, repr=False)

    @property
    def x(self) -> NDArray[Any]:
        """The pool's inputs."""
        return self.built.setup.population.train.examples.x[self.pool]

    @property
    def y(self) -> NDArray[np.int64]:
        """Its labels."""
        return self.built.setup.population.train.examples.y[self.pool]

    @property
    def population(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """All silos' held-out records, or some of very many."""
        x, y = pooled(self.built.setup.population.test)
        if len(y) <= STRANGERS:
            return x, y
        some = np.sort(seeds.stream(self.seed, "strangers").permutation(len(y))[:STRANGERS])
        return x[some], y[some]

    @property
    def features(self) -> tuple[str, ...]:
        """The table's columns."""
        return self.built.setup.population.train.examples.features

    @property
    def public(self) -> bool:
        """Published records."""
        return self.built.setup.population.public

    def train(self, included: NDArray[np.bool_], seed: int, progress: Progress) -> NDArray[np.float32]:
        """One model per row of `included`; those that an earlier attack had trained are not trained again."""
        for known, coins, models in self._done:
            if known == seed and len(coins) >= len(included) and (coins[: len(included)] == included).all():
                return models[: len(included)]
        from sordino.experiment.audits._copies import trained

        rows = [np.sort(np.concatenate([self.pool[coins], self.rest])) for coins in included]
        units = len(self.rest) + max(1, len(self.pool) // 2)
        models = trained(self.built, self.client, rows, units, seed, progress)
        self._done.append((seed, included, models))
        return models

    def log_probabilities(self, models: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.float64]:
        """By the run's own module."""
        from sordino.local.evaluate import scores

        setup, found = self.built.setup, []
        for model in models:
            setup.layout.restore(setup.module, model)
            found.append(np.log(np.maximum(scores(setup.module, x), 1e-300)))
        return np.stack(found)


def subject(audited: Audited) -> RetrainedRecords:
    """The attacked silo's records.

    Raises:
        DoesNotFit: What the run promises is not about single records with a label, or there are too few of them.
    """
    _refuse(audited.plan)
    population = audited.population
    if population.spec.per_position:
        raise DoesNotFit("the records are texts to be continued: planted sequences attack those.")
    rows = population.train.rows[audited.client]
    if len(rows) < FEWEST:
        raise DoesNotFit(f"the silo has {len(rows)} training records: too few to tell members from others.")
    order = seeds.stream(audited.seed, "records under attack").permutation(rows)
    return RetrainedRecords(
        promise=audited.promise,
        built=audited.built,
        client=audited.client,
        pool=np.sort(order[:MOST]),
        rest=order[MOST:],
        seed=audited.seed,
    )


def _refuse(plan: Plan) -> None:
    privacy = plan.experiment.privacy
    if privacy.non_private:
        return
    if privacy.unit is Unit.CLIENT:
        raise DoesNotFit("the run protects whole clients and promises nothing of one record: canary clients attack it.")
    if privacy.unit is Unit.USER:
        raise DoesNotFit("the run protects persons with all their records: an attack on one record is not about it.")
    if plan.experiment.groups:
        raise DoesNotFit("the silo's groups of records have promises of their own: this attack knows of one only.")
