"""Persons inside silos, protected in one of two ways.

mean       a person joins as a whole; the mean of their gradients is clipped           (user-level sampling)
records    records join one by one, each is clipped, at most K of a person's count     (example-level sampling)

Source: Charles et al. (2024), arXiv:2407.07737.
"""

from __future__ import annotations

import numpy as np

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
from sordino.experiment.config import Experiment
from sordino.experiment.groups import parts, silo_tiers
from sordino.experiment.population import Population


def check(experiment: Experiment) -> None:
    """Refuse a way that does not fit the unit, and a cap that would do nothing.

    Raises:
        ConfigError: A key is missing, or would have no effect.
    """
    local = experiment.local
    if local.people == "mean":
        _refuse_cap(experiment)
        return
    if experiment.privacy.unit is not Unit.USER:
        raise ConfigError.about("local", "protects persons", 'set privacy.unit = "user", or drop it', people="records")
    if local.records_per_person is None:
        raise ConfigError.about(
            "local", "lacks the key 'records_per_person'", "about what a typical person has", people="records"
        )


def refuse(experiment: Experiment) -> None:
    """Refuse both keys where whole clients are protected, or nobody.

    Raises:
        ConfigError: One is given.
    """
    if experiment.local.people != "mean":
        raise ConfigError.about("local", "protects persons inside silos", "drop it", people=experiment.local.people)
    _refuse_cap(experiment)


def contributors(experiment: Experiment, population: Population, client: int) -> float:
    """How many parts a silo's sum is made of when all join: units, records under a cap per person, or of groups.

    Public by declaration, as all counts of a population are: divisors and weights are made of them.
    """
    cap, user = experiment.local.records_per_person, population.train.examples.user
    if experiment.groups:
        return parts(experiment, silo_tiers(population, client))
    if cap is None:
        return population.units[client]
    if user is None:
        raise ConfigError.about("privacy", "needs a column that names the person", "set data.*.user", unit="user")
    counted = np.minimum(np.unique(user[population.train.rows[client]], return_counts=True)[1], cap)
    return int(counted.sum()) + population.surplus(client)


def _refuse_cap(experiment: Experiment) -> None:
    cap = experiment.local.records_per_person
    if cap is not None:
        raise ConfigError.about("local", 'does nothing without people = "records"', "drop it", records_per_person=cap)
