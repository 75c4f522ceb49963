"""Records sampled one by one, persons protected: the price, by an independent formula, and the shape it must have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from tiny_door import TinyGaussian, peek, reserved

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.privacy import events, people
from sordino.privacy.accounting import best_epsilon, delta, epsilon, rdp_units
from sordino.privacy.calibration import calibrate_noise
from sordino.privacy.comparison import composition_table
from sordino.privacy.doors import Door
from sordino.privacy.kernel import GRID_BITS, Private
from sordino.privacy.noise import SeededNoise

ADD = Adjacency.ADD_REMOVE


def priced(records, rate, noise, steps=1, at=1e-6):
    """The epsilon of so many steps."""
    return best_epsilon([(events.records_of_person(records, rate, noise), steps)], at, adjacency=ADD).epsilon


@pytest.mark.parametrize(
    ("noise", "rate", "records", "person", "record"), [(2, 0.01, 10, 2.769, 0.228), (4, 0.02, 20, 5.296, 0.202)]
)
def test_published_values(noise, rate, records, person, record):
    """
    A hundred steps at delta 1e-6. A record's own epsilon times K would promise too much: it understates.
    """
    own = priced(1, rate, noise, 100)

    assert priced(records, rate, noise, 100) == pytest.approx(person, abs=1e-3)
    assert own == pytest.approx(record, abs=1e-3)
    assert records * own < priced(records, rate, noise, 100)


@pytest.mark.parametrize(("noise", "rate", "records"), [(2.0, 0.01, 10), (4.0, 0.3, 5)])
@pytest.mark.parametrize("at", [0.0, 0.3, 1.5])
def test_one_release_by_quadrature(noise, rate, records, at):
    """
    δ(ε) of a single release is the larger of two integrals over the densities themselves.
    """
    x = np.linspace(-10 * noise, records + 10 * noise, 200_001)
    without = stats.norm.pdf(x, scale=noise)
    shifts = np.arange(records + 1)
    with_person = stats.norm.pdf(x[:, None] - shifts, scale=noise) @ stats.binom.pmf(shifts, records, rate)

    def stick(upper, lower):
        return integrate.trapezoid(np.maximum(0.0, upper - math.exp(at) * lower), x)

    exact = max(stick(with_person, without), stick(without, with_person))
    found = delta([(events.records_of_person(records, rate, noise), 1)], at, adjacency=ADD)

    assert found == pytest.approx(exact, rel=1e-4, abs=1e-9)
    assert found >= exact * (1 - 1e-6) - 1e-12  # an upper bound, up to the quadrature's own error


def test_the_fast_inverse_is_the_inverse():
    """
    The loss at the point found is the loss asked for.
    """
    mixture = people.Mixture.of(events.records_of_person(20, 0.02, 4.0))
    low, high = mixture.loss(np.array(mixture.ends()))[0]
    wanted = np.linspace(low + 1e-6, high, 1000)

    assert mixture.loss(mixture.where(wanted))[0] == pytest.approx(wanted, abs=1e-9)


def test_it_is_dp_accountings_distribution():
    """
    An independent implementation, by bisection, at a coarse grid.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    event = events.records_of_person(10, 0.01, 2.0)
    slow = pld.from_mixture_gaussian_mechanism(
        2.0, event.sensitivities, event.sampling_probs, value_discretization_interval=1e-2
    )
    ours = people.loss_distribution(event, 1e-2)

    assert ours.get_epsilon_for_delta(1e-6) == pytest.approx(slow.get_epsilon_for_delta(1e-6), rel=1e-6)


def test_one_record_is_the_ordinary_sampled_gaussian():
    """
    The same event, hence the same price and name; and the mixture's own arithmetic agrees with it.
    """
    event = events.poisson(0.1, events.gaussian(1.5))
    from dp_accounting import dp_event

    as_mixture = dp_event.MixtureOfGaussiansDpEvent(1.5, (0.0, 1.0), (0.9, 0.1))

    assert events.records_of_person(1, 0.1, 1.5) == event
    assert epsilon([(as_mixture, 50)], 1e-6, adjacency=ADD) == pytest.approx(
        epsilon([(event, 50)], 1e-6, adjacency=ADD), rel=1e-4
    )


