"""What a plan costs: published numbers, an independent accountant, exact closed forms, and directions."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import events, gaussian, renyi
from sordino.privacy.accounting import (
    COARSE,
    PLD_FLOOR,
    best_epsilon,
    best_order,
    delta,
    delta_curve,
    epsilon,
    rdp_to_epsilon,
    rdp_units,
)

ADD, ONE, OUT = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT
FEW = settings(deadline=None, max_examples=12, derandomize=True)

NOISE = st.floats(0.7, 8.0)
RATE = st.sampled_from([0.01, 0.05, 0.2, 1.0])
COUNT = st.integers(1, 300)
DELTA = st.sampled_from([1e-4, 1e-6])


def steps(z, q, count):
    return [(events.poisson(q, events.gaussian(z)), count)]


class TestPublishedNumbers:
    """Golden values with a source."""

    @pytest.mark.parametrize(
        ("z", "q", "count", "at", "pld", "rdp"),
        [
            (1, 1, 1, 1e-5, 4.3772, 4.7285),
            (2, 1, 16, 1e-5, 9.9973, 10.7255),
            (1, 0.01, 1000, 1e-5, 1.8282, 2.1014),
            (0.7, 0.02, 500, 1e-6, 7.7451, 8.7756),
            (1.5, 0.05, 200, 1e-5, 2.3486, 2.6026),
            (3, 0.1, 512, 1e-6, 3.7697, 4.0510),
            (4, 0.25, 100, 1e-5, 2.6910, 2.9354),
            (0.6, 0.005, 2000, 1e-5, 5.3390, 6.3557),
            (1.1, 256 / 60000, 14040, 1e-5, 2.380, 2.594),
        ],
    )
    def test_vectors(self, z, q, count, at, pld, rdp):
        """dp_accounting 0.6.0 called directly, add/remove."""
        assert epsilon(steps(z, q, count), at, adjacency=ADD) == pytest.approx(pld, rel=5e-4)
        assert epsilon(steps(z, q, count), at, adjacency=ADD, accountant="rdp") == pytest.approx(rdp, rel=5e-4)

    @pytest.mark.parametrize(
        ("q", "z", "count", "at", "lower", "upper"),
        [
            (256 / 60000, 1.1, 14062, 1e-5, 2.371, 2.392),
            (0.01, 0.8, 1000, 1e-5, 3.131, 3.151),
            (0.001, 0.6, 10_000, 1e-6, 3.142, 3.163),
            (0.01, 4.0, 10_000, 1e-5, 0.937, 0.957),
            (0.1, 1.0, 200, 1e-4, 8.598, 8.619),
            (0.5, 3.0, 50, 1e-4, 4.874, 4.895),
            (0.02, 0.4, 500, 1e-5, 34.283, 34.307),
        ],
    )
    def test_inside_the_bracket_of_an_independent_accountant(self, q, z, count, at, lower, upper):
        """prv-accountant 0.2.0 (Gopi, Lee and Wutschitz) gives lower and upper bounds; ours lies between."""
        assert lower <= epsilon(steps(z, q, count), at, adjacency=ADD) <= upper

    def test_published_deployments(self):
        """Google's keyboard models, δ = 1e-10: ε = 8.9 from ρ = 0.81 (tight zCDP), 13.69 from ρ = 1.86 (exact)."""
        spanish = [(events.gaussian((2 * 0.81) ** -0.5), 1)]
        worst = [(events.gaussian((2 * 1.86) ** -0.5), 1)]
        assert epsilon(spanish, 1e-10, adjacency=ADD, accountant="zcdp") == pytest.approx(8.92, abs=0.005)
        assert epsilon(worst, 1e-10, adjacency=ADD, accountant="gdp") == pytest.approx(13.69, abs=0.005)

    @pytest.mark.parametrize(
        ("rho", "at", "tight", "exact"),
        [
            (0.2, 1e-10, 4.17, 3.98),
            (0.81, 1e-10, 8.92, 8.55),
            (1.86, 1e-10, 14.26, 13.69),
            (2, 1e-10, 14.87, 14.27),
            (0.81, 1e-5, 6.25, 5.80),
        ],
    )
    def test_zcdp_conversions(self, rho, at, tight, exact):
        """The simple conversion ρ + 2√(ρ ln 1/δ) is above the tight one, and that above the exact Gaussian."""
        plan = [(events.gaussian((2 * rho) ** -0.5), 1)]
        assert epsilon(plan, at, adjacency=ADD, accountant="zcdp") == pytest.approx(tight, abs=0.006)
        assert epsilon(plan, at, adjacency=ADD, accountant="gdp") == pytest.approx(exact, abs=0.006)
        assert rho + 2 * math.sqrt(rho * math.log(1 / at)) > tight > exact


