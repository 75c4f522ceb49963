"""Which way of protecting persons learns more, for the same guarantee and the same work.

Both ways get the noise that the plan's epsilons allow them, and the same expected number of gradients per step.
Signal is what `forecast` takes it for: each part that joins adds at most the clip norm, a person in the one way, a
record in the other. So a person's mean counts once, however many records it is made of; that it varies less than a
single record's gradient is left out, and speaks for the mean where a person's records are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sordino.core.types import Adjacency, Unit
from sordino.experiment import config
from sordino.experiment.accounts import Account
from sordino.experiment.calibrate import Calibration
from sordino.experiment.config import Experiment
from sordino.experiment.forecast import Forecast, forecast
from sordino.experiment.guarantee import AccountPlan
from sordino.experiment.people import contributors
from sordino.experiment.population import Population
from sordino.experiment.pricing import Pricing
from sordino.privacy.events import LARGEST_CAP


@dataclass(frozen=True)
class Ways:
    """The outlook of both ways.

    Args:
        mean: Of clipping each person's mean gradient.
        records: Of clipping record by record.
        records_per_person: The cap of the latter.
    """

    mean: Forecast
    records: Forecast
    records_per_person: int

    @property
    def better(self) -> str:
        """The value of `local.people` with the larger signal-to-noise ratio."""
        return "mean" if self.mean.run >= self.records.run else "records"


def ways(
    pricing: Pricing, population: Population, charged: Sequence[AccountPlan], outlook: Forecast, parameters: int
) -> Ways | None:
    """The plan's own way beside the other one; None where there is no choice.

    Args:
        pricing: The plan's.
        population: For the public counts.
        charged: The plan's accounts, with what each spends.
        outlook: The plan's forecast.
        parameters: Length d of the flat vector.
    """
    experiment = pricing.experiment
    if (
        experiment.privacy.unit is not Unit.USER
        or pricing.adjacency is Adjacency.REPLACE_ONE
        or experiment.local.method != "gradient"
        or population.elsewhere  # who has how many records is not known
    ):
        return None
    if not any(a.epsilon for a in charged):
        return None  # nobody is ever drawn
    # Epsilon stands in the experiment so that noise is what is left to find; each account has its own.
    other = config.changed(_other(experiment, population), privacy__epsilon=max(a.epsilon for a in charged))
    other = config.changed(other, privacy__noise_multiplier=None)
    accounts = tuple(Account(a.name, a.client, a.units, a.epsilon) for a in charged)
    _, multipliers = Calibration(replace(pricing, experiment=other), accounts, rough=True).found()
    _, theirs = forecast(other, population, multipliers, parameters)
    cap = experiment.local.records_per_person
    if cap is None:
        return Ways(outlook, theirs, other.local.records_per_person or 1)
    return Ways(theirs, outlook, cap)


def _other(experiment: Experiment, population: Population) -> Experiment:
    """The experiment the other way, with as many gradients per step as this one expects."""
    records = sum(population.train.sizes)
    if experiment.local.records_per_person is not None:
        rate = experiment.local.rate * _parts(experiment, population) / records
        found = config.changed(experiment, local__people="mean", local__records_per_person=None)
    else:
        cap = min(max(1, round(records / sum(population.units))), LARGEST_CAP)
        found = config.changed(experiment, local__people="records", local__records_per_person=cap)
        rate = experiment.local.rate * records / _parts(found, population)
    return config.changed(found, local__batch=min(1.0, rate))


def _parts(experiment: Experiment, population: Population) -> float:
    return sum(contributors(experiment, population, client) for client in range(len(population)))