def test_every_record_each_time_is_a_gaussian_moved_k_times_as_far():
    """
    Without sampling nothing is random but the noise.
    """
    by_mixture = epsilon([(events.records_of_person(5, 1.0, 10.0), 3)], 1e-6, adjacency=ADD)

    assert by_mixture == pytest.approx(epsilon([(events.gaussian(2.0), 3)], 1e-6, adjacency=ADD), rel=1e-4)


@settings(max_examples=6)
@given(records=st.integers(1, 12), rate=st.floats(0.01, 0.5), noise=st.floats(1.0, 8.0))
def test_price_rises_with_cap_and_rate_and_falls_with_noise(records, rate, noise):
    """
    Whoever allows more records, samples more often or adds less noise pays at least as much.
    """
    here = priced(records, rate, noise)

    assert priced(records + 1, rate, noise) >= here * (1 - 1e-4)
    assert priced(records, min(1.0, 1.2 * rate), noise) >= here * (1 - 1e-4)
    assert priced(records, rate, 1.2 * noise) <= here * (1 + 1e-4)


@given(records=st.integers(1, 1000), rate=st.floats(1e-6, 1.0))
def test_chances_left_out_count_as_all_records(records, rate):
    """
    What is too unlikely to list is added to the worst case: chances sum to one and none is moved down.
    """
    event = events.records_of_person(records, rate, 1.0)
    if not hasattr(event, "sensitivities"):
        assert records == 1
        return
    shifts, chances = np.array(event.sensitivities), np.array(event.sampling_probs)
    exact = stats.binom.sf(shifts[:-1], records, rate)

    assert math.fsum(chances) == pytest.approx(1.0, abs=1e-12)
    assert shifts[-1] == records
    assert np.all(np.cumsum(chances[::-1])[::-1][1:] >= exact * (1 - 1e-9))


def test_calibration_finds_the_published_noise():
    """
    At the published epsilon, the noise found is the published one.
    """
    found = calibrate_noise(lambda z: [(events.records_of_person(10, 0.01, z), 100)], 2.7695, 1e-6, adjacency=ADD)

    assert found == pytest.approx(2.0, rel=2e-3)


def test_a_name_brings_the_event_back():
    """
    Ledgers keep the name; what it brings back can be priced, and equals the first.
    """
    event = events.records_of_person(7, 0.2, 3.0)

    assert events.from_key(events.key(event)) == event


def test_hopeless_noise_is_priced_all_the_same():
    """
    A planner tries everything; nothing overflows, and the answer stays an upper bound.
    """
    assert priced(50, 0.05, 1e-3, 1000) > 1e6


