"""What whole-number noise costs: the published bounds, computed anew, and above the truth where that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from sordino.core.errors import BudgetRefused, PrivacyError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger
from sordino.privacy import accounting, events, integer_noise, relations
from sordino.privacy.calibration import calibrate_noise
from sordino.privacy.permits import Line

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
WHOLE_ORDERS = np.arange(2, 513)


def published_skellam(order, l2, l1, variance):
    """The bound, written down anew."""
    rest = min(((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
    return order * l2**2 / (2 * variance) + rest


def published_gaussians(order, l2, l1, sigma, n, d):
    """The three bounds, written down anew, with σ of one draw."""
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n))
    a, b = l2 / (math.sqrt(n) * sigma), l1 / (math.sqrt(n) * sigma)
    return min(
        order / 2 * a**2 + tau * d,
        order / 2 * (a**2 + 2 * b * tau + tau**2 * d),
        order / 2 * (a + math.sqrt(d) * tau) ** 2,
    )


def epsilon_at(divergences, delta, a=WHOLE_ORDERS):
    """The conversion, written down anew."""
    return min(divergences + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1))


@pytest.mark.parametrize(("z", "l2", "l1", "count"), [(1.0, 100.0, 1e4, 1), (2.0, 3e4, 4e6, 10), (0.5, 6.0, 36.0, 3)])
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_skellam_costs_what_is_published(z, l2, l1, count, adjacency):
    """And never less: the reported ε is that of the bound at whole orders."""
    move = 2 if adjacency is REPLACE else 1
    curve = np.array([published_skellam(int(a), move * l2, move * l1, (z * l2) ** 2) for a in WHOLE_ORDERS])
    own = accounting.best_epsilon([(events.skellam(z, l2, l1), count)], 1e-5, adjacency=adjacency)

    assert own.accountant == "rdp"
    assert own.epsilon >= epsilon_at(count * curve, 1e-5) * (1 - 1e-12)
    assert own.epsilon == pytest.approx(epsilon_at(count * curve, 1e-5), rel=1e-3)


@pytest.mark.parametrize(("z", "l2", "n", "d"), [(1.0, 10.0, 20, 100), (2.0, 1000.0, 20, 2**14), (1.0, 4.0, 5, 16)])
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_sums_of_discrete_gaussians_cost_what_is_published(z, l2, n, d, adjacency):
    """With the term for not being of the law themselves, which holds between whole orders as well."""
    move, l1 = 2 if adjacency is REPLACE else 1, l2 * min(math.sqrt(d), l2)
    sigma = z * l2 / math.sqrt(n)
    orders = np.linspace(1.01, 200, 20_000)
    curve = np.array([published_gaussians(a, move * l2, move * l1, sigma, n, d) for a in orders])
    event = events.discrete_gaussian(z, l2, l1, n, d)
    own = accounting.best_epsilon([(event, 3)], 1e-5, adjacency=adjacency)

    assert own.epsilon >= epsilon_at(3 * curve, 1e-5, orders) * (1 - 1e-12)
    assert own.epsilon == pytest.approx(epsilon_at(3 * curve, 1e-5, orders), rel=2e-3)


def true_divergence(probabilities, move, order):
    """The Rényi divergence of a law on the whole numbers from itself, moved; the larger of both directions."""
    one, other = probabilities[move:], probabilities[: len(probabilities) - move]
    kept = (one > 0) & (other > 0)
    p, q = np.log(one[kept]), np.log(other[kept])
    both = (special.logsumexp(order * a + (1 - order) * b) for a, b in ((p, q), (q, p)))
    return max(both) / (order - 1)


@pytest.mark.parametrize("variance", [4.0, 30.0, 400.0])
@pytest.mark.parametrize("order", [2, 3, 8, 32])
def test_the_skellam_bound_is_above_the_truth(variance, order):
    """Moved by 1, 2 and 5 steps; with half the noise (the twin) the truth is above the bound."""
    numbers = np.arange(-1500, 1501)
    law = special.ive(np.abs(numbers), variance)
    for move in (1, 2, 5):
        event = events.skellam(math.sqrt(variance) / move, move, move)
        bound = integer_noise.divergence(event, np.array([float(order)]), 1)[0]
        assert true_divergence(law, move, order) <= bound
        if variance == 400:
            assert true_divergence(special.ive(np.abs(numbers), variance / 2), move, order) > bound


@pytest.mark.parametrize(("sigma", "n"), [(0.6, 5), (0.8, 20), (1.5, 3)])
@pytest.mark.parametrize("order", [1.2, 2, 3.5, 8])
def test_the_bound_for_sums_is_above_the_truth(sigma, n, order):
    """Laws convolved exactly; without τ (the twin) the bound is below the truth where draws are narrow."""
    numbers = np.arange(-60, 61)
    one = np.exp(-(numbers**2) / (2 * sigma**2))
    law = one / one.sum()
    total = law
    for _ in range(n - 1):
        total = np.convolve(total, law)
    event = events.discrete_gaussian(sigma * math.sqrt(n), 1, 1, n, 1)
    truth = true_divergence(np.where(total > 1e-250, total, 0), 1, order)

    assert truth <= integer_noise.divergence(event, np.array([float(order)]), 1)[0] * (1 + 1e-9)
    if sigma < 0.7 and order <= 2:
        assert truth > order / 2 / (sigma**2 * n) * (1 + 1e-6)


def test_between_whole_orders_the_next_one_is_charged():
    """The bound is proved for whole orders only."""
    event = events.skellam(1.0, 10.0, 100.0)
    at = integer_noise.divergence(event, np.array([1.5, 2.0, 2.1, 3.0]), 1)
    assert at[0] == at[1]
    assert at[2] == at[3]


def test_narrow_draws_have_no_price():
    """Below half a step the theorem says nothing."""
    event = events.discrete_gaussian(0.1, 4.0, 16.0)
    assert accounting.best_epsilon([(event, 1)], 1e-5, adjacency=ADD).epsilon == math.inf


@pytest.mark.parametrize("kind", ["skellam", "gaussians"])
@pytest.mark.parametrize("z", [1.0, 1.7, 2.0, 3.0, 8.0])
def test_at_18_bits_the_price_is_the_gaussians(kind, z):
    """Within 2 %, at equal noise over the clip: n = 20, d = 2^14, 10 rounds, by the same accountant.

    For Skellam up to an ε of about 10; above, what its bound lacks between whole orders shows, up to 4 %.
    """
    l2 = 2.0**18 / 8 / math.sqrt(20**2 / 2**14 + z**2)
    l1 = l2 * 2**7
    event = events.skellam(z, l2, l1) if kind == "skellam" else events.discrete_gaussian(z, l2, l1, 20, 2**14)
    whole = accounting.epsilon([(event, 10)], 1e-5, adjacency=ADD, accountant="rdp")
    gaussian = accounting.epsilon([(events.gaussian(z), 10)], 1e-5, adjacency=ADD, accountant="rdp")
    assert gaussian <= whole <= (1.04 if kind == "skellam" and gaussian > 11 else 1.02) * gaussian


@pytest.mark.parametrize("event", [events.skellam(2.0, 9.0, 81.0), events.discrete_gaussian(2.0, 9.0, 81.0, 4, 64)])
class TestAsEvents:
    """They are data like all the others."""

    def test_keys_lead_back(self, event):
        """Equal events, equal keys; as a part of a composed event as well."""
        assert events.from_key(events.key(event)) == event
        composed = events.composed([(event, 3), (events.gaussian(1.0), 2)])
        assert events.from_key(events.key(composed)) == composed

    def test_sampling_earns_nothing(self, event):
        """It is refused in one line, since no theorem prices it."""
        for sampled in (lambda: events.poisson(0.5, event), lambda: events.without_replacement(10, 2, event)):
            with pytest.raises(PrivacyError, match="no theorem prices it"):
                sampled()
        assert events.poisson(1.0, event) == event

    def test_law_and_multiplier_are_told_apart(self, event):
        """A door compares them."""
        assert events.noise_of(event)[0] in ("skellam", "discrete_gaussian")
        assert events.noise_of(event)[1] == 2.0
        assert events.records_in(event) is None

    def test_other_accountants_refuse(self, event):
        """In words."""
        for accountant in ("pld", "gdp", "zcdp"):
            with pytest.raises(PrivacyError, match="cannot be priced"):
                relations.require(accountant, ADD, relations.plan_of([(event, 1)]))

    def test_a_plan_pays_for_them(self, event, tmp_path):
        """With other releases in it; and the budget for one release fewer does not."""
        plan = [(event, 5), (events.gaussian(3.0), 2)]
        price = accounting.best_epsilon(plan, 1e-5, adjacency=ADD).epsilon
        less = accounting.best_epsilon([(event, 4), (events.gaussian(3.0), 2)], 1e-5, adjacency=ADD).epsilon
        with Ledger(tmp_path / "l.db") as ledger:
            ledger.open_run("r")
            ledger.open_account(Account("a", Unit.CLIENT, ADD, price * (1 + 1e-9), 1e-5))
            ledger.open_account(Account("b", Unit.CLIENT, ADD, (price + less) / 2, 1e-5))
            ledger.admit("r", "d", {"a": plan}, 1e-5, noise_at=NoiseAt.SUM)
            ledger.reserve("a", "r", None, "train", [Line("a", Unit.CLIENT, events.key(event), 1)])
            assert ledger.balance("a").epsilon_used == pytest.approx(price)
            ledger.open_run("s")
            with pytest.raises(BudgetRefused):
                ledger.admit("s", "e", {"b": plan}, 1e-5, noise_at=NoiseAt.SUM)

    def test_an_account_at_one_order_pays_for_them(self, event, tmp_path):
        """The divergence at that order adds up."""
        with Ledger(tmp_path / "l.db") as ledger:
            ledger.open_run("r")
            ledger.open_account(Account("a", Unit.CLIENT, ADD, 50.0, 1e-5, currency="rdp", order=4.0))
            ledger.reserve("a", "r", None, "train", [Line("a", Unit.CLIENT, events.key(event), 3)])
            divergence = 3 * integer_noise.divergence(event, np.array([4.0]), 1)[0]
            expected = accounting.rdp_to_epsilon(divergence, 4.0, 1e-5)
            assert ledger.balance("a").epsilon_used == pytest.approx(expected)

    @pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
    def test_other_currencies_refuse(self, event, currency, tmp_path):
        """They add up numbers that this noise does not have."""
        delta = 0.0 if currency == "pure" else 1e-5
        with Ledger(tmp_path / "l.db") as ledger:
            ledger.open_run("r")
            ledger.open_account(Account("a", Unit.CLIENT, ADD, 100.0, delta, currency=currency))
            with pytest.raises(BudgetRefused, match="no finite cost"):
                ledger.reserve("a", "r", None, "train", [Line("a", Unit.CLIENT, events.key(event), 1)])


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_noise_is_found_for_an_epsilon(epsilon):
    """And a little less of it costs more than asked for."""

    def plan(z):
        return [(events.skellam(z, 1000.0, 1e5), 10)]

    z = calibrate_noise(plan, epsilon, 1e-5, adjacency=ADD)
    assert accounting.best_epsilon(plan(z), 1e-5, adjacency=ADD).epsilon <= epsilon
    assert accounting.best_epsilon(plan(z * 0.995), 1e-5, adjacency=ADD).epsilon > epsilon
