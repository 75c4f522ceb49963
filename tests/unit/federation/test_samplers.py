"""Samplers: counted participations are the real ones, and what cannot be priced is refused."""

from __future__ import annotations

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.federation.sampling.drawn import FixedSize, Poisson, TruncatedPoisson
from sordino.federation.sampling.scheduled import All, RoundRobin
from sordino.privacy import events
from sordino.privacy.noise import SeededNoise, SystemNoise

SOURCE = SystemNoise()


@settings(max_examples=300, deadline=None)
@given(population=st.integers(1, 40), size=st.integers(1, 40), rounds=st.integers(0, 60))
def test_round_robin_counts_what_really_happens(population, size, rounds):
    """For every population, size and number of rounds: accounted participations are the real ones.

    A closed form that rounds down (as rounds·size // population does) undercharges some clients.
    """
    size = min(size, population)
    sampler = RoundRobin(size)
    real = np.zeros(population, np.int64)
    for t in range(rounds):
        np.add.at(real, sampler.draw(population, t, SOURCE), 1)
    counted = sampler.participations(population, rounds)
    assert np.array_equal(counted, real)
    assert counted.sum() == rounds * size


def test_rounding_down_undercharges():
    """Negative control: 3 of 10 clients over 4 rounds; rounding down says 1 each, two clients were in twice."""
    counted = RoundRobin(3).participations(10, 4)
    assert counted.max() == 2 > 4 * 3 // 10
    assert np.flatnonzero(counted == 2).tolist() == [0, 1]


def test_poisson_charges_what_it_draws():
    """Rate q is charged as Poisson sampling at q; rate 1 is no sampling."""
    gaussian = events.gaussian(2.0)
    assert Poisson(0.25).event(gaussian, 100) == dpa.PoissonSampledDpEvent(0.25, gaussian)
    assert Poisson(1.0).event(gaussian, 100) == gaussian
    assert Poisson(0.25).event(events.laplace(2.0), 100) == dpa.PoissonSampledDpEvent(0.25, dpa.LaplaceDpEvent(2.0))


def test_poisson_cohorts_vary_and_may_be_empty():
    """Sizes are binomial: at an expected size of 1, an empty cohort is common and a valid draw."""
    sizes = [Poisson(0.1).draw(10, t, SeededNoise(t)).size for t in range(200)]
    assert min(sizes) == 0
    assert max(sizes) > 1


def test_truncation_is_charged_with_population_and_cap():
    """The event names all that the exact analysis needs; without a cut it is plain Poisson."""
    event = TruncatedPoisson(0.5, 3).event(events.gaussian(2.0), 10)
    assert event == dpa.dp_event.TruncatedSubsampledGaussianDpEvent(10, 0.5, 3, 2.0)
    assert TruncatedPoisson(0.5, 10).event(events.gaussian(2.0), 10) == Poisson(0.5).event(events.gaussian(2.0), 10)


def test_truncation_cuts_to_the_cap():
    """No cohort is larger than the cap, and at rate 1 every cohort has exactly that size."""
    assert {TruncatedPoisson(1.0, 3).draw(10, t, SOURCE).size for t in range(20)} == {3}
    assert TruncatedPoisson(1.0, 3).expected(10) == pytest.approx(3.0)


def test_fixed_size_is_charged_without_replacement():
    """Exactly m of N; all of them is no sampling."""
    gaussian = events.gaussian(2.0)
    assert FixedSize(3).event(gaussian, 10) == dpa.SampledWithoutReplacementDpEvent(10, 3, gaussian)
    assert FixedSize(10).event(gaussian, 10) == gaussian
    assert {FixedSize(3).draw(10, t, SOURCE).size for t in range(20)} == {3}


@pytest.mark.parametrize("sampler", [TruncatedPoisson(0.5, 3), FixedSize(3)])
def test_laplace_is_refused_where_no_accountant_prices_it(sampler):
    """Better no plan than a wrong price."""
    with pytest.raises(ConfigError, match="Gaussian noise only"):
        sampler.event(events.laplace(1.0), 10)


@pytest.mark.parametrize("sampler", [FixedSize(11), RoundRobin(11)])
def test_more_clients_than_there_are_is_refused(sampler):
    """Every question about 11 of 10 clients is an error, not a smaller cohort."""
    for question in (
        lambda: sampler.draw(10, 0, SOURCE),
        lambda: sampler.event(events.gaussian(1.0), 10),
        lambda: sampler.expected(10),
    ):
        with pytest.raises(ConfigError, match="exceeds"):
            question()


@pytest.mark.parametrize("sampler", [All(), RoundRobin(3)])
def test_public_schedules_buy_no_amplification(sampler):
    """Everyone knows who takes part, so the bare event is charged."""
    assert sampler.event(events.gaussian(1.0), 10) == events.gaussian(1.0)
    assert sampler.public


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_rates_outside_zero_and_one_are_refused(rate):
    """A rate is a probability above zero."""
    for sampler in (lambda: Poisson(rate), lambda: TruncatedPoisson(rate, 3)):
        with pytest.raises(ConfigError, match="rate"):
            sampler()