def test_what_cannot_be_priced_is_refused():
    """
    Replacing a person is two moves of another mixture; Rényi accounting does not know it; no cap is no cap.
    """
    event = events.records_of_person(3, 0.1, 2.0)
    with pytest.raises(PrivacyError, match="cannot be priced"):
        best_epsilon([(event, 1)], 1e-6, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(PrivacyError, match="cannot be priced"):
        rdp_units(event, 8.0, ADD)
    for cap in (0, 1001, 2.5):
        with pytest.raises(ConfigError):
            events.records_of_person(cap, 0.1, 2.0)


def test_the_table_of_methods_survives_them():
    """
    Methods that do not apply say so; those that do, do not undercut the tight one.
    """
    rows = composition_table([(events.records_of_person(3, 0.1, 2.0), 10)], 1e-6, adjacency=ADD)
    tight = next(row.epsilon for row in rows if row.method.lower().startswith("pld"))

    assert all(row.epsilon >= tight - 1e-9 for row in rows if row.epsilon is not None and row.valid)


OWNERS = np.array(["ann", "bob", "ann", "cid"])


def record_sum(rows=4):
    """A sum of records, each clipped to 1."""
    return Private(np.ones((rows, 2)), Unit.RECORD).clip(l2=1.0)


def test_a_persons_bound_is_that_of_all_their_records():
    """
    Two records at most: twice the clip, for users, in both norms; scaling keeps the count.
    """
    total = Private(np.ones((4, 2)), Unit.RECORD).clip(l1=1.0).per_person(OWNERS, at_most=2).scaled(3.0)

    assert (total.unit, total.l2, total.l1, total.records) == (Unit.USER, 6.0, 6.0, 2)
    assert peek(record_sum().per_person(OWNERS, at_most=2)) == pytest.approx(peek(record_sum()))


def test_a_cap_that_does_not_hold_is_refused():
    """
    Ann has two records, so a cap of one bounds nothing.
    """
    with pytest.raises(PrivacyError, match="exceeded"):
        record_sum().per_person(OWNERS, at_most=1)
    with pytest.raises(PrivacyError, match="not a sum of records"):
        Private(np.ones((4, 2)), Unit.USER).clip(l2=1.0).per_person(OWNERS, at_most=2)
    with pytest.raises(PrivacyError, match="different units"):
        record_sum().per_person(OWNERS, at_most=2).merge(record_sum().per_person(OWNERS, at_most=3))


def test_the_doors_noise_is_over_the_clip_of_one_record():
    """
    z = 3 over a record's clip of 1, at most two records: standard deviation 3, not 6 and not 3/2.
    """
    event = events.records_of_person(2, 0.5, 3.0)
    total = Private(np.zeros((1, 20_000)), Unit.RECORD).clip(l2=1.0).per_person(OWNERS, at_most=2)
    door = Door(TinyGaussian(3.0 / 2), event, ("a",), reserved(event, unit=Unit.USER), SeededNoise(0))

    assert door(total).std() == pytest.approx(3.0, rel=0.03)


def test_a_door_refuses_less_noise_than_the_mixture_says():
    """
    The broken twin forgets that K records move the sum, or divides once too often.
    """
    event = events.records_of_person(2, 0.5, 3.0)
    for noise in (3.0 / 4, 1.49):
        with pytest.raises(PrivacyError, match="that is charged"):
            Door(TinyGaussian(noise), event, ("a",), reserved(event, unit=Unit.USER), SeededNoise(0))


@pytest.mark.parametrize("event", [events.records_of_person(4, 0.5, 6.0), events.poisson(0.5, events.gaussian(1.5))])
def test_a_door_refuses_a_charge_for_another_number_of_records(event):
    """
    Two records that join apart are not four, and not one person who joins as a whole, at the same noise over the bound.
    """
    door = Door(TinyGaussian(1.5), event, ("a",), reserved(event, unit=Unit.USER), SeededNoise(0))

    with pytest.raises(PrivacyError, match="how many records"):
        door(record_sum().per_person(OWNERS, at_most=2))


def test_rounding_is_covered_for_a_single_record():
    """
    One record in the batch moves the sum by one clip and one grid step, so the noise covers K steps beside K clips.
    """
    asked = []

    class Seen(TinyGaussian):
        def scale(self, l2, l1):
            asked.append(l2)
            return super().scale(l2, l1)

    event = events.records_of_person(2, 0.5, 3.0)
    total = Private(np.zeros((1, 4)), Unit.RECORD).clip(l2=1.0).per_person(OWNERS, at_most=2)
    Door(Seen(1.5), event, ("a",), reserved(event, unit=Unit.USER), SeededNoise(0))(total)

    grid = 2.0 ** (math.floor(math.log2(3.0)) - GRID_BITS)
    assert asked == [2.0, pytest.approx(2.0 + 2 * grid * math.sqrt(4), rel=1e-15)]
