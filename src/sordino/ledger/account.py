"""An account: whose people, how neighbours differ, and how much they may lose in all. Its terms never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import amounts

Currency: TypeAlias = Literal["plan", "rdp", "gdp", "zcdp", "pure"]

Scope: TypeAlias = Literal["federation", "domain", "silo", "block", "run", "analyst"]
"""Whose budget it is. The first four are sets of people, each part of the one before; the last two are quotas."""

PEOPLE: tuple[Scope, ...] = ("federation", "domain", "silo", "block")
"""Scopes of people, widest first. A parent stands before its children."""


@dataclass(frozen=True)
class Account:
    """One budget over one set of people.

    Currency "plan" pays for whole plans that are frozen before their first release: their (ε, δ) add up, which
    holds however the plans are chosen. The others are live filters: every release is charged on its own, which holds
    however the releases are chosen. "rdp" adds up Rényi divergences at one order pinned at opening, "gdp" the μ² of
    Gaussians that nobody sampled, "zcdp" ρ, and "pure" ε itself.

    Accounts of people form a tree: a block of records is part of a silo, a silo of a domain such as health data, a
    domain of the federation. What is charged to an account is charged to all that contain it, or to none.

    Args:
        name: Unique in a ledger.
        unit: Whose presence it protects.
        adjacency: The neighbouring relation.
        epsilon: The limit, > 0.
        delta: The limit, in (0, 1); 0 for "pure".
        currency: What a charge is counted in.
        order: The Rényi order of an "rdp" account, > 1; none otherwise.
        scope: Whose budget it is.
        parent: The account that contains it, or none.
        overlap: In at most how many of the accounts that it contains one unit can be; 1 where they are disjoint, none
            where that is not known: then all of them add up. For "run" and "analyst": of all accounts that pay.
        test: For simulation: seeded noise is allowed, and every line and claim is marked TEST.
        tier: Which tier of the ledger's policy bounds every plan that it pays for; none: no tier.

    Source:
        Feldman and Zrnic (2020), arXiv:2008.11193: a filter over adaptively chosen releases, at a fixed order.
    """

    name: str
    unit: Unit
    adjacency: Adjacency
    epsilon: float
    delta: float
    currency: Currency = "plan"
    order: float | None = None
    scope: Scope = "silo"
    parent: str | None = None
    overlap: int | None = None
    test: bool = False
    tier: str | None = None

    def __post_init__(self) -> None:
        where = f"account {self.name!r}"
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError.about("account", "must be a text", name=self.name)
        checks.one_of(where, get_args(Currency), currency=self.currency)
        checks.one_of(where, get_args(Scope), scope=self.scope)
        checks.positive(where, epsilon=self.epsilon)
        amounts.limit(where, self.epsilon, amounts.EPSILON)
        self._check_delta(where)
        self._check_order(where)
        self._check_place(where)
        for name, kind in (("unit", Unit), ("adjacency", Adjacency)):
            checks.one_of(where, list(kind), **{name: getattr(self, name)})
            object.__setattr__(self, name, kind(getattr(self, name)))
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "order", None if self.order is None else float(self.order))
        object.__setattr__(self, "test", bool(self.test))

    def _check_delta(self, where: str) -> None:
        if self.currency == "pure":
            if self.delta != 0:
                raise ConfigError.about(where, "is 0 for a pure budget", "use another currency", delta=self.delta)
            return
        checks.fraction(where, delta=self.delta)
        amounts.limit(where, self.delta, amounts.DELTA)

    def _check_order(self, where: str) -> None:
        if self.currency != "rdp":
            if self.order is not None:
                raise ConfigError.about(where, "belongs to currency 'rdp' only", order=self.order)
            return
        checks.positive(where, order=self.order or 0.0)
        if self.order is None or self.order <= 1:
            raise ConfigError.about(where, "must lie above 1", order=self.order)

    def _check_place(self, where: str) -> None:
        if self.overlap is not None:
            checks.count(where, overlap=self.overlap)
        if self.parent is None:
            return
        if self.scope not in PEOPLE[1:]:
            raise ConfigError.about(where, "is contained in nothing", "leave it out", parent=self.parent)
        if self.parent == self.name:
            raise ConfigError.about(where, "cannot contain itself", parent=self.parent)

    @property
    def live(self) -> bool:
        """Whether it pays release by release."""
        return self.currency != "plan"

    def terms(self) -> dict[str, Any]:
        """The fields as plain values, as they stand in the history; `tier` only where there is one."""
        told = {**asdict(self), "unit": str(self.unit), "adjacency": str(self.adjacency)}
        return {name: value for name, value in told.items() if name != "tier" or value is not None}

    @classmethod
    def of(cls, terms: Mapping[str, Any]) -> Account:
        """The inverse of `terms`."""
        return cls(**{**terms, "unit": Unit(terms["unit"]), "adjacency": Adjacency(terms["adjacency"])})


@dataclass(frozen=True)
class Balance:
    """What an account may lose, has lost and has left; how many releases stand behind it.

    A frozen plan counts as used from the moment it is admitted; a forfeited release counts as released.
    """

    epsilon_limit: float
    delta_limit: float
    epsilon_used: float
    delta_used: float
    epsilon_left: float
    delta_left: float
    held: int
    committed: int
    forfeited: int
    aborted: int = 0
    state: str = "open"
