"""Private selection of settings: train a random number of them, keep the best by its released figures, show no other.

settings ──► plans of one price ──► one charge, `tune`, for the whole selection ──► K trials, settings drawn with them
                                                                └──► each scored by its released figures ──► the best

The price holds against whoever sees the selected result and nothing else. In a federation whoever takes part in
training sees every candidate's messages: the coordinator and other silos must be trusted with them, and with K.

Source: Papernot and Steinke (2022), arXiv:2110.03620. A trial draws its setting and tells which, so where all settings
are charged the same events, a trial costs what any of them costs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.core.errors import ConfigError
from sordino.core.types import NoiseAt
from sordino.experiment import config
from sordino.experiment.config import Experiment
from sordino.experiment.groups import accounts_per_person
from sordino.experiment.guarantee import AccountPlan
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population
from sordino.experiment.render import finite
from sordino.privacy import events, selection
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.silos import federation_epsilon

if TYPE_CHECKING:
    from sordino.experiment.trials import Selected

FREE = ("local", "model", "objective", "strategy", "weights", "average")
"""What settings may differ in; everything else must be the same, and so must what they are charged."""

NOT_OFFERED = ("audit", "approval", "enforcement")


@dataclass(frozen=True)
class Tuning:
    """A selection, priced before anything is trained.

    Args:
        candidates: The plan of every setting, each as if it ran alone.
        plan: What the accounts are charged: one selection each. Its noise counts as the coordinator's, because only
            the selected result is covered.
        mean_trials: Expected number of trials.
        shape: Law of their number, as in `privacy/selection.py`.
    """

    candidates: tuple[Plan, ...]
    plan: Plan
    mean_trials: float
    shape: float

    def to_plain(self) -> dict[str, Any]:
        """The price, JSON-able: what a privacy officer approves."""
        plan, one = self.plan, self.candidates[0]
        return {
            "name": plan.experiment.name,
            "digest": plan.digest,
            "settings": [config.to_plain(candidate.experiment) for candidate in self.candidates],
            "mean_trials": self.mean_trials,
            "shape": self.shape if math.isfinite(self.shape) else "inf",
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "unit": str(plan.experiment.privacy.unit),
            "adjacency": str(plan.adjacency),
            "accountant": plan.accountant,
            "epsilon_of_one_trial": one.epsilon,
            "views": {name: finite(value) for name, value in plan.views.items()},
            "silos": [
                {"name": a.name, "epsilon": a.epsilon, "charges": [list(charge) for charge in a.charges]}
                for a in plan.accounts
            ],
        }


def price(
    experiments: Sequence[Experiment], population: Population, *, mean_trials: float = 4.0, shape: float = 1.0
) -> Tuning:
    """Price a selection among settings. Trains nothing.

    Args:
        experiments: The settings: equal but for what is `FREE`, each with `[evaluation] release`.
        population: The data of all of them.
        mean_trials: Expected number of trials, > 1.
        shape: 0 logarithmic, 1 geometric, else truncated negative binomial; at least one trial each.

    Raises:
        ConfigError: Settings differ in more, are charged different events, or release no figures to be scored by.
    """
    selection.check(mean_trials, shape)
    if math.isinf(shape):
        raise ConfigError.about("tune", "may run no trial at all", "use 1", shape="inf")
    _check(experiments)
    candidates = tuple(make_plan(experiment, population) for experiment in experiments)
    first = candidates[0]
    charges = [(a.name, a.charges) for a in first.accounts]
    for number, plan in enumerate(candidates):
        if [(a.name, a.charges) for a in plan.accounts] != charges or plan.delta != first.delta:
            raise ConfigError.about(
                "tune",
                "is charged other events than the first: one price must hold for whichever is drawn",
                "keep noise, steps and batch",
                setting=number,
            )
    return Tuning(candidates, _selecting(candidates, mean_trials, shape), float(mean_trials), float(shape))


def select(
    experiments: Sequence[Experiment],
    population: Population,
    runs: Path,
    *,
    mean_trials: float = 4.0,
    shape: float = 1.0,
    base: Path = Path(),
) -> Selected:
    """Train a secret random number of settings and keep the best, or read a selection that is finished.

    Args:
        experiments: As for `price`, as are `population`, `mean_trials` and `shape`.
        population: The data.
        runs: Where run folders live.
        mean_trials: Expected number of trials.
        shape: Law of their number.
        base: Where a relative `ledger` path starts.

    Raises:
        BudgetRefused: An account cannot pay for the whole selection; nothing was trained.
        PrivacyError: It was interrupted before: it is paid for, and what was drawn is never looked at.

    Guarantee:
        Against whoever sees the result alone, the price of `Tuning.plan`; charged before the first trial.
    """
    from sordino.experiment.trials import selected

    return selected(price(experiments, population, mean_trials=mean_trials, shape=shape), population, runs, base)


def _check(experiments: Sequence[Experiment]) -> None:
    if len(experiments) < 2:
        raise ConfigError.about("tune", "leave nothing to select from", "list two or more", settings=len(experiments))
    first = config.to_plain(experiments[0])
    for number, experiment in enumerate(experiments):
        table = config.to_plain(experiment)
        differ = sorted(key for key in (first.keys() | table.keys()) - set(FREE) if first.get(key) != table.get(key))
        if differ:
            raise ConfigError.about("tune", f"differs from the first in {', '.join(differ)}", setting=number)
        if experiment.evaluation.release is None:
            raise ConfigError.about("tune", "is scored by released figures", "add evaluation.release", setting=number)
        given = [key for key in NOT_OFFERED if getattr(experiment, key) is not None]
        if given:
            raise ConfigError.about("tune", "are not offered in a selection", "drop them", keys=given)


def _selecting(candidates: Sequence[Plan], mean: float, shape: float) -> Plan:
    """The plan that accounts are charged for: the first candidate's, with a selection in the place of its events."""
    first = candidates[0]
    charged = tuple(_selected(account, first, mean, shape) for account in first.accounts)
    epsilon = federation_epsilon(
        {account.name: account.events for account in charged},
        first.delta,
        adjacency=first.adjacency,
        silos_per_person=accounts_per_person(first.experiment, len(first.clients)),
    )
    body = [[plan.digest for plan in candidates], mean, shape, [(a.name, a.charges) for a in charged]]
    return replace(
        first,
        experiment=config.changed(first.experiment, privacy__noise_at=NoiseAt.COORDINATOR),
        accountant="rdp",
        accounts=charged,
        views={"final model": epsilon, "another silo": math.inf, "coordinator": math.inf},
        attack=None,
        digest=hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest(),
    )


def _selected(account: AccountPlan, plan: Plan, mean: float, shape: float) -> AccountPlan:
    event = events.repeat_and_select(events.composed(account.events), mean, shape)
    epsilon = best_epsilon([(event, 1)], plan.delta, adjacency=plan.adjacency).epsilon
    return replace(account, epsilon=epsilon, releases=1, charges=((events.key(event), 1),), limit=None)
