"""Budgets of their own for public groups of records: an account per silo and group.

sample    one noise, and each group's records join at the rate that spends its epsilon
scale     one rate, and each group's records are clipped to the share that spends its epsilon

Who is in which group is public, and so are the groups' sizes: a label says nothing that must stay hidden.

Source: Boenisch et al. (2023), arXiv:2303.17046.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from sordino.core.errors import ConfigError
from sordino.core.types import NoiseAt, Unit
from sordino.experiment.config import FIT, Experiment
from sordino.experiment.population import Population

Tiers: TypeAlias = Mapping[str, int]
"""Records of one silo by group, public."""


def check(experiment: Experiment) -> None:
    """Refuse groups that would do nothing, and what individual budgets do not go with.

    Raises:
        ConfigError: A key is missing, without effect, or in a combination that is not offered.
    """
    local, privacy = experiment.local, experiment.privacy
    if bool(experiment.groups) != (local.individual is not None):
        raise ConfigError.about(
            "groups",
            "need local.individual, and it needs them",
            'write e.g. individual = "sample"',
            names=_names(experiment),
        )
    if not experiment.groups:
        return
    for name, group in experiment.groups.items():
        if group.rate is not None or group.share is not None:
            raise ConfigError.about("groups", "has a rate or share, which the plan finds", "give epsilon", name=name)
    if privacy.unit is not Unit.RECORD or privacy.noise_at is not NoiseAt.SILO or local.method != "gradient":
        raise ConfigError.about(
            "groups",
            "are offered for gradients of records with noise at the silo",
            "use unit = 'record'",
            unit=privacy.unit,
        )
    if experiment.silos or experiment.compare:
        raise ConfigError.about(
            "groups", "do not go with [silos] or [compare]", "drop the others", names=_names(experiment)
        )
    if privacy.epsilon is None or privacy.noise_multiplier is not None or FIT in (experiment.rounds, local.batch):
        raise ConfigError.about(
            "privacy",
            "is found for groups, and nothing else is",
            "give epsilon, rounds and batch",
            individual=local.individual,
        )
    if (largest := max(group.epsilon for group in experiment.groups.values())) > privacy.epsilon:
        raise ConfigError.about("groups", f"is above privacy.epsilon = {privacy.epsilon:g}", epsilon=largest)


def refuse(experiment: Experiment) -> None:
    """Refuse groups where whole clients are protected, or nobody.

    Raises:
        ConfigError: They are given.
    """
    if experiment.groups or experiment.local.individual is not None:
        raise ConfigError.about("groups", "protect records inside silos", "drop them", names=_names(experiment))


def tiers(experiment: Experiment, population: Population) -> tuple[Tiers, ...]:
    """Each silo's records by group; empty where groups are not told apart.

    Raises:
        ConfigError: The data know no groups, or a group is not named in the experiment.
    """
    if not experiment.groups:
        return ()
    for name in experiment.groups:
        if "/" in name:
            raise ConfigError.about("groups", "must not hold '/': accounts are named silo/group", name=name)
    found = [silo_tiers(population, client) for client in range(len(population))]
    unnamed = {name for silo in found for name in silo} - set(experiment.groups)
    absent = set(experiment.groups) - {name for silo in found for name in silo}
    if unnamed or absent:
        raise ConfigError.about(
            "groups", "must be those of the data", "add or drop them", unnamed=sorted(unnamed), absent=sorted(absent)
        )
    return tuple(found)


def silo_tiers(population: Population, client: int) -> Tiers:
    """One silo's records by group."""
    labels = population.train.examples.group
    if labels is None:
        raise ConfigError.about("groups", "are not in the data", "name their column, e.g. data.table.group")
    names, counts = np.unique(labels[population.train.rows[client]], return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def parts(experiment: Experiment, tiers: Tiers) -> float:
    """What a silo's sum amounts to when all join, public.

    A record counts by its group's rate over the rate asked for, or by its group's share of the clip.
    """
    rate = experiment.local.rate
    found = ((count, experiment.groups[name]) for name, count in tiers.items())
    return sum(count * (group.rate or rate) / rate * (group.share or 1.0) for count, group in found)


def accounts_per_person(experiment: Experiment, clients: int) -> int | None:
    """How many accounts can stand for one person: one per silo, as a record is of one group; None for all."""
    declared = experiment.privacy.silos_per_person
    return clients if declared is None and experiment.groups else declared


def _names(experiment: Experiment) -> list[str]:
    return sorted(experiment.groups)
