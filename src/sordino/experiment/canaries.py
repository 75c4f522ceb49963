"""Canaries that a run carries from its start: who gets them, what is counted, and what they cost.

Coins are secret, counts are public. So every public number (divisors, weights, the n of δ) counts the *expected*
canaries: half of the candidates, however the coins fell. A divisor off by a few records scales a step by that much
and no more; noise and price know no divisor at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Unit
from sordino.data.canaries import Canaries, craft, insert, set_aside
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.experiment.config import Experiment


@dataclass(frozen=True)
class Cost:
    """What canaries cost a run. Nothing of it is privacy: to the mechanism they are records like any other.

    Args:
        silo: Who carries them.
        candidates: How many there are, in or out.
        share: Crafted records, of all that the silo is expected to train on.
        of_all: The same of all silos together.
        digest: Of records and coins; the run folder keeps them.
    """

    silo: str
    candidates: int
    share: float
    of_all: float
    digest: str

    @property
    def says(self) -> str:
        """The cost in plain words."""
        return (
            f"about {self.candidates // 2} of the records that {self.silo!r} trains on are crafted by the audit: "
            f"{self.share:.2%} of its own, {self.of_all:.2%} of all. They pull the model towards what is wrong, and "
            f"the signal of its real records is {1 - self.share:.2%} of what the forecast counts. They cost no privacy"
        )


def planted(
    experiment: Experiment, train: FederatedData, test: FederatedData, form: Examples | None = None
) -> tuple[FederatedData, FederatedData, Canaries | None]:
    """Training and test part with the experiment's canaries, if it has any.

    On other machines each silo crafts its own: they follow from the plan alone, so the coordinator and every site come
    to the same candidates and coins, and the plan's digest holds them.

    Args:
        experiment: What is wanted.
        train: Every client's training records.
        test: Every client's held-out records.
        form: One made-up record, where nobody has all records.

    Raises:
        PrivacyError: They would copy records of people, or of silos that are elsewhere.
        ConfigError: Whole clients are protected, or groups told apart: canaries are single records of one account.
    """
    wanted = experiment.audit
    if wanted is None:
        return train, test, None
    if experiment.privacy.unit is Unit.CLIENT and not experiment.privacy.non_private:
        rule = "are records, and all of them would belong to one protected client"
        raise ConfigError.about(
            "audit", rule, "drop them: `sordino audit` sends crafted clients of its own", canaries=wanted.canaries
        )
    if experiment.groups:
        raise ConfigError.about("audit", "belong to no public group", "drop [groups] or them", canaries=wanted.canaries)
    silo = wanted.silo if wanted.silo is not None else train.names[int(np.argmax(train.sizes))]
    held = None
    if wanted.kind == "mislabelled" and (form is not None or test.elsewhere):
        rule = "copies held-out records, which not every machine has"
        raise PrivacyError.about("audit", rule, 'use kind = "random"', kind=wanted.kind)
    if wanted.kind == "mislabelled":
        test, held = set_aside(test, wanted.canaries, wanted.seed)
    canaries = craft(train, silo, wanted.canaries, wanted.seed, wanted.kind, held, form)
    return insert(train, canaries), test, canaries


def cost(train: FederatedData, canaries: Canaries | None) -> Cost | None:
    """What they cost, from public counts. `train` holds those that are in."""
    if canaries is None:
        return None
    own, everyone = (size + canaries.surplus for size in (train.sizes[train.index(canaries.silo)], sum(train.sizes)))
    expected = canaries.expected
    return Cost(canaries.silo, len(canaries), expected / own, expected / everyone, canaries.digest)
