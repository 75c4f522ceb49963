"""Flower's `PrivacyAccountant` over a ledger: for those who run Flower's own strategies, and want a budget that lasts.

Flower 1.42, fixed clipping, round t     train ─► replies ─► clip ─► mean ─► + noise ─► compose ─► the next model
                                          │ would_exceed                      (in memory)  │ charged, durably
                                          └ refused before anything is sent                └ refused: nothing leaves

Flower asks `would_exceed` before a round, and calls `compose` when the noise is drawn and the model has not left the
server's process: not to clients, not to a file, not to `evaluate_fn`. A process that dies before `compose` released
nothing and is charged nothing; one that dies inside is charged, perhaps for nothing; one that is refused inside loses
the round. So no model leaves that was not charged. What it is charged for is Flower's word, see `LedgerAccountant`.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Self

from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Claim, Ledger
from sordino.ledger.stores import Place, label
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon, delta_curve
from sordino.privacy.permits import Line

_RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Adjacency.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Adjacency.REPLACE_ONE,
}


class LedgerAccountant:
    """One run of a Flower strategy, planned as at most so many equal releases and charged one by one.

    The ledger is the state: a second process with the same arguments goes on where the first one ended, and whoever is
    still running then is refused. Runs that name the same account add up.

    Guarantee:
        None by itself. Flower clips, averages and draws the noise; this charges what Flower says it did. So accounts,
        charges and claims are marked TEST, which in a ledger says that nobody here vouches for the noise.

    Args:
        place: The ledger: a file, or a PostgreSQL URL.
        run: The run's name in it. A changed plan is a new run.
        config: Flower's; `max_epsilon` is needed.
        event: What one round releases, as the strategy will say it.
        most: How many rounds at most. The ledger charges the account for all of them at once, since when a run stops
            may depend on what it released.
        account: Whose people: the clients of a federation. One name for all runs on the same people.
        epsilon: What they may lose over all runs. It holds when the account is opened; left out, `max_epsilon`.
        delta: Likewise; left out, `target_delta`.

    Raises:
        BudgetRefused: The account cannot pay for the plan; the message says what would fit.
        PrivacyError: The run has another plan, or the account is of other people or another relation.
        ConfigError: The plan makes no sense.
    """

    def __init__(
        self,
        place: Place,
        run: str,
        config: PrivacyConfig,
        event: GaussianPrivacyEvent,
        most: int,
        *,
        account: str = "clients",
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        checks.count("accountant", most=most)
        if config.max_epsilon is None:
            raise ConfigError.about("accountant", "is needed: Flower asks before a round only then", max_epsilon=None)
        self._place, self._run, self._config, self._most, self._account = place, run, config, most, account
        self._key = self._kind(event)
        self._adjacency = _RELATIONS[config.neighboring_relation]
        self._ledger = Ledger(place)
        try:
            self._open(
                Account(
                    account,
                    Unit.CLIENT,
                    self._adjacency,
                    config.max_epsilon if epsilon is None else epsilon,
                    config.target_delta if delta is None else delta,
                    test=True,
                )
            )
        except BaseException:
            self._ledger.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _open(self, account: Account) -> None:
        known = {one.name: one for one in self._ledger.accounts()}.get(account.name)
        if known is None:
            self._ledger.open_account(account)
        elif (known.unit, known.adjacency, known.test) != (account.unit, account.adjacency, account.test):
            raise PrivacyError.about(
                "accountant",
                f"is of a {known.unit} under {known.adjacency}{'' if known.test else ', and real'}",
                "name another account, or another ledger",
                account=account.name,
            )
        plan = ((events.from_key(self._key), self._most),)
        self._ledger.admit(
            self._run,
            self._digest,
            {account.name: plan},
            self._config.target_delta,
            noise_at=NoiseAt.COORDINATOR,
            rounds=self._most,
        )
        self._ledger.open_run(self._run)
        self._ledger.forfeit_open(self._run)  # a process that died inside `compose`: perhaps its model left

    @cached_property
    def _digest(self) -> str:
        told = [self._run, self._account, self._key, self._most, repr(self._config)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    # ── Flower's protocol ──

    @property
    def config(self) -> PrivacyConfig:
        """Flower's configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Releases charged to this run, in whatever process."""
        return sum(count for _, count in self._charged())

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Charge releases, durably, before they leave.

        Raises:
            BudgetRefused: They are more than were planned, or not the planned ones; the release must not leave.
            PrivacyError: Another process has taken the run over.
        """
        checks.count("accountant", count=count)
        line, number = Line(self._account, Unit.CLIENT, self._kind(event), count), len(self._ledger.charges(self._run))
        charge = self._ledger.reserve(f"{self._run}/{number}", self._run, number, "train", [line])
        # The model is Flower's, and unknown here: the ledger keeps a digest of what was said of it.
        self._ledger.hand_over(charge, hashlib.sha256(f"{line.key} x {count}".encode()).hexdigest())

    def get_epsilon(self, delta: float) -> float:
        """The price of what was charged so far, as if exactly that had been planned; `claim` has the guarantee."""
        checks.fraction("accountant", delta=delta)
        return self._epsilon(self._charged(), delta)

    def get_delta(self, epsilon: float) -> float:
        """As `get_epsilon`, the other way round."""
        charged = self._charged()
        return float(delta_curve(charged, [epsilon], adjacency=self._adjacency)[0]) if charged else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """As `get_epsilon`, as Flower logs it."""
        at, charged = self._config.target_delta if delta is None else delta, self._charged()
        method = best_epsilon(charged, at, adjacency=self._adjacency).accountant if charged else "none"
        spent = sum(count for _, count in charged)
        return PrivacySpent(self._epsilon(charged, at), at, spent, f"sordino ledger, {method}, TEST")

    def would_exceed(self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether `compose` would be refused, or the price would be above a limit."""
        checks.count("accountant", count=count)
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        checks.positive("accountant", max_epsilon=float(limit or 0))
        key, charged = self._kind(event), self._charged()
        if key != self._key or sum(number for _, number in charged) + count > self._most:
            return True
        if self._ledger.balance(self._account).state != "open":
            return True
        return self._epsilon([*charged, (events.from_key(key), count)], self._config.target_delta) > float(limit or 0)

    def state_dict(self) -> dict[str, object]:
        """Where the ledger is and how far it had come: it cannot be restored from anything else."""
        return {
            "schema_version": 1,
            "backend": "sordino-ledger",
            "ledger": label(self._place),
            "run": self._run,
            "plan": self._digest,
            "hash": self._ledger.history()[-1].hash,
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Return only if the ledger is the one that the state was taken from, or has gone on since.

        Raises:
            PrivacyError: The state is of another run or plan.
            VerificationError: The ledger does not know it: it was put back, or is another one.
        """
        told = {"backend": "sordino-ledger", "run": self._run, "plan": self._digest}
        if any(state.get(name) != value for name, value in told.items()):
            raise PrivacyError.about("accountant", "is of another run or plan", run=state.get("run"))
        if all(entry.hash != state.get("hash") for entry in self._ledger.history()):
            raise VerificationError.about(
                "accountant",
                "has not seen what the state says: it was put back, or is another ledger",
                "find the newer ledger; nothing was spent",
                ledger=label(self._place),
            )

    # ── what the ledger adds ──

    def claim(self) -> Claim:
        """What the ledger says was lost: the whole plan, whenever the run ends; marked TEST."""
        return self._ledger.claim(self._run, self._account)

    def _charged(self) -> list[tuple[Any, int]]:
        counts: dict[str, int] = {}
        for charge in self._ledger.charges(self._run):
            for line in charge.lines if charge.state != "aborted" else ():
                counts[line.key] = counts.get(line.key, 0) + line.count
        return [(events.from_key(key), count) for key, count in counts.items()]

    def _epsilon(self, charged: events.Events, delta: float) -> float:
        return float(best_epsilon(charged, delta, adjacency=self._adjacency).epsilon) if charged else 0.0

    def _kind(self, event: GaussianPrivacyEvent) -> str:
        """A release as the ledger names it, under the sampling that the configuration states."""
        if event.population_size != self._config.population_size:
            raise ConfigError.about(
                "accountant",
                "is another population than the configuration's",
                population_size=event.population_size,
                configured=self._config.population_size,
            )
        noise, size, people = events.gaussian(event.noise_multiplier), event.sample_size, event.population_size
        if self._config.sampling_method is SamplingMethod.POISSON:
            return events.key(events.poisson(size / people, noise))
        if self._config.sampling_method is SamplingMethod.WITHOUT_REPLACEMENT:
            return events.key(events.without_replacement(people, size, noise))
        return events.key(noise)
