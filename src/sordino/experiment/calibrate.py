"""Find what an experiment leaves open: the noise, the rounds, or the rate at which records join a batch.

    epsilon, rounds, rate              ──► noise multiplier, per account
    epsilon, noise, rounds = "fit"     ──► the most rounds that every account can pay for
    epsilon, noise, batch = "fit"      ──► the largest rate
    epsilon of each group, rate        ──► noise, and the rate or clip share of each group
    all given                          ──► refused if an account cannot pay

Always on the safe side: what is found costs every account at most its epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sordino.core.errors import BudgetRefused, ConfigError
from sordino.core.types import NoiseAt
from sordino.experiment import config, individual
from sordino.experiment.accounts import Account, releases
from sordino.experiment.config import FIT, Experiment
from sordino.experiment.pricing import Pricing
from sordino.privacy import calibration, events

if TYPE_CHECKING:
    from sordino.privacy.events import Events

UNUSED = 1.0
"""Noise multiplier of an account that no round of the plan touches."""


@dataclass(frozen=True)
class Calibration:
    """Finds whichever of noise, rounds and rate was left open, on the safe side for every account.

    With `rough`, noise is found within 1 %: for outlooks, not for promises.
    """

    pricing: Pricing
    accounts: tuple[Account, ...]
    rough: bool = False

    @property
    def experiment(self) -> Experiment:
        """What is wanted."""
        return self.pricing.experiment

    def found(self) -> tuple[Experiment, list[float]]:
        """The experiment with nothing left open, and the noise multiplier of each account.

        Raises:
            ConfigError: Too much is left open.
            BudgetRefused: Nothing is left open, and it does not fit.
        """
        privacy = self.experiment.privacy
        if self.experiment.groups:
            experiment, noise = individual.found(self.pricing, self.accounts)
            return experiment, [noise] * len(self.accounts)
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
        return found, [z] * len(self.accounts)

    def _noise(self) -> list[float]:
        # One common noise where one draw serves all; otherwise each account pays with its own.
        found: dict[Any, float] = {}
        result = []
        for account in self.accounts:
            shape = (account.epsilon, tuple((events.key(e), n) for e, n in self.pricing.events(account.client, 1.0)))
            if shape not in found:
                found[shape] = self._noise_for(account)
            result.append(found[shape])
        shared = self.experiment.privacy.noise_at is not NoiseAt.SILO
        if not shared:
            return result
        paid = [z for account, z in zip(self.accounts, result, strict=True) if self._pays(account)]
        return [max(paid, default=UNUSED)] * len(result)

    def _pays(self, account: Account) -> bool:
        return releases(self.experiment, account.client, self.pricing.clients, self.experiment.count) > 0

    def _noise_for(self, account: Account) -> float:
        limit = self._limit(account)
        if not self._pays(account):
            return UNUSED
        return calibration.calibrate_noise(
            lambda z: self.pricing.events(account.client, z),
            limit,
            self.pricing.delta,
            adjacency=self.pricing.adjacency,
            rough=self.rough,
        )

    def _fit(self, what: str, z: float) -> Experiment:
        field, calibrate = (
            ("rounds", calibration.calibrate_steps)
            if what == "rounds"
            else ("local__batch", calibration.calibrate_rate)
        )
        values: dict[Any, Any] = {}
        for account in self.accounts:
            limit = self._limit(account)

            def events_of(value: Any, account: Account = account) -> Events:
                return self.pricing.of(**{field: value}).events(account.client, z)

            # At a fixed number of rounds, accounts that are charged alike at one rate are charged alike at all.
            shape = account.name if what == "rounds" else (limit, tuple(n for _, n in events_of(0.5)))
            if shape not in values:
                values[shape] = calibrate(events_of, limit, self.pricing.delta, adjacency=self.pricing.adjacency)
        return config.changed(self.experiment, **{field: min(values.values())})

    def _limit(self, account: Account) -> float:
        if account.epsilon is None:
            raise ConfigError.about("privacy", "is needed for every silo", "write `epsilon = …`", silo=account.name)
        return account.epsilon

    def _check_limits(self, experiment: Experiment, z: float) -> None:
        pricing = replace(self.pricing, experiment=experiment)
        for account in self.accounts:
            price = pricing.epsilon(account.client, z)
            if account.epsilon is not None and price > account.epsilon:
                raise BudgetRefused.about(
                    "plan",
                    f"would spend epsilon={price:.4g} of account {account.name!r}, which has {account.epsilon:.4g}",
                    'set rounds = "fit", or leave noise_multiplier out to have it found',
                    rounds=experiment.count,
                    noise_multiplier=z,
                )
