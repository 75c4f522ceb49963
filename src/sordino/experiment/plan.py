"""An experiment after calibration: what a privacy officer approves. Fixed before the first round, and torch-free.

Experiment + public counts ──► noise, rounds or rate found ──► events ──► guarantee per account and view
                                                          └──► attack bounds, signal-to-noise, digest
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sordino.core.errors import BudgetRefused, ConfigError
from sordino.core.registry import Registry, single
from sordino.core.types import Adjacency, Unit
from sordino.experiment import accounts as paying
from sordino.experiment import asynchrony, blocks, config, encrypting, summing
from sordino.experiment.calibrate import Calibration
from sordino.experiment.canaries import Cost, cost
from sordino.experiment.config import FIT, Experiment
from sordino.experiment.forecast import Forecast, forecast
from sordino.experiment.groups import tiers
from sordino.experiment.guarantee import AccountPlan, account_plans, views
from sordino.experiment.people import contributors
from sordino.experiment.population import Population
from sordino.experiment.pricing import Pricing
from sordino.experiment.soundness import check_without_privacy
from sordino.experiment.ways import Ways, ways
from sordino.federation.strategies import strategies
from sordino.local.objectives import objectives
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.tradeoff import AttackBounds, attack_bounds

if TYPE_CHECKING:
    from sordino.privacy.events import Events


@dataclass(frozen=True)
class Plan:
    """Everything that is promised. `digest` names it: ledgers charge for this plan and no other."""

    experiment: Experiment
    adjacency: Adjacency
    delta: float
    accountant: str
    accounts: tuple[AccountPlan, ...]
    views: Mapping[str, float]
    attack: AttackBounds | None
    forecast: Forecast
    weights: tuple[float, ...]
    parameters: int
    clients: tuple[str, ...]
    digest: str
    ways: Ways | None = None
    canaries: Cost | None = None

    @property
    def private(self) -> bool:
        """Whether anything is protected at all."""
        return bool(self.accounts)

    @property
    def shared(self) -> bool:
        """Whether one account stands for all clients, where each may be in any cohort."""
        return self.private and self.accounts[0].client is None

    @property
    def run(self) -> str:
        """The name by which ledgers know it."""
        return f"{self.experiment.name}-{self.digest[:16]}"

    @property
    def epsilon(self) -> float:
        """The guarantee against whoever sees the final model."""
        return self.views["final model"]

    @property
    def worst(self) -> AccountPlan:
        """The account with the weakest guarantee."""
        return max(self.accounts, key=lambda account: account.epsilon)


def make_plan(experiment: Experiment, population: Population, *, check_learning: bool = True) -> Plan:
    """Calibrate an experiment. Uses counts and shapes only; loading has read the records.

    Args:
        experiment: What is wanted; at most one of noise, rounds and rate is left to find.
        population: For the public number of units per client and the shape of a record.
        check_learning: Refuse a plan whose noise drowns what a run could learn.

    Raises:
        ConfigError: Bad combination, or delta too large for the number of units.
        BudgetRefused: Epsilon, noise and rounds are all given and do not fit.
        PrivacyError: No sound guarantee exists for the combination, or the plan cannot learn.
    """
    _check_parts(experiment)
    blocks.check(experiment, population)
    asynchrony.check(experiment, population)
    encrypting.check(experiment, len(population))
    size, noised = blocks.parameters(experiment, population)
    if experiment.privacy.non_private:
        return _non_private(experiment, population, size)
    experiment = summing.found(experiment, population, size)
    delta = _delta(experiment, population)
    adjacency = paying.adjacency_of(experiment)
    accounts = paying.accounts(experiment, population.names, population.units, tiers(experiment, population))
    wanted = Pricing(experiment, len(population), delta, adjacency)
    experiment, multipliers = Calibration(wanted, accounts).found()
    pricing = replace(wanted, experiment=experiment)
    charged = account_plans(pricing, accounts, multipliers)
    _check_budget(experiment, charged, delta)
    # Groups of a silo share its noise; otherwise an account is a client, or all of them.
    noise = [charged[0].noise_multiplier] if experiment.groups else [a.noise_multiplier for a in charged]
    weights, outlook = forecast(experiment, population, noise, noised)
    experiment = _with_step_size(experiment, outlook, noised)
    worst = max(charged, key=lambda a: a.epsilon)
    if check_learning:
        outlook.refuse_if_hopeless(experiment, partial(pricing.epsilon, worst.client, group=worst.group))
    return Plan(
        experiment=experiment,
        adjacency=adjacency,
        delta=delta,
        accountant=best_epsilon(worst.events, delta, adjacency=adjacency).accountant,
        accounts=charged,
        views=views(pricing, charged),
        attack=attack_bounds(_one_persons(experiment, charged, worst), delta, adjacency=adjacency),
        forecast=outlook,
        weights=weights,
        parameters=size,
        clients=population.names,
        digest=_digest(experiment, population, adjacency, delta, charged),
        ways=ways(pricing, population, charged, outlook, noised),
        canaries=cost(population.train, population.canaries),
    )


def _check_budget(experiment: Experiment, charged: tuple[AccountPlan, ...], delta: float) -> None:
    """Refuse a plan that not even an untouched account could pay for."""
    budget = experiment.budget
    for account in charged:
        if budget is not None and (account.epsilon > budget.epsilon or delta > budget.delta):
            raise BudgetRefused.about(
                "budget",
                f"cannot pay for this plan: account {account.name!r} would spend epsilon={account.epsilon:.4g} "
                f"at delta={delta:.3g}",
                "lower privacy.epsilon",
                epsilon=budget.epsilon,
                delta=budget.delta,
            )


def _one_persons(experiment: Experiment, charged: tuple[AccountPlan, ...], worst: AccountPlan) -> Events:
    """The events that can touch one person: one account's, or every silo's where a person may be in several."""
    if experiment.privacy.unit is Unit.CLIENT or experiment.privacy.silos_per_person == 1:
        return worst.events
    return tuple(event for account in charged for event in account.events)


def _with_step_size(experiment: Experiment, outlook: Forecast, parameters: int) -> Experiment:
    """The learning rate that makes the noise of the whole run move each parameter by `noise_walk`."""
    local = experiment.local
    if local.noise_walk is None or experiment.privacy.unit is Unit.CLIENT or local.clip is None:
        return experiment
    per_step = local.clip / (outlook.step * math.sqrt(parameters))
    return config.changed(experiment, local__lr=local.noise_walk / (per_step * math.sqrt(outlook.steps)))


def _delta(experiment: Experiment, population: Population) -> float:
    n = max(population.units) if experiment.privacy.unit is not Unit.CLIENT else len(population)
    delta = experiment.privacy.delta if experiment.privacy.delta is not None else min(1e-5, n**-1.1)
    if delta >= 1 / n:
        raise ConfigError.about(
            "privacy",
            f"must be below 1/n = {1 / n:.3g} for the n={n} units protected",
            "1e-5 suits most",
            delta=delta,
        )
    return delta


def _check_parts(experiment: Experiment) -> None:
    """Strategy and objective have no part in the price, but a plan that could not run is no plan."""
    parts: tuple[tuple[str, Registry[Any], dict[str, Any]], ...] = (
        ("strategy", strategies, experiment.strategy),
        ("objective", objectives, experiment.objective),
    )
    for where, registry, table in parts:
        name, options = single(where, table)
        registry.build(name, options, f"{where}.{name}")


def _non_private(experiment: Experiment, population: Population, size: int) -> Plan:
    if FIT in (experiment.rounds, experiment.local.batch):
        raise ConfigError.about("experiment", "has nothing to fit without a budget", "give rounds and batch")
    check_without_privacy(experiment)
    weights, outlook = forecast(experiment, population, [], size)
    return Plan(
        experiment=experiment,
        adjacency=Adjacency.ADD_REMOVE,
        delta=0.0,
        accountant="none",
        accounts=(),
        views={"final model": math.inf, "another silo": math.inf, "coordinator": math.inf},
        attack=None,
        forecast=outlook,
        weights=weights,
        parameters=size,
        clients=population.names,
        digest=_digest(experiment, population, Adjacency.ADD_REMOVE, 0.0, ()),
        canaries=cost(population.train, population.canaries),
    )


def _digest(
    experiment: Experiment,
    population: Population,
    adjacency: Adjacency,
    delta: float,
    charged: tuple[AccountPlan, ...],
) -> str:
    """SHA-256 over everything that shapes the run and its guarantee, as canonical JSON.

    What only looks at the result, such as `[compare]`, changes speed alone or says who allows it is left out: changing
    it must not be a second release.
    """
    shaping = config.to_plain(experiment)
    for name in ("compare", "approval", "enforcement"):
        shaping.pop(name, None)
    shaping["evaluation"].pop("every", None)
    shaping["simulation"].pop("cohort", None)
    shaping["local"].pop("micro_batch", None)
    body = {
        "experiment": shaping,
        "clients": population.names,
        "units": population.units,
        "adjacency": adjacency,
        "delta": delta,
        "charges": [(a.name, a.charges) for a in charged],
    }
    if population.canaries is not None:
        body["canaries"] = population.canaries.digest
    if experiment.local.records_per_person is not None or experiment.groups:
        body["contributors"] = [contributors(experiment, population, i) for i in range(len(population))]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
