"""What follows from a plan: comparison table, attack bounds, composition over silos, weights, forecasts, norms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency
from sordino.privacy import events, forecast, gaussian, tradeoff
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.comparison import composition_table
from sordino.privacy.silos import federation_epsilon
from sordino.privacy.weights import noise_aware

ADD, ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def sampled(z, q=0.02, count=200):
    return [(events.poisson(q, events.gaussian(z)), count)]


class TestComparison:
    """The same plan under every accountant."""

    def test_unsampled_gaussians_have_every_row(self):
        """Exact ≤ PLD ≤ RDP, and composition theorems far above."""
        rows = {row.method: row for row in composition_table([(events.gaussian(10.0), 100)], 1e-5, adjacency=ADD)}
        exact = rows["GDP (exact)"].epsilon
        assert exact <= rows["PLD"].epsilon * (1 + 1e-6) <= rows["RDP"].epsilon
        assert exact <= rows["zCDP"].epsilon <= rows["RDP"].epsilon
        assert rows["advanced composition"].epsilon < rows["basic composition"].epsilon
        assert all(row.epsilon > exact for name, row in rows.items() if "composition" in name or "classic" in name)
        assert all(row.valid for row in rows.values())

    def test_what_does_not_apply_has_no_number(self):
        """Sampled plans have no exact GDP; the note says why."""
        rows = {row.method: row for row in composition_table(sampled(1.0), 1e-5, adjacency=ADD)}
        assert rows["GDP (exact)"].epsilon is None
        assert not rows["GDP (exact)"].valid
        assert "PoissonSampled(Gaussian)" in rows["GDP (exact)"].note
        assert rows["PLD"].epsilon < rows["RDP"].epsilon < rows["advanced composition"].epsilon

    def test_the_classic_formula_is_marked_where_it_breaks(self):
        """One release with z = 0.3 claims ε = 16.1; the exact one is 19.1."""
        rows = {row.method: row for row in composition_table([(events.gaussian(0.3), 1)], 1e-5, adjacency=ADD)}
        assert not rows["classic formula"].valid
        assert rows["classic formula"].epsilon < rows["GDP (exact)"].epsilon
        assert "violates DP above 8.42" in rows["classic formula"].note

    def test_laplace_has_no_classic_row(self):
        """The formula is one for Gaussians; basic composition of pure releases is nearly 1/b each."""
        rows = {row.method: row for row in composition_table([(events.laplace(10.0), 4)], 1e-5, adjacency=ADD)}
        assert rows["classic formula"].epsilon is None
        assert rows["basic composition"].epsilon == pytest.approx(0.4, rel=1e-3)

    def test_replace_one(self):
        """All rows double the distance."""
        added = composition_table([(events.gaussian(4.0), 9)], 1e-5, adjacency=ADD)
        replaced = composition_table([(events.gaussian(8.0), 9)], 1e-5, adjacency=ONE)
        assert [row.epsilon for row in added] == pytest.approx([row.epsilon for row in replaced], rel=1e-4)


class TestAttackBounds:
    """What any attacker can achieve at most."""

    @pytest.mark.parametrize(
        ("epsilon", "mu", "at_01", "at_1", "auc", "accuracy", "generic"),
        [
            (0.5, 0.142, 0.0016, 0.0145, 0.540, 0.528, 0.016),
            (1, 0.268, 0.0024, 0.0198, 0.575, 0.553, 0.027),
            (2, 0.502, 0.0048, 0.034, 0.639, 0.599, 0.074),
            (4, 0.925, 0.015, 0.081, 0.743, 0.678, 0.546),
            (8, 1.666, 0.077, 0.255, 0.881, 0.798, 1),
            (10, 2.000, 0.138, 0.372, 0.921, 0.841, 1),
        ],
    )
    def test_table(self, epsilon, mu, at_01, at_1, auc, accuracy, generic):
        """δ = 1e-5, exact curve of the Gaussian (Dong, Roth and Su 2022); last column from (ε, δ) alone."""
        assert gaussian.mu_of(epsilon, 1e-5) == pytest.approx(mu, abs=6e-4)
        plan = [(events.gaussian(1 / gaussian.mu_of(epsilon, 1e-5)), 1)]
        bounds = tradeoff.attack_bounds(plan, 1e-5, adjacency=ADD)
        assert bounds.tpr_at_fpr[0.001] == pytest.approx(at_01, rel=0.03)
        assert bounds.tpr_at_fpr[0.01] == pytest.approx(at_1, rel=0.01)
        assert (bounds.auc, bounds.accuracy) == (pytest.approx(auc, abs=6e-4), pytest.approx(accuracy, abs=6e-4))
        assert tradeoff.of_guarantee(epsilon, 1e-5).tpr_at_fpr[0.01] == pytest.approx(generic, abs=6e-4)

    @pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
    def test_envelope_of_the_gaussian_curve_is_the_exact_one(self, mu):
        """Two routes to one answer; the envelope is never below."""
        grid = np.linspace(0, gaussian.epsilon_of(mu, 1e-9), 2000)
        envelope = tradeoff.of_curve(grid, np.array([gaussian.delta_of(e, mu) for e in grid]))
        exact = tradeoff.of_mu(mu)
        for rate in tradeoff.RATES:
            assert exact.tpr_at_fpr[rate] - 1e-9 <= envelope.tpr_at_fpr[rate] <= exact.tpr_at_fpr[rate] * 1.001
        assert exact.auc - 1e-9 <= envelope.auc <= exact.auc + 1e-4
        assert envelope.accuracy == pytest.approx(exact.accuracy, abs=1e-6)

    def test_sampled_plans_bound_a_real_attack(self):
        """The optimal test against one sampled Gaussian stays below, and not far below."""
        q, z = 0.3, 0.8
        bounds = tradeoff.attack_bounds([(events.poisson(q, events.gaussian(z)), 1)], 1e-6, adjacency=ADD)
        threshold = z * 3.0902  # FPR 0.1 % when the record is out
        caught = q * gaussian.true_positive_rate(1 / z, 0.001) + (1 - q) * 0.001
        assert threshold > 1
        assert caught <= bounds.tpr_at_fpr[0.001] <= 4 * caught

    def test_knowing_the_events_is_never_worse(self):
        """The plan's own curve lies below the line of its (ε, δ)."""
        plan = sampled(1.0)
        spent = best_epsilon(plan, 1e-5, adjacency=ADD).epsilon
        ours, generic = tradeoff.attack_bounds(plan, 1e-5, adjacency=ADD), tradeoff.of_guarantee(spent, 1e-5)
        assert 0.5 <= ours.auc <= generic.auc + 1e-6
        assert 0.5 <= ours.accuracy <= generic.accuracy
        assert ours.tpr_at_fpr[0.01] <= generic.tpr_at_fpr[0.01] + 1e-9

    def test_no_release_no_advantage(self):
        """An empty plan allows guessing only."""
        bounds = tradeoff.attack_bounds([], 1e-5, adjacency=ADD)
        assert (bounds.auc, bounds.accuracy) == (0.5, 0.5)
        assert bounds.tpr_at_fpr[0.01] == pytest.approx(0.01)

    def test_rdp_only_plans_have_bounds_too(self):
        """Fixed-size sampling: looser, within range."""
        plan = [(events.without_replacement(1000, 10, events.gaussian(4.0)), 5)]
        bounds = tradeoff.attack_bounds(plan, 1e-5, adjacency=ONE)
        assert 0.5 <= bounds.accuracy <= bounds.auc <= 1


