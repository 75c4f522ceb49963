"""An account: whose people, how neighbours differ, and how much they may lose in all. Its terms never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import amounts

Currency: TypeAlias = Literal["plan", "rdp"]


@dataclass(frozen=True)
class Account:
    """One budget over one set of people.

    Currency "plan" pays for whole plans that are frozen before their first release: their (ε, δ) add up, which
    holds however the plans are chosen. Currency "rdp" is a live filter: every release is charged on its own, at one
    Rényi order pinned at opening, which holds however the releases are chosen.

    Args:
        name: Unique in a ledger.
        unit: Whose presence it protects.
        adjacency: The neighbouring relation.
        epsilon: The limit, > 0.
        delta: The limit, in (0, 1).
        currency: What a charge is counted in.
        order: The Rényi order of an "rdp" account, > 1; none otherwise.
        test: For simulation: seeded noise is allowed, and every line and claim is marked TEST.

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
    test: bool = False

    def __post_init__(self) -> None:
        where = f"account {self.name!r}"
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError.about("account", "must be a text", name=self.name)
        checks.one_of(where, ("plan", "rdp"), currency=self.currency)
        checks.positive(where, epsilon=self.epsilon)
        checks.fraction(where, delta=self.delta)
        amounts.limit(where, self.epsilon, amounts.EPSILON)
        amounts.limit(where, self.delta, amounts.DELTA)
        if self.currency == "plan" and self.order is not None:
            raise ConfigError.about(where, "belongs to currency 'rdp' only", order=self.order)
        if self.currency == "rdp":
            checks.positive(where, order=self.order or 0.0)
            if self.order is None or self.order <= 1:
                raise ConfigError.about(where, "must lie above 1", order=self.order)
        for name, kind in (("unit", Unit), ("adjacency", Adjacency)):
            checks.one_of(where, list(kind), **{name: getattr(self, name)})
            object.__setattr__(self, name, kind(getattr(self, name)))
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "order", None if self.order is None else float(self.order))
        object.__setattr__(self, "test", bool(self.test))

    def terms(self) -> dict[str, Any]:
        """The fields as plain values, as they stand in the history."""
        return {**asdict(self), "unit": str(self.unit), "adjacency": str(self.adjacency)}

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