class TestAdjacency:
    """The factor of two under replace-one is in one place and pinned."""

    TEN = ((events.gaussian(2.0), 10),)

    @pytest.mark.parametrize(
        ("accountant", "added", "replaced"),
        [("pld", 7.51, 17.86), ("gdp", 7.51, 17.86), ("rdp", 8.08, 19.05), ("zcdp", 8.08, 19.05)],
    )
    def test_replacing_one_unit_moves_the_sum_twice_as_far(self, accountant, added, replaced):
        """All accountants agree that z under replace-one is z/2 under add/remove."""
        assert epsilon(self.TEN, 1e-5, adjacency=ADD, accountant=accountant) == pytest.approx(added, abs=0.006)
        assert epsilon(self.TEN, 1e-5, adjacency=ONE, accountant=accountant) == pytest.approx(replaced, abs=0.006)
        assert epsilon(self.TEN, 1e-5, adjacency=OUT, accountant=accountant) == pytest.approx(added, abs=0.006)

    def test_dp_accounting_does_not_double_under_rdp(self):
        """Pins the library's answer, so that a fixed release is noticed before the factor is applied twice."""
        from dp_accounting import NeighboringRelation
        from dp_accounting.rdp import RdpAccountant

        naive = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(events.gaussian(2.0), 10)
        assert naive.get_epsilon(1e-5) == pytest.approx(8.08, abs=0.006)
        assert epsilon(self.TEN, 1e-5, adjacency=ONE, accountant="rdp") > 2 * naive.get_epsilon(1e-5)

    def test_fixed_size_sampling(self):
        """100 rounds, 100 of 1000 without replacement, noise 2C: 14.05, where the library alone says 5.38."""
        from dp_accounting import NeighboringRelation
        from dp_accounting.rdp import RdpAccountant

        event = events.without_replacement(1000, 100, events.gaussian(2.0))
        price = best_epsilon([(event, 100)], 1e-5, adjacency=ONE)
        naive = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(event, 100)
        assert (price.accountant, price.adjacency) == ("rdp", ONE)
        assert price.epsilon == pytest.approx(14.05, abs=0.01)
        assert naive.get_epsilon(1e-5) == pytest.approx(5.38, abs=0.01)

    @pytest.mark.parametrize(("z", "added", "replaced"), [(1, 7.05, 10.52), (2, 2.34, 4.37), (4, 0.98, 1.99)])
    def test_poisson_cohorts(self, z, added, replaced):
        """100 rounds at rate 0.1: measured with dp_accounting's PLD."""
        plan = steps(z, 0.1, 100)
        assert epsilon(plan, 1e-5, adjacency=ADD) == pytest.approx(added, abs=0.006)
        assert epsilon(plan, 1e-5, adjacency=ONE) == pytest.approx(replaced, abs=0.006)

    def test_laplace_under_replace_one(self):
        """Half the scale: ten times 2/b = ε, in PLD and (looser) RDP."""
        plan = [(events.laplace(10.0), 10)]
        half = [(events.laplace(5.0), 10)]
        for accountant in ("pld", "rdp"):
            replaced = epsilon(plan, 1e-5, adjacency=ONE, accountant=accountant)
            assert replaced == epsilon(half, 1e-5, adjacency=ADD, accountant=accountant)

    @pytest.mark.parametrize(("cap", "expected"), [(100, 7.04), (110, 4.61), (120, 2.99), (130, 2.40), (150, 2.3374)])
    def test_truncated_poisson(self, cap, expected):
        """A cap at the mean is dear; five standard deviations above it are free. Measured with dp_accounting."""
        plan = [(events.truncated_poisson(1000, 0.1, cap, 2.0), 100)]
        assert best_epsilon(plan, 1e-5, adjacency=ADD).epsilon == pytest.approx(expected, abs=0.006)

    def test_zcdp_event_under_replace_one(self):
        """Two steps apart, four times the ρ."""
        from dp_accounting import ZCDpEvent

        assert rdp_units(ZCDpEvent(0.1), 4.0, ONE) == pytest.approx(4 * rdp_units(ZCDpEvent(0.1), 4.0, ADD))
        with pytest.raises(PrivacyError):
            rdp_units(ZCDpEvent(0.1, 0.1), 4.0, ONE)

    @pytest.mark.parametrize(
        ("event", "adjacency"),
        [
            (events.without_replacement(10, 2, events.gaussian(1.0)), ADD),
            (events.without_replacement(10, 2, events.gaussian(1.0)), OUT),
            (events.without_replacement(10, 2, events.laplace(1.0)), ONE),
            (events.poisson(0.1, events.laplace(1.0)), ONE),
            (events.poisson(0.1, events.poisson(0.1, events.gaussian(1.0))), ADD),
        ],
    )
    def test_what_has_no_sound_price_is_refused(self, event, adjacency):
        """Never a fallback of another meaning; the message says what would be priced."""
        with pytest.raises(PrivacyError, match="prices"):
            best_epsilon([(event, 1)], 1e-5, adjacency=adjacency)

    @pytest.mark.parametrize(("accountant", "kind"), [("gdp", "Poisson"), ("zcdp", "Poisson")])
    def test_closed_forms_refuse_sampling(self, accountant, kind):
        """The Gaussian limit of sampled steps is not a bound (it is up to 46 % too low)."""
        with pytest.raises(PrivacyError, match=kind):
            epsilon(steps(1.0, 0.1, 10), 1e-5, adjacency=ADD, accountant=accountant)

    def test_rdp_refuses_poisson_under_replace_one(self):
        """dp_accounting has no such curve."""
        with pytest.raises(PrivacyError, match="rdp prices"):
            epsilon(steps(1.0, 0.1, 10), 1e-5, adjacency=ONE, accountant="rdp")


