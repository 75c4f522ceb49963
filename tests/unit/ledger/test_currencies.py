"""Live currencies: charges are never below the exact price, limits never above, and what has no price is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import BudgetRefused, ConfigError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, currencies
from sordino.privacy import accounting, events

CURRENCIES = ("rdp", "gdp", "zcdp")


def account(currency, adjacency=Adjacency.ADD_REMOVE, epsilon=8.0):
    delta = 0.0 if currency == "pure" else 1e-5
    order = 8.0 if currency == "rdp" else None
    return Account("a", Unit.RECORD, adjacency, epsilon, delta, currency=currency, order=order)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("currency", CURRENCIES)
@settings(max_examples=25, deadline=None)
@given(noise=st.floats(0.7, 50.0), count=st.integers(1, 200))
def test_epsilon_is_never_below_the_accountants(currency, adjacency, noise, count):
    """I9: what the ledger says of a number of Gaussians is at least what the exact accountant says."""
    terms, event = account(currency, adjacency), events.gaussian(noise)
    spent = currencies.units(events.key(event), terms, count)
    exact = accounting.best_epsilon([(event, count)], 1e-5, adjacency=adjacency).epsilon
    assert currencies.epsilon(spent, terms) >= exact * (1 - 1e-9)


def test_gdp_is_exact_for_gaussians():
    terms = account("gdp")
    spent = currencies.units(events.key(events.gaussian(8.0)), terms, 177)
    assert currencies.epsilon(spent, terms) == pytest.approx(7.99, abs=0.02)
    assert currencies.limit(terms) / 1e12 == pytest.approx(2.7757, abs=1e-3)


@pytest.mark.parametrize("currency", [*CURRENCIES, "pure"])
def test_a_limit_is_the_last_unit_that_fits(currency):
    terms = account(currency)
    limit = currencies.limit(terms)
    assert currencies.epsilon(limit, terms) <= terms.epsilon < currencies.epsilon(limit + 10**6, terms)


def test_pure_epsilon_adds_up():
    terms = account("pure")
    assert currencies.price(events.key(events.laplace(4.0)), terms) == 0.25
    assert currencies.price(events.key(events.laplace(4.0)), account("pure", Adjacency.REPLACE_ONE)) == 0.5
    sampled = events.poisson(0.1, events.laplace(1.0))
    assert currencies.price(events.key(sampled), terms) == pytest.approx(math.log1p(0.1 * math.expm1(1)))
    assert currencies.price(events.key(events.laplace(4.0)), account("zcdp")) == 0.25**2 / 2


@pytest.mark.parametrize(
    ("currency", "event"),
    [
        ("gdp", events.laplace(1.0)),
        ("gdp", events.poisson(0.1, events.gaussian(1.0))),
        ("zcdp", events.poisson(0.1, events.gaussian(1.0))),
        ("pure", events.gaussian(1.0)),
    ],
)
def test_what_has_no_price_is_refused(currency, event):
    with pytest.raises(BudgetRefused, match="no finite cost"):
        currencies.units(events.key(event), account(currency), 1)


def test_a_pure_budget_has_no_delta():
    with pytest.raises(ConfigError, match="is 0 for a pure budget"):
        Account("a", Unit.RECORD, Adjacency.ADD_REMOVE, 1.0, 1e-5, currency="pure")