class TestSilos:
    """Disjoint people: the maximum. The same people: composition."""

    SILOS = {"north": sampled(0.8), "south": sampled(1.0), "west": sampled(1.2)}  # noqa: RUF012

    def alone(self, name):
        return best_epsilon(self.SILOS[name], 1e-5, adjacency=ADD).epsilon

    def test_disjoint_people_have_the_largest(self):
        """Not the sum, and never ε/n."""
        together = federation_epsilon(self.SILOS, 1e-5, adjacency=ADD, silos_per_person=1)
        assert together == max(self.alone(name) for name in self.SILOS)

    def test_unknown_overlap_composes_all(self):
        """The cautious answer: above the maximum, below the sum."""
        everything = federation_epsilon(self.SILOS, 1e-5, adjacency=ADD, silos_per_person=None)
        assert max(map(self.alone, self.SILOS)) < everything < sum(map(self.alone, self.SILOS))
        assert everything == federation_epsilon(self.SILOS, 1e-5, adjacency=ADD, silos_per_person=3)

    def test_two_silos_per_person_compose_the_worst_two(self):
        """Here the curves do not cross: the two dearest."""
        two = federation_epsilon(self.SILOS, 1e-5, adjacency=ADD, silos_per_person=2)
        joint = best_epsilon([*self.SILOS["north"], *self.SILOS["south"]], 1e-5, adjacency=ADD).epsilon
        assert two == joint

    def test_unsampled_silos_rank_by_mu(self):
        """Exact, for any number of silos and choices."""
        silos = {f"s{i}": [(events.gaussian(5.0 + i), 3)] for i in range(12)}
        joint = [(events.gaussian(5.0 + i), 3) for i in range(4)]
        federation = federation_epsilon(silos, 1e-5, adjacency=ADD, silos_per_person=4)
        assert federation == pytest.approx(best_epsilon(joint, 1e-5, adjacency=ADD).epsilon, rel=1e-9)

    def test_many_kinds_are_bounded(self):
        """Too many choices to price: at least every single choice, at most everything together."""
        silos = {f"s{i}": sampled(2.0 + i / 10, count=50) for i in range(8)}
        bound = federation_epsilon(silos, 1e-5, adjacency=ADD, silos_per_person=3)
        worst = list(itertools.chain(*list(silos.values())[:3]))
        everything = federation_epsilon(silos, 1e-5, adjacency=ADD, silos_per_person=None)
        assert best_epsilon(worst, 1e-5, adjacency=ADD).epsilon <= bound <= everything

    def test_overlap_never_costs_less(self):
        """More silos per person, more ε."""
        costs = [federation_epsilon(self.SILOS, 1e-5, adjacency=ADD, silos_per_person=m) for m in (1, 2, 3)]
        assert costs == sorted(costs)

    def test_edges(self):
        """No silo costs nothing; zero silos per person is no answer."""
        assert federation_epsilon({}, 1e-5, adjacency=ADD, silos_per_person=None) == 0
        with pytest.raises(ConfigError):
            federation_epsilon(self.SILOS, 1e-5, adjacency=ADD, silos_per_person=0)