class TestDirections:
    """Properties any accountant must have."""

    @FEW
    @given(NOISE, NOISE, RATE, COUNT, DELTA)
    def test_order_does_not_matter(self, z, other, q, count, at):
        """And splitting a count does not either: equal to the last bit."""
        one, two = events.poisson(q, events.gaussian(z)), events.laplace(other)
        forward = best_epsilon([(one, count), (two, 2)], at, adjacency=ADD, grid=COARSE)
        backward = best_epsilon([(two, 1), (one, count), (two, 1)], at, adjacency=ADD, grid=COARSE)
        assert forward == backward

    @FEW
    @given(NOISE, RATE, COUNT, COUNT, DELTA)
    def test_more_releases_never_cost_less(self, z, q, count, more, at):
        """Nor do they cost less than nothing."""
        assert 0 <= coarse(z, q, count, at) <= coarse(z, q, count + more, at) + 1e-6

    @FEW
    @given(NOISE, RATE, COUNT, DELTA, st.floats(1.01, 3.0))
    def test_more_noise_never_costs_more(self, z, q, count, at, factor):
        """Up to what two grids can differ."""
        assert coarse(z * factor, q, count, at) <= coarse(z, q, count, at) + 1e-3

    @FEW
    @given(NOISE, st.floats(0.005, 1.0), COUNT, DELTA, st.floats(0.2, 0.99))
    def test_a_smaller_rate_never_costs_more(self, z, q, count, at, factor):
        """Amplification, including the step from no sampling to some."""
        assert coarse(z, q * factor, count, at) <= coarse(z, q, count, at) + 1e-3

    @FEW
    @given(NOISE, RATE, COUNT, DELTA)
    def test_at_most_the_sum_of_single_prices(self, z, q, count, at):
        """Composition never costs more than adding up ε and δ."""
        single = coarse(z, q, 1, at)
        assert coarse(z, q, count, min(0.5, at * count)) <= count * single + 1e-3

    @pytest.mark.parametrize("accountant", ["pld", "rdp", "zcdp"])
    @FEW
    @given(st.floats(0.3, 30.0), DELTA)
    def test_never_below_the_exact_curve(self, accountant, z, at):
        """One unsampled Gaussian against the closed form, in ε and in δ."""
        plan = [(events.gaussian(z), 1)]
        claimed = epsilon(plan, at, adjacency=ADD, accountant=accountant)
        assert claimed >= gaussian.epsilon_of(1 / z, at) * (1 - 1e-9)
        assert delta(plan, 1.0, adjacency=ADD, accountant=accountant) >= gaussian.delta_of(1.0, 1 / z) * (1 - 1e-9)

    @FEW
    @given(NOISE, RATE, COUNT, DELTA)
    def test_rdp_is_at_least_pld(self, z, q, count, at):
        """Up to the discretisation of PLD."""
        plan = steps(z, q, count)
        tight = epsilon(plan, at, adjacency=ADD, accountant="pld")
        assert epsilon(plan, at, adjacency=ADD, accountant="rdp") >= tight - max(1e-3, 0.01 * tight)

    @pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp", "zcdp"])
    def test_delta_inverts_epsilon(self, accountant):
        """δ at the ε of 1e-5 is 1e-5 again."""
        plan = [(events.gaussian(3.0), 4)]
        spent = epsilon(plan, 1e-5, adjacency=ADD, accountant=accountant)
        assert delta(plan, spent, adjacency=ADD, accountant=accountant) == pytest.approx(1e-5, rel=1e-3)

    def test_unsampled_gaussians_merge_exactly(self):
        """Twenty different rounds of a schedule price as one Gaussian, also beside sampled steps."""
        schedule = [(events.gaussian(5.0 + i), 1) for i in range(20)]
        joint = sum((5.0 + i) ** -2 for i in range(20)) ** -0.5
        sampled = steps(1.0, 0.05, 10)
        assert epsilon(schedule, 1e-5, adjacency=ADD, accountant="gdp") == gaussian.epsilon_of(1 / joint, 1e-5)
        assert epsilon([*schedule, *sampled], 1e-5, adjacency=ADD) == pytest.approx(
            epsilon([(events.gaussian(joint), 1), *sampled], 1e-5, adjacency=ADD), rel=1e-9
        )


