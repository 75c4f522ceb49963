"""The currencies of live accounts: what one release costs, and which ε so many units are.

currency   a release costs                       releases it can pay                 ε at δ
rdp        its divergence at the pinned order    whatever has a known curve          conversion at that order
gdp        μ², (moves / noise multiplier)²       Gaussians that nobody sampled       exact
zcdp       ρ                                     Gaussians, zCDP, Laplace (ε²/2)     conversion over all orders
pure       ε                                     Laplace, sampled or not             ε itself, δ = 0

Units are whole numbers of 1e-12; a charge is rounded up and a limit down. All of them add up however releases are
chosen: they are filters.

Source:
    Feldman and Zrnic (2020), arXiv:2008.11193, for Rényi filters at a fixed order; Whitehouse et al. (2023),
    arXiv:2203.05481, for zCDP; Smith and Thakurta (2022), arXiv:2210.17520, for μ² of Gaussians; Rogers et al. (2016),
    arXiv:1605.08294, for pure ε. Bun and Steinke (2016), arXiv:1605.02065, for ε²/2.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from sordino.core.errors import BudgetRefused, ConfigError
from sordino.core.types import Adjacency
from sordino.ledger import amounts
from sordino.ledger.account import Account
from sordino.privacy import events

if TYPE_CHECKING:
    from sordino.privacy.events import Event


def price(key: str, account: Account) -> float:
    """What one release costs a live account, in its currency.

    Raises:
        BudgetRefused: The release has no finite price in it.
    """
    value = _price(key, account.currency, account.order, account.adjacency)
    if not math.isfinite(value):
        raise BudgetRefused.about(
            f"account {account.name!r}",
            f"the release has no finite cost in {account.currency!r}",
            "add noise, or open an account in another currency",
            event=key,
        )
    return value


def units(key: str, account: Account, count: int) -> int:
    """So many releases in whole units, rounded up."""
    return amounts.charge(f"account {account.name!r}", price(key, account), amounts.EPSILON, count)


def epsilon(spent: int, account: Account) -> float:
    """ε of so many units at the account's δ; nothing charged is 0."""
    if spent == 0:
        return 0.0
    return _epsilon(amounts.number(spent, amounts.EPSILON), account)


def limit(account: Account) -> int:
    """The most units whose ε stays within the account's limit.

    Raises:
        ConfigError: Not even one unit does.
    """
    if account.currency == "pure":
        return amounts.limit(f"account {account.name!r}", account.epsilon, amounts.EPSILON)
    low, high = 0, amounts.LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(middle, account) <= account.epsilon else (low, middle)
    if low == 0 or (account.currency == "rdp" and epsilon(low, account) == 0.0):
        raise ConfigError.about(
            f"account {account.name!r}",
            f"converts to more than epsilon={account.epsilon:g} before anything is charged",
            "pin a higher order, or allow a larger delta",
            order=account.order,
            delta=account.delta,
        )
    return low


def limits(account: Account) -> dict[str, int]:
    """Both limits of an account in whole units, rounded down, as they stand in its row."""
    where = f"account {account.name!r}"
    epsilon_units = amounts.limit(where, account.epsilon, amounts.EPSILON)
    return {
        "limit_units": limit(account) if account.live else epsilon_units,
        "delta_limit_units": amounts.limit(where, account.delta, amounts.DELTA) if account.delta else 0,
    }


def _epsilon(value: float, account: Account) -> float:
    if account.currency == "pure":
        return value
    if account.currency == "gdp":
        from sordino.privacy import gaussian

        return gaussian.epsilon_of(math.sqrt(value), account.delta)
    if account.currency == "zcdp":
        from sordino.privacy import renyi

        return renyi.zcdp_epsilon(value, account.delta)
    from sordino.privacy import accounting

    return accounting.rdp_to_epsilon(value, account.order or 0.0, account.delta)


@functools.lru_cache(maxsize=4096)
def _price(key: str, currency: str, order: float | None, adjacency: Adjacency) -> float:
    from sordino.privacy import accounting, relations

    event = events.from_key(key)
    if currency == "rdp":
        return accounting.rdp_units(event, order or 0.0, adjacency)
    form, moves = relations.form(event), relations.moves(adjacency)
    if form == "Gaussian" and currency in {"gdp", "zcdp"}:
        mu_squared = (moves / event.noise_multiplier) ** 2
        return float(mu_squared if currency == "gdp" else mu_squared / 2)
    if currency == "zcdp" and form == "ZCDpEvent" and getattr(event, "xi", 0) == 0:
        return float(moves**2 * event.rho)
    pure = _pure(form, event, moves)
    if pure is not None and currency in {"zcdp", "pure"}:
        return pure if currency == "pure" else pure**2 / 2
    return math.inf


def _pure(form: str, event: Event, moves: int) -> float | None:
    """The ε at δ = 0 of one release, where it has one. A unit replaced is one removed and one added."""
    from sordino.privacy import laplace

    if form == "Laplace":
        return float(moves * laplace.pure_epsilon(event.noise_multiplier))
    if form == "PoissonSampled(Laplace)":
        inner = event.event.noise_multiplier
        return float(moves * laplace.pure_epsilon(inner, rate=event.sampling_probability))
    return None
