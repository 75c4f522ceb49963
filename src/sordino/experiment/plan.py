"""An experiment after calibration: what a privacy officer approves. Fixed before the first round, and torch-free.

Experiment + public counts ──► noise, rounds or rate found ──► events ──► guarantee per account and view
                                                          └──► attack bounds, signal-to-noise, digest
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sordino.core.errors import BudgetRefused, ConfigError
from sordino.core.registry import Registry, single
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.experiment import accounts as paying
from sordino.experiment import config
from sordino.experiment.config import FIT, Experiment
from sordino.experiment.forecast import Forecast, forecast
from sordino.experiment.population import Population
from sordino.federation.strategies import strategies
from sordino.local.models import models
from sordino.local.objectives import objectives
from sordino.privacy import calibration, events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.silos import federation_epsilon
from sordino.privacy.tradeoff import AttackBounds, attack_bounds

if TYPE_CHECKING:
    from sordino.privacy.events import Events


@dataclass(frozen=True)
class AccountPlan:
    """What one account will be charged, and the guarantee that gives its people.

    Args:
        name: The silo, the client, or `clients`.
        client: Position among the clients, or None for all.
        units: Protected units behind it.
        epsilon: Guarantee for those units over the whole run, in nats.
        noise_multiplier: Noise scale over the clip norm.
        releases: Noised releases that touch it.
        charges: Event keys with counts.
        limit: The epsilon asked for, if any.
    """

    name: str
    client: int | None
    units: int
    epsilon: float
    noise_multiplier: float
    releases: int
    charges: tuple[tuple[str, int], ...]
    limit: float | None

    @property
    def events(self) -> Events:
        """The charges as events."""
        return tuple((events.from_key(key), count) for key, count in self.charges)


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

    @property
    def private(self) -> bool:
        """Whether anything is protected at all."""
        return bool(self.accounts)

    @property
    def epsilon(self) -> float:
        """The guarantee against whoever sees the final model."""
        return self.views["final model"]

    @property
    def worst(self) -> AccountPlan:
        """The account with the weakest guarantee."""
        return max(self.accounts, key=lambda account: account.epsilon)


def make_plan(experiment: Experiment, population: Population, *, check_learning: bool = True) -> Plan:
    """Calibrate an experiment. Looks at counts and shapes only, never at a record.

    Args:
        experiment: What is wanted; at most one of noise, rounds and rate is left to find.
        population: For the public number of units per client and the shape of a record.
        check_learning: Refuse a plan whose noise drowns what a run could learn.

    Raises:
        ConfigError: Bad combination, or delta too large for the number of units.
        BudgetRefused: Epsilon, noise and rounds are all given and do not fit.
        PrivacyError: No sound guarantee exists for the combination, or the plan cannot learn.
    """
    size = _parameters(experiment, population)
    _check_parts(experiment)
    if experiment.privacy.non_private:
        return _non_private(experiment, population, size)
    delta = _delta(experiment, population)
    adjacency = paying.adjacency_of(experiment)
    terms = paying.accounts(experiment, population.names, population.units)
    find = _Finder(experiment, terms, len(population), delta, adjacency)
    experiment, multipliers = find.all()
    charged = _charged(experiment, terms, multipliers, delta, adjacency, len(population))
    _check_budget(experiment, charged, delta)
    weights, outlook = forecast(experiment, population, [a.noise_multiplier for a in charged], size)
    experiment = _with_step_size(experiment, outlook, size)
    worst = max(charged, key=lambda a: a.epsilon)
    if check_learning:
        outlook.refuse_if_hopeless(
            experiment,
            lambda z: (
                best_epsilon(
                    paying.charged_events(experiment, terms[charged.index(worst)], z, len(population)),
                    delta,
                    adjacency=adjacency,
                ).epsilon
            ),
        )
    return Plan(
        experiment=experiment,
        adjacency=adjacency,
        delta=delta,
        accountant=best_epsilon(worst.events, delta, adjacency=adjacency).accountant,
        accounts=charged,
        views=_views(experiment, charged, delta, adjacency, population),
        attack=attack_bounds(worst.events, delta, adjacency=adjacency),
        forecast=outlook,
        weights=weights,
        parameters=size,
        clients=population.names,
        digest=_digest(experiment, population, adjacency, delta, charged),
    )


@dataclass(frozen=True)
class _Finder:
    """Finds whichever of noise, rounds and rate was left open, on the safe side for every account."""

    experiment: Experiment
    terms: tuple[paying.Account, ...]
    population: int
    delta: float
    adjacency: Adjacency

    def all(self) -> tuple[Experiment, list[float]]:
        privacy = self.experiment.privacy
        open_ = [
            name
            for name, value in (("rounds", self.experiment.rounds), ("local.batch", self.experiment.local.batch))
            if value == FIT
        ]
        if open_ and (len(open_) > 1 or privacy.epsilon is None or privacy.noise_multiplier is None):
            raise ConfigError.about(
                "experiment", "can be found only when epsilon, noise_multiplier and all else are given", fit=open_
            )
        if privacy.noise_multiplier is None:
            return self.experiment, self._noise()
        z = privacy.noise_multiplier
        found = self._fit(open_[0], z) if open_ else self.experiment
        self._check_limits(found, z)
        return found, [z] * len(self.terms)

    def _events(self, experiment: Experiment, account: paying.Account, z: float) -> Events:
        return paying.charged_events(experiment, account, z, self.population)

    def _noise(self) -> list[float]:
        # One common noise where one draw serves all; otherwise each account pays with its own.
        found: dict[Any, float] = {}
        result = []
        for account in self.terms:
            shape = (account.epsilon, tuple((events.key(e), n) for e, n in self._events(self.experiment, account, 1.0)))
            if shape not in found:
                found[shape] = self._noise_for(account)
            result.append(found[shape])
        shared = self.experiment.privacy.noise_at is not NoiseAt.SILO
        return [max(result)] * len(result) if shared else result

    def _noise_for(self, account: paying.Account) -> float:
        if account.epsilon is None:
            raise ConfigError.about("privacy", "is needed for every silo", "write `epsilon = …`", silo=account.name)
        if not self._events(self.experiment, account, 1.0):
            return 1.0
        return calibration.calibrate_noise(
            lambda z: self._events(self.experiment, account, z), account.epsilon, self.delta, adjacency=self.adjacency
        )

    def _fit(self, what: str, z: float) -> Experiment:
        field, calibrate = (
            ("rounds", calibration.calibrate_steps)
            if what == "rounds"
            else ("local__batch", calibration.calibrate_rate)
        )
        values = []
        for account in self.terms:
            if account.epsilon is None:
                raise ConfigError.about("privacy", "is needed for every silo", "write `epsilon = …`", silo=account.name)

            def events_of(value: Any, account: paying.Account = account) -> Events:
                return self._events(config.changed(self.experiment, **{field: value}), account, z)

            values.append(calibrate(events_of, account.epsilon, self.delta, adjacency=self.adjacency))
            if account.client is not None and len({a.epsilon for a in self.terms}) == 1 and field == "local__batch":
                break
        return config.changed(self.experiment, **{field: min(values)})

    def _check_limits(self, experiment: Experiment, z: float) -> None:
        for account in self.terms:
            charged = self._events(experiment, account, z)
            if account.epsilon is None or not charged:
                continue
            price = best_epsilon(charged, self.delta, adjacency=self.adjacency).epsilon
            if price > account.epsilon:
                raise BudgetRefused.about(
                    "plan",
                    f"would spend epsilon={price:.4g} of account {account.name!r}, which has {account.epsilon:.4g}",
                    'set rounds = "fit", or leave noise_multiplier out to have it found',
                    rounds=experiment.count,
                    noise_multiplier=z,
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


def _with_step_size(experiment: Experiment, outlook: Forecast, parameters: int) -> Experiment:
    """The learning rate that makes the noise of the whole run move each parameter by `noise_walk`."""
    local = experiment.local
    if local.noise_walk is None or experiment.privacy.unit is Unit.CLIENT or local.clip is None:
        return experiment
    per_step = local.clip / (outlook.step * math.sqrt(parameters))
    return config.changed(experiment, local__lr=local.noise_walk / (per_step * math.sqrt(outlook.steps)))


def _charged(
    experiment: Experiment,
    terms: tuple[paying.Account, ...],
    multipliers: list[float],
    delta: float,
    adjacency: Adjacency,
    population: int,
) -> tuple[AccountPlan, ...]:
    result = []
    for account, z in zip(terms, multipliers, strict=True):
        charged = paying.charged_events(experiment, account, z, population)
        price = best_epsilon(charged, delta, adjacency=adjacency).epsilon if charged else 0.0
        result.append(
            AccountPlan(
                name=account.name,
                client=account.client,
                units=account.units,
                epsilon=price,
                noise_multiplier=z,
                releases=sum(count for _, count in charged),
                charges=tuple((events.key(event), count) for event, count in charged),
                limit=account.epsilon,
            )
        )
    return tuple(result)


def _views(
    experiment: Experiment,
    charged: tuple[AccountPlan, ...],
    delta: float,
    adjacency: Adjacency,
    population: Population,
) -> dict[str, float]:
    """Epsilon for each observer. `inf` is said, never hidden."""
    privacy = experiment.privacy
    if privacy.unit is Unit.CLIENT:
        epsilon = max(a.epsilon for a in charged)
        coordinator = epsilon if privacy.noise_at is NoiseAt.SILO else math.inf
        return {"final model": epsilon, "another client": epsilon, "coordinator": coordinator}
    per_silo = {a.name: a.events for a in charged}
    epsilon = federation_epsilon(per_silo, delta, adjacency=adjacency, silos_per_person=privacy.silos_per_person)
    if privacy.noise_at is NoiseAt.SILO:
        return {"final model": epsilon, "another silo": epsilon, "coordinator": epsilon, "all others together": epsilon}
    cohort = paying.sampler_of(experiment).expected(len(population))
    worst = max(charged, key=lambda a: a.epsilon)
    share = worst.noise_multiplier / math.sqrt(cohort)
    terms = paying.Account(worst.name, worst.client, worst.units, None)
    left = best_epsilon(
        paying.charged_events(experiment, terms, share, len(population)), delta, adjacency=adjacency
    ).epsilon
    return {
        "final model": epsilon,
        "another silo": epsilon,
        "coordinator, sums only": epsilon,
        "all others together, if each silo adds its share": left,
        "coordinator, if secure summation fails": left,
    }


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


def _parameters(experiment: Experiment, population: Population) -> int:
    name, options = single("model", experiment.model)
    shapes = models.build(name, options, f"model.{name}").shapes(population.spec)
    return sum(math.prod(shape) for _, shape in shapes)


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
    paying.require_step_size(experiment)
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
    )


def _digest(
    experiment: Experiment,
    population: Population,
    adjacency: Adjacency,
    delta: float,
    charged: tuple[AccountPlan, ...],
) -> str:
    """SHA-256 over everything that shapes the run and its guarantee, as canonical JSON."""
    body = {
        "experiment": config.to_plain(experiment),
        "clients": population.names,
        "units": population.units,
        "adjacency": adjacency,
        "delta": delta,
        "charges": [(a.name, a.charges) for a in charged],
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