class TestBest:
    """Which accountant is chosen, and that a price says so."""

    @pytest.mark.parametrize(
        ("plan", "adjacency", "accountant"),
        [
            ([(events.gaussian(1.0), 3)], ADD, "gdp"),
            (steps(1.0, 0.1, 3), ADD, "pld"),
            ([(events.laplace(1.0), 3)], OUT, "pld"),
            ([(events.without_replacement(100, 10, events.gaussian(4.0)), 3)], ONE, "rdp"),
            ([], ADD, "gdp"),
        ],
    )
    def test_exact_then_tight_then_loose(self, plan, adjacency, accountant):
        """And the price carries δ and adjacency."""
        price = best_epsilon(plan, 1e-5, adjacency=adjacency)
        assert (price.accountant, price.delta, price.adjacency) == (accountant, 1e-5, adjacency)

    def test_nothing_costs_nothing(self):
        """Under every accountant."""
        for accountant in ("pld", "rdp", "gdp", "zcdp"):
            assert epsilon([], 1e-5, adjacency=ADD, accountant=accountant) == 0
            assert delta([], 1.0, adjacency=ADD, accountant=accountant) == 0

    def test_tiny_deltas_are_left_to_rdp(self):
        """Where rounding of the Fourier transform would show, PLD is refused and RDP takes over."""
        plan = steps(1.0, 0.01, 100)
        assert best_epsilon(plan, PLD_FLOOR / 10, adjacency=ADD).accountant == "rdp"
        with pytest.raises(PrivacyError, match="below"):
            epsilon(plan, PLD_FLOOR / 10, adjacency=ADD)

    def test_curve_is_the_single_deltas(self):
        """Shape of the request, falling in ε."""
        plan = steps(1.0, 0.1, 20)
        curve = delta_curve(plan, [0.0, 1.0, 2.0], adjacency=ADD)
        assert list(curve) == [delta(plan, at, adjacency=ADD) for at in (0.0, 1.0, 2.0)]
        assert curve[0] > curve[1] > curve[2]

    @pytest.mark.parametrize("at", [0.0, 1.0, -1e-5, float("nan")])
    def test_delta_lies_inside(self, at):
        """No guarantee has δ = 0 here, and δ = 1 is none."""
        with pytest.raises(ConfigError):
            epsilon(steps(1.0, 0.1, 1), at, adjacency=ADD)

    def test_unknown_accountant(self):
        """With the nearest known name."""
        with pytest.raises(ConfigError, match="did you mean 'rdp'"):
            epsilon([(events.gaussian(1.0), 1)], 1e-5, adjacency=ADD, accountant="rpd")


