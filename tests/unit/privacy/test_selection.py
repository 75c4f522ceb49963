"""The price of private selection: against dp_accounting, against outcomes counted exactly, and its directions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy.special import logsumexp
from scipy.stats import norm

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger
from sordino.ledger.currencies import price
from sordino.privacy import events, renyi, selection
from sordino.privacy.accounting import best_epsilon, epsilon, rdp_units

STEPS = [(events.poisson(0.05, events.gaussian(1.5)), 100), (events.laplace(5.0), 1)]
SHAPES = (0.0, 0.5, 1.0, 3.0, math.inf)


def selected(mean: float = 4.0, shape: float = 1.0) -> events.Event:
    """One selection over trials of some training steps and a score."""
    return events.repeat_and_select(events.composed(STEPS), mean, shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.5, 4.0, 50.0])
def test_the_price_is_that_of_dp_accounting(mean, shape):
    """An independent implementation of the theorems, over the same orders."""
    theirs = RdpAccountant(renyi.ORDERS, NeighboringRelation.ADD_OR_REMOVE_ONE)
    theirs.compose(selected(mean, shape))
    ours = best_epsilon([(selected(mean, shape), 1)], 1e-5, adjacency=Adjacency.ADD_REMOVE)
    assert ours.accountant == "rdp"
    assert ours.epsilon == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_more_trials_cost_more_and_never_less_than_one(shape):
    """The price grows with the mean, and even a mean near one costs more than one trial without selection."""
    prices = [
        epsilon([(selected(mean, shape), 1)], 1e-5, adjacency=Adjacency.ADD_REMOVE, accountant="rdp")
        for mean in (1.001, 1.5, 2, 4, 16, 64, 256)
    ]
    one = epsilon(STEPS, 1e-5, adjacency=Adjacency.ADD_REMOVE, accountant="rdp")
    assert all(a < b for a, b in itertools.pairwise(prices))
    assert prices[0] >= one


LAW = 4096
GRID = np.arange(-24, 25) / 4


def outcomes(shift: float, std: float) -> np.ndarray:
    """A trial whose score is a Gaussian, cut to a grid of values."""
    edges = np.concatenate([[-np.inf], (GRID[1:] + GRID[:-1]) / 2, [np.inf]])
    return np.diff(norm.cdf(edges, loc=shift, scale=std))


def law(mean: float, shape: float) -> np.ndarray:
    """Chances of 0, 1, 2, … trials, from what is really drawn."""
    coins = (np.arange(LAW) + 0.5) / LAW
    drawn = np.array([selection.trials(mean, shape, float(coin)) for coin in coins])
    return np.bincount(drawn) / LAW


def best_of(trial: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Exactly how the best score of a random number of trials is distributed; no trial shows nothing."""
    below = np.concatenate([[0.0], np.cumsum(trial)])
    below[-1] = 1.0
    powers = sum(chance * below**count for count, chance in enumerate(chances) if count)
    return np.concatenate([[chances[0]], np.diff(powers)])


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    kept = p > 0
    return float(logsumexp(order * np.log(p[kept]) + (1 - order) * np.log(q[kept])) / (order - 1))


def excess(mean: float, shape: float, drawn: np.ndarray) -> float:
    """By how much the exact divergence of a selection exceeds its bound, at the worst of some orders."""
    orders = np.array([1.5, 2.0, 4.0, 8.0, 16.0])
    pairs = [(outcomes(0.0, 2.0), outcomes(shift, 2.0)) for shift in (-1.0, 1.0)]
    trial = np.max([[divergence(*pair, order) for order in orders] for pair in pairs], axis=0)
    bound = selection.divergences(orders, trial, mean, shape)
    exact = [[divergence(best_of(p, drawn), best_of(q, drawn), order) for order in orders] for p, q in pairs]
    return float((np.max(exact, axis=0) - bound).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_counted_outcomes_diverge_by_no_more_than_the_bound(shape):
    """Best of so many trials as are drawn, computed exactly for neighbours that shift the score either way."""
    assert excess(4.0, shape, law(4.0, shape)) <= 1e-6


def test_a_fixed_number_of_trials_is_not_covered():
    """Negative control: the best of always eight, priced as a geometric number with a mean barely above one."""
    always = np.eye(1, 9, 8)[0]
    assert excess(1.01, 0.0, always) > 0.1


@pytest.mark.parametrize("shape", SHAPES)
def test_as_many_trials_are_drawn_as_declared(shape):
    """The mean of the drawn law, and no trial only where the law is Poisson's."""
    chances = law(4.0, shape)
    assert float(chances @ np.arange(len(chances))) == pytest.approx(4.0, rel=0.02)
    assert (chances[0] > 0) == math.isinf(shape)
    assert selection.trials(4.0, shape, 1 - 2.0**-53) < 1000


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_survives_its_key(shape):
    """Infinity included, which JSON does not have."""
    event = selected(4.0, shape)
    assert events.from_key(events.key(event)) == event
    assert events.grouped([(event, 1), (event, 2)]) == ((event, 3),)


def test_what_is_inside_must_have_a_known_curve():
    """A fixed-size sample has no price under add/remove, inside a selection or outside; under replace-one it has."""
    inside = events.repeat_and_select(events.without_replacement(100, 10, events.gaussian(2.0)), 4, 1)
    with pytest.raises(PrivacyError, match="SampledWithoutReplacement"):
        best_epsilon([(inside, 1)], 1e-5, adjacency=Adjacency.ADD_REMOVE)
    assert best_epsilon([(inside, 1)], 1e-5, adjacency=Adjacency.REPLACE_ONE).accountant == "rdp"
    for accountant in ("pld", "gdp", "zcdp"):
        with pytest.raises(PrivacyError, match="cannot be priced"):
            epsilon([(selected(), 1)], 1e-5, adjacency=Adjacency.ADD_REMOVE, accountant=accountant)


def test_a_replaced_unit_moves_every_trial_twice_as_far():
    """The factor of two is put in inside the selection too."""
    of = {z: events.repeat_and_select(events.gaussian(z), 4, 1) for z in (2.0, 4.0)}
    replaced = rdp_units(of[4.0], 8.0, Adjacency.REPLACE_ONE)
    assert replaced == pytest.approx(rdp_units(of[2.0], 8.0, Adjacency.ADD_REMOVE), rel=1e-12)


@pytest.mark.parametrize(("mean", "shape"), [(1.0, 1.0), (math.nan, 1.0), (1e5, 1.0), (4.0, -0.5), (4.0, math.nan)])
def test_laws_without_a_theorem_are_refused(mean, shape):
    """Nothing to select from, too many, or no law."""
    with pytest.raises(ConfigError):
        events.repeat_and_select(events.gaussian(1.0), mean, shape)


def test_a_ledger_pays_for_a_selection(tmp_path):
    """As a frozen plan at its ε, release by release at an order, and in no currency that has no curve for it."""
    terms = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 4.0, "delta": 1e-5}
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open_account(Account("silo", **terms))
        ledger.admit("tuning", "0" * 64, {"silo": [(selected(), 1)]}, 1e-5, noise_at="coordinator")
        used = ledger.balance("silo").epsilon_used
    assert used == pytest.approx(best_epsilon([(selected(), 1)], 1e-5, adjacency=Adjacency.ADD_REMOVE).epsilon)
    live = Account("live", **terms, currency="rdp", order=8.0)
    assert price(events.key(selected()), live) == rdp_units(selected(), 8.0, Adjacency.ADD_REMOVE)
    with pytest.raises(BudgetRefused, match="no finite cost"):
        price(events.key(selected()), Account("live", **terms, currency="gdp"))
