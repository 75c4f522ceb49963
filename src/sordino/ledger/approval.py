"""Signed plans: what a privacy officer approves, in plain values, and who signed it.

sordino plan approve heart.toml --key officer.pem ──► heart.approved.json ──► every silo checks it before it trains
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sordino.core import tables
from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import history
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.officers import Installed, Signed
from sordino.privacy import events

_LATER = ("model", "clients", "secure_sum")


@dataclass(frozen=True)
class PlanTerms:
    """What is approved. Everything that a silo needs to price and refuse the plan stands here in the clear.

    Args:
        run: The name that ledgers know the plan by.
        digest: Over everything that shapes the run and its guarantee.
        epsilon: Of the worst account, at `delta`.
        delta: Failure probability.
        unit: Whose presence is hidden.
        noise_at: Where noise is added.
        adjacency: The neighbouring relation.
        mechanism: The law of the noise.
        rounds: How many there are.
        accounts: What each account is charged: event keys with counts.
        data: The data set with its columns, as the experiment file names it.
        code: Digest of the code that planned it.
        clip: L2 norm of one unit's gradient, where there is one.
        test: A simulation, whose noise may be predictable.
        model: The model with its base, as the experiment file names it; approvals before it was asked for have none.
        shared: The one account that stands for all clients, where each may be in any cohort.
        clients: Their names then; each pays in its own ledger what the shared account is charged.
        secure_sum: Where noise is drawn in shares: for how many silos, and how many of them are feared to tell.
    """

    run: str
    digest: str
    epsilon: float
    delta: float
    unit: Unit
    noise_at: NoiseAt
    adjacency: Adjacency
    mechanism: str
    rounds: int
    accounts: dict[str, dict[str, int]]
    data: dict[str, Any]
    code: str
    clip: float | None = None
    test: bool = False
    model: dict[str, Any] = field(default_factory=dict)
    shared: str | None = None
    clients: tuple[str, ...] = ()
    secure_sum: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shared is not None and (self.accounts.keys() != {self.shared} or not self.clients):
            raise ConfigError.about("approval", "must be the only account, for named clients", shared=self.shared)

    @property
    def canonical(self) -> str:
        """One text for all terms that say the same."""
        told = tables.plain(self)
        # What older approvals do not say is left out where it says nothing: their signatures still hold.
        return history.canonical({name: value for name, value in told.items() if name not in _LATER or value})

    @property
    def message(self) -> bytes:
        """What officers sign."""
        return b"sordino plan\n" + self.canonical.encode()

    @property
    def sha256(self) -> str:
        """The digest of `canonical`."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def events(self, accounts: Sequence[str]) -> dict[str, events.Events]:
        """What these accounts are charged, of those that the plan names; any, where one stands for all clients."""
        charged = {name: self.accounts.get(self.shared or name) for name in accounts}
        return {
            name: tuple((events.from_key(key), count) for key, count in counts.items())
            for name, counts in charged.items()
            if counts is not None
        }

    @property
    def silos(self) -> tuple[str, ...]:
        """Who takes part, by name."""
        names = self.clients if self.shared is not None else tuple(name.partition("/")[0] for name in self.accounts)
        return tuple(sorted(set(names)))


@dataclass(frozen=True)
class Approval:
    """A plan's terms and the officers' signatures under them.

    Args:
        terms: What is approved.
        signatures: By officer.
        orders: Orders to `approve` it, each for one ledger that has a policy.
    """

    terms: PlanTerms
    signatures: Mapping[str, str] = field(default_factory=dict)
    orders: tuple[Signed, ...] = ()

    def sign(self, key: SigningKey) -> Approval:
        """With one more signature, and on each order."""
        signatures = {**self.signatures, key.name: key.sign(self.terms.message)}
        return Approval(self.terms, signatures, tuple(order.sign(key) for order in self.orders))

    def signers(self, officers: Sequence[VerifyKey], need: int) -> tuple[str, ...]:
        """Those of the officers who signed, if they are enough.

        Raises:
            PrivacyError: They are too few: the plan is not approved.
            VerificationError: A signature is not its officer's.
        """
        found = []
        for officer in officers:
            if officer.name in self.signatures:
                try:
                    officer.verify(self.terms.message, self.signatures[officer.name])
                except VerificationError as error:
                    raise VerificationError.about(
                        "approval", "is not signed as given: it was changed or forged", officer=officer.name
                    ) from error
                found.append(officer.name)
        if len(found) < need:
            raise PrivacyError.about(
                "approval",
                f"needs {need} of {', '.join(officer.name for officer in officers)} and has {len(found)}",
                "sordino plan approve FILE --key OFFICER.pem",
                plan=self.terms.digest[:16],
            )
        return tuple(found)

    def order_for(self, installed: Installed | None) -> Signed | None:
        """The order for the ledger in which this policy is installed."""
        here = [o for o in self.orders if installed is not None and o.order.event == installed.event]
        return here[-1] if here else None

    @property
    def text(self) -> str:
        """As a JSON file."""
        value = {"plan": tables.plain(self.terms), "signatures": dict(sorted(self.signatures.items()))}
        orders = {"orders": [order.plain() for order in self.orders]} if self.orders else {}
        return json.dumps({**value, **orders}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def parse(cls, text: str) -> Approval:
        """The inverse of `text`.

        Raises:
            ConfigError: It is no approval.
        """
        try:
            value = json.loads(text)
            signatures = {str(name): str(signature) for name, signature in value["signatures"].items()}
            orders = tuple(Signed.of(order) for order in value.get("orders", ()))
            return cls(tables.build(PlanTerms, value["plan"], "approval.plan"), signatures, orders)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError.about(
                "approval", "is not an approved plan", "write one with `sordino plan approve`"
            ) from None