class TestRdpUnits:
    """What a ledger adds up."""

    def test_units_add_up_to_the_curve(self):
        """Σ units at the best order converts to the RDP price of the plan."""
        plan = [*steps(1.0, 0.05, 40), (events.gaussian(8.0), 3)]
        order = best_order(plan, 1e-5, ADD)
        rho = sum(count * rdp_units(event, order, ADD) for event, count in plan)
        total = epsilon(plan, 1e-5, adjacency=ADD, accountant="rdp")
        assert rdp_to_epsilon(rho, order, 1e-5) == pytest.approx(total, rel=1e-12)

    def test_another_order_never_costs_less(self):
        """The best one is best."""
        plan = steps(1.0, 0.05, 40)
        least = epsilon(plan, 1e-5, adjacency=ADD, accountant="rdp")
        for order in (2.0, 8.5, 40.0):
            assert rdp_to_epsilon(40 * rdp_units(plan[0][0], order, ADD), order, 1e-5) >= least

    def test_integer_orders_match_the_binomial_sum(self):
        """Mironov, Talwar and Zhang (2019), the closed form for integer orders, written out here."""
        q, z, order = 0.1, 1.3, 6
        terms = [
            math.comb(order, k) * (1 - q) ** (order - k) * q**k * math.exp((k * k - k) / (2 * z * z))
            for k in range(order + 1)
        ]
        oracle = math.log(sum(terms)) / (order - 1)
        assert rdp_units(events.poisson(q, events.gaussian(z)), order, ADD) == pytest.approx(oracle, rel=1e-9)

    @pytest.mark.parametrize("order", [1.0, 0.5, float("inf"), float("nan")])
    def test_orders_above_one(self, order):
        """Others have other formulas."""
        with pytest.raises(ConfigError):
            rdp_to_epsilon(1.0, order, 1e-5)

    def test_conversion_is_tighter_than_mironovs(self):
        """ε_α + ln(1/δ)/(α−1) is valid and looser."""
        assert rdp_to_epsilon(1.0, 8.0, 1e-5) < 1.0 + math.log(1e5) / 7

    def test_a_tiny_divergence_is_free(self):
        """When total variation is below δ, ε is 0."""
        assert rdp_to_epsilon(1e-12, 2.0, 1e-5) == 0

    def test_dropped_orders_are_not_logged(self, caplog):
        """The library's notes are hidden during the call, and only then."""
        renyi._curve.cache_clear()
        with caplog.at_level(logging.WARNING):
            epsilon(steps(1.0, 0.5, 3), 1e-5, adjacency=ADD, accountant="rdp")
        assert "converge" not in caplog.text
        assert not logging.getLogger("absl").filters


class TestCost:
    """Pricing is fast enough to run at every plan."""

    def test_ten_thousand_steps(self):
        """Below 2 CPU seconds, and free the second time."""
        epsilon(steps(1.0, 0.5, 2), 1e-5, adjacency=ADD)  # pays for the import
        start = time.process_time()
        best_epsilon(steps(0.93, 0.0101, 10_000), 1e-5, adjacency=ADD)
        assert time.process_time() - start < 2.0
        start = time.process_time()
        best_epsilon(steps(0.93, 0.0101, 10_000), 1e-5, adjacency=ADD)
        assert time.process_time() - start < 0.1

    def test_hopeless_plans_stay_affordable(self):
        """ε in the thousands is priced coarsely, still as an upper bound."""
        start = time.process_time()
        price = best_epsilon(steps(0.5, 0.5, 10_000), 1e-5, adjacency=ADD)
        assert time.process_time() - start < 3.0
        assert price.epsilon == pytest.approx(7300.69, rel=0.01)
        assert price.epsilon >= 7300

    def test_importing_the_room_does_not_import_dp_accounting(self):
        """It costs a CPU second, which `--help` should not."""
        script = (
            "import sys, sordino.privacy.accounting, sordino.privacy.calibration, sordino.privacy.silos;"
            "import sordino.privacy.kernel, sordino.privacy.comparison, sordino.privacy.tradeoff;"
            "print('dp_accounting' in sys.modules)"
        )
        printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        assert printed.strip() == "False"


def coarse(z, q, count, at):
    return best_epsilon(steps(z, q, count), at, adjacency=ADD, grid=COARSE).epsilon