class TestWeights:
    """Inverse variance, public inputs."""

    def test_without_noise_by_size_with_noise_by_precision(self):
        """The two ends of the formula."""
        assert noise_aware([0.0, 0.0], 10, [1, 3], 1.0) == pytest.approx([0.25, 0.75])
        assert noise_aware([1.0, 2.0], 10**9, [1, 3], 1e-9) == pytest.approx([0.8, 0.2])

    @settings(deadline=None, max_examples=50, derandomize=True)
    @given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 10**6)), min_size=2, max_size=6), st.integers(0, 5))
    def test_no_other_weights_have_less_error(self, silos, seed):
        """Σ w² v is smallest at the answer, over weights that sum to 1."""
        std, sizes = map(list, zip(*silos, strict=True))
        ours = noise_aware(std, 50, sizes, 2.0)
        variance = np.square(std) * 50 + 2.0 / np.array(sizes)
        other = np.random.default_rng(seed).dirichlet(np.ones(len(silos)))
        assert ours.sum() == pytest.approx(1)
        assert (ours**2 * variance).sum() <= (other**2 * variance).sum() * (1 + 1e-9)

    @pytest.mark.parametrize(
        "arguments", [([1.0], 1, [1, 2], 1.0), ([], 1, [], 1.0), ([1.0], 1, [0], 1.0), ([-1.0], 1, [1], 1.0)]
    )
    def test_refuses_nonsense(self, arguments):
        """One size and one noise per silo, in range."""
        with pytest.raises(ConfigError):
            noise_aware(*arguments)


class TestForecast:
    """Why client-level privacy needs thousands of clients."""

    @pytest.mark.parametrize(
        ("epsilon", "rounds", "z", "silos"),
        [
            (2, 10, 4.57, [144, 914, 2503, 12091]),
            (2, 50, 10.2, [323, 2043, 5597, 27037]),
            (8, 10, 1.52, [48, 303, 831, 4016]),
            (8, 50, 3.39, [107, 678, 1859, 8980]),
        ],
    )
    def test_contributors_for_signal_equal_noise(self, epsilon, rounds, z, silos):
        """All silos in every round, δ = 1e-3: n ≥ z √d (the table rounds down, we round up)."""
        noise = forecast.unsampled_noise(epsilon, 1e-3, rounds)
        assert noise == pytest.approx(z, rel=4e-3)
        needed = [forecast.contributors_needed(noise, d) for d in (1000, 40_000, 300_000, 7_000_000)]
        assert all(0 <= ours - table <= 1 for ours, table in zip(needed, silos, strict=True))

    @settings(deadline=None, max_examples=50, derandomize=True)
    @given(st.floats(0.1, 20), st.integers(1, 10**7), st.integers(1, 1000), st.floats(0.1, 3))
    def test_needed_contributors_reach_the_threshold(self, z, dimension, releases, threshold):
        """That many suffice, and one fewer do not."""
        needed = forecast.contributors_needed(z, dimension, releases=releases, threshold=threshold)

        def ratio(expected):
            return forecast.signal_to_noise(
                clip=0.7, noise_multiplier=z, dimension=dimension, expected=expected, releases=releases
            )

        assert ratio(needed) * (1 + 1e-9) >= threshold
        assert needed == 1 or ratio(needed - 1) * (1 - 1e-9) < threshold

    def test_the_clip_cancels(self):
        """Raising it raises signal and noise alike."""
        ratios = [
            forecast.signal_to_noise(clip=c, noise_multiplier=2.0, dimension=100, expected=40) for c in (0.1, 1, 9)
        ]
        assert ratios == pytest.approx([2.0] * 3)


def test_a_plan_that_protects_nobody_bounds_nothing():
    """An epsilon of thousands, sampled: every bound is finite, and says that the attacker may succeed."""
    plan = [(events.poisson(0.1, events.gaussian(0.01)), 2)]
    bounds = tradeoff.attack_bounds(plan, 1e-5, adjacency=ADD)

    assert bounds.auc > 0.5
    assert all(np.isfinite([bounds.auc, bounds.accuracy, *bounds.tpr_at_fpr.values()]))
