"""What a question costs, before it is asked: the same arithmetic as the ledger's, in the account's own currency.

offer      noise                              pure         zcdp, rdp
epsilon    discrete Laplace, noisy maximum    ε            ρ = Σ εᵢ² / 2
rho        discrete Gaussian, noisy maximum   refused      ρ

Whole numbers get discrete noise. A bound on ε or ρ holds for it as for the continuous law; finer curves do not: a
discrete count under Laplace noise risks more at a Rényi order than the real line would, and a discrete Gaussian is
not exactly μ-GDP. So an "rdp" account is charged ρ, and a "gdp" account is refused.

Source: Canonne, Kamath and Steinke (2020), arXiv:2004.00010, for ρ of the discrete Gaussian. Bun and Steinke (2016),
arXiv:1605.02065, for ε²/2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal, TypeAlias

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency
from sordino.ledger import Account, amounts, currencies
from sordino.privacy import events, laplace, relations

Law: TypeAlias = Literal["laplace", "gaussian"]


@dataclass(frozen=True)
class Offer:
    """What the asker would pay for a whole question: one of the two.

    Args:
        epsilon: Pure differential privacy.
        rho: Zero-concentrated differential privacy.
    """

    epsilon: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise ConfigError.about("query", "needs a price", "give epsilon or rho, one of them")
        checks.sensible("query", **{self.name: self.amount})

    @property
    def name(self) -> str:
        """Which of the two."""
        return "rho" if self.epsilon is None else "epsilon"

    @property
    def amount(self) -> float:
        """How much."""
        return (self.rho if self.epsilon is None else self.epsilon) or 0.0

    def of(self, amount: float) -> Offer:
        """The same, at another amount."""
        return replace(self, **{self.name: amount})


@dataclass(frozen=True)
class Tariff:
    """What each release of a question is charged, and what its noise has to honour.

    Args:
        key: The charged event.
        count: How many releases.
        law: Which noise.
        amount: ε (laplace) or ρ (gaussian) of one release for one unit, as charged.
        moves: How many units' worth of rows a neighbour moves: 1, or 2 where one replaces another.
    """

    key: str
    count: int
    law: Law
    amount: float
    moves: int


@dataclass(frozen=True)
class Price:
    """What a question would cost its account.

    Args:
        account: Which account.
        currency: What it counts in.
        cost: Of the question, as the ledger rounds it; 0 if it was answered before.
        left: What the account would have left.
        more: How many more questions at this price all that pay could bear afterwards; -1 if not even this one.
        answered: It was asked and paid before: the same answer again is free.
        fits: What could be offered instead, as (name, amount), where this does not fit.
    """

    account: str
    currency: str
    cost: float
    left: float
    more: int
    answered: bool = False
    fits: tuple[str, float] | None = None

    def __str__(self) -> str:
        if self.answered:
            return f"costs nothing: it was answered before; {self.left:.6g} of {self.currency} is left"
        if self.more < 0:
            return f"costs {self.cost:.6g} of {self.currency}, more than is left; {self.remedy}"
        return f"costs {self.cost:.6g} of {self.currency}, leaves {self.left:.6g}, {self.more} more like this"

    @property
    def remedy(self) -> str:
        """What would fit instead."""
        return "nothing would fit" if self.fits is None else f"{self.fits[0]}={self.fits[1]:g} would fit"


Payers: TypeAlias = Mapping[str, tuple[Account, int]]
"""Accounts that pay for a question, and how many units each has left."""


def tariff(offer: Offer, releases: int, payers: Payers, adjacency: Adjacency) -> Tariff:
    """The offer in equal parts, one for each release.

    Raises:
        ConfigError: An account that pays cannot count such a release.
    """
    _require_payable(offer, payers)
    moves, share = relations.moves(adjacency), _share(offer.amount, releases)
    if offer.rho is not None:
        rho = share / moves**2
        return Tariff(events.key(events.zcdp(rho)), releases, "gaussian", moves**2 * rho, moves)
    if any(account.currency == "pure" for account, _ in payers.values()):
        multiplier = moves / share
        while moves * laplace.pure_epsilon(multiplier) > share:  # the last bits of a float must not cost a unit more
            multiplier = math.nextafter(multiplier, math.inf)
        amount = moves * laplace.pure_epsilon(multiplier)
        return Tariff(events.key(events.laplace(multiplier)), releases, "laplace", amount, moves)
    rho = math.nextafter(share**2 / 2 / moves**2, math.inf)
    return Tariff(events.key(events.zcdp(rho)), releases, "laplace", share, moves)


def price(account: str, offer: Offer, releases: int, payers: Payers, *, answered: bool) -> Price:
    """What the ledger will charge for it; see `Price`."""
    terms, room = payers[account]
    charged = tariff(offer, releases, payers, terms.adjacency)
    cost = currencies.units(charged.key, terms, charged.count)
    if answered:
        return Price(account, terms.currency, 0.0, _number(room), _times(charged, payers), answered=True)
    more = _times(charged, payers) - 1
    fits = None if more >= 0 else _fitting(offer, releases, payers, terms.adjacency)
    return Price(account, terms.currency, _number(cost), _number(max(0, room - cost)), more, fits=fits)


def _share(amount: float, releases: int) -> float:
    """An equal part, so that all parts together are not one unit more than the whole as it was written."""
    share = amount / releases
    while Decimal(repr(share)) * releases > Decimal(repr(amount)):
        share = math.nextafter(share, 0.0)
    return share


def _require_payable(offer: Offer, payers: Payers) -> None:
    paid_in = {account.currency: account.name for account, _ in payers.values()}
    for currency, rule, remedy in (
        ("plan", "pays whole plans, fixed beforehand; questions are chosen one by one", "open a 'pure' or 'zcdp' one"),
        ("gdp", "counts Gaussians of the real line; answers are whole numbers", "open a 'zcdp' account"),
    ):
        if currency in paid_in:
            raise ConfigError.about(f"account {paid_in[currency]!r}", rule, remedy, currency=currency)
    if "pure" in paid_in and (offer.rho is not None or "rdp" in paid_in):
        what = "rho" if offer.rho is not None else f"what account {paid_in['rdp']!r} can"
        raise ConfigError.about(f"account {paid_in['pure']!r}", f"counts pure epsilon, not {what}", "offer epsilon")


def _times(charged: Tariff, payers: Payers) -> int:
    return min(room // currencies.units(charged.key, account, charged.count) for account, room in payers.values())


def _fitting(offer: Offer, releases: int, payers: Payers, adjacency: Adjacency) -> tuple[str, float] | None:
    """The largest part of the offer that all can pay, to three digits."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if offer.amount * middle < 1e-12 * releases:
            return None
        fits = _times(tariff(offer.of(offer.amount * middle), releases, payers, adjacency), payers) >= 1
        low, high = (middle, high) if fits else (low, middle)
    amount = offer.amount * high
    digits = 2 - math.floor(math.log10(amount))
    for part in (math.ceil(amount * 10.0**digits), math.floor(amount * 10.0**digits)):
        rounded = part / 10.0**digits
        if _times(tariff(offer.of(rounded), releases, payers, adjacency), payers):
            return offer.name, rounded
    return None


def _number(units: int) -> float:
    return amounts.number(units, amounts.EPSILON)
