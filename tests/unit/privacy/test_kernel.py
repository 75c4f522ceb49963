"""The typed kernel: nothing leaves but through a door, and the noise fits the bound that was tracked."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from tiny_door import TinyGaussian, door, peek, reserved

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Unit
from sordino.privacy import events, kernel
from sordino.privacy.doors import Door
from sordino.privacy.kernel import GRID_BITS, BoundedSum, Private, certify, total_of
from sordino.privacy.noise import SeededNoise, SystemNoise

FALSE_ALARM = 1e-9  # per statistical assertion; seeds are fixed, so a pass stays a pass

QUICK = settings(deadline=None, max_examples=40, derandomize=True)
NUMBERS = st.floats(-1e308, 1e308)
ROWS = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=NUMBERS)
BOUNDS = st.floats(1e-6, 1e6)


def record(rows):
    return Private(np.asarray(rows), Unit.RECORD)


OPERATIONS = {
    "add": lambda p: p + 1,
    "radd": lambda p: 1 + p,
    "sub": lambda p: p - p,
    "mul": lambda p: 2 * p,
    "div": lambda p: p / 2,
    "negate": lambda p: -p,
    "matmul": lambda p: p @ np.ones(2),
    "index": lambda p: p[0],
    "length": len,
    "iterate": list,
    "array": np.asarray,
    "numpy ufunc": lambda p: np.add(p, 1),
    "float": float,
    "compare": lambda p: p < 1,
    "equal": lambda p: p == p,  # noqa: PLR0124
    "truth": bool,
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


class TestSealed:
    """Private values have no arithmetic and show nothing."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("clipped", [False, True])
    def test_refuses_to_be_computed_with(self, operation, clipped):
        """Each implicit way out raises PrivacyError."""
        value = record([[3.0, 4.0]])
        value = value.clip(l2=1.0) if clipped else value
        with pytest.raises(PrivacyError, match="private"):
            OPERATIONS[operation](value)

    def test_cannot_be_hashed(self):
        """A hash would be a fingerprint of private values."""
        with pytest.raises(TypeError):
            hash(record([[1.0]]))

    @pytest.mark.parametrize("show", [repr, str, "{}".format])
    def test_shows_no_values(self, show):
        """Logs and tracebacks print the type only."""
        assert show(record([[1234.5]])) == "<Private: private>"
        assert show(record([[1234.5]]).clip(l2=1.0)) == "<BoundedSum: private>"

    @pytest.mark.parametrize("name", ["l2", "l1", "unit"])
    def test_bound_and_unit_cannot_be_overwritten(self, name):
        """`total.l2 = 1e-9` would be a sensitivity typed by hand."""
        total = record([[3.0, 4.0]]).clip(l2=1.0)
        with pytest.raises(PrivacyError):
            setattr(total, name, 1e-9)
        with pytest.raises(PrivacyError):
            delattr(total, name)

    def test_hand_typed_sensitivity_is_refused(self):
        """A BoundedSum is made by clipping or certifying, never by its constructor."""
        with pytest.raises(PrivacyError, match="typed by hand"):
            BoundedSum(object(), np.zeros(2), Unit.RECORD, 1e-9, None)

    def test_input_is_copied(self):
        """Changing the array afterwards does not change the private value."""
        rows = np.zeros((1, 2))
        value = record(rows)
        rows[:] = 9.0
        assert np.array_equal(peek(value.clip(l2=1.0)), [0.0, 0.0])

    def test_rows_must_be_flat(self):
        """A stack of matrices would be clipped column by column: a bound √columns too small."""
        with pytest.raises(PrivacyError, match="flat"):
            Private(np.ones((1, 4, 9)), Unit.RECORD)


class TestClip:
    """One unit moves the sum by at most the bound, whatever its values."""

    @QUICK
    @given(rows=ROWS, bound=BOUNDS, position=st.integers(0, 5))
    def test_l2_sensitivity(self, rows, bound, position):
        """The definition, on neighbouring data sets."""
        assert moved(rows, position, l2=bound) <= bound * (1 + 1e-9)

    @QUICK
    @given(rows=ROWS, bound=BOUNDS, position=st.integers(0, 5))
    def test_l1_sensitivity(self, rows, bound, position):
        """The same in the L1 norm."""
        assert moved(rows, position, order=1, l1=bound) <= bound * (1 + 1e-9)

    def test_a_coordinate_clamp_is_caught(self):
        """Negative control: clamping coordinates instead of the norm breaks the same bound."""
        row = np.full(9, 5.0)
        assert np.linalg.norm(np.clip(row, -1.0, 1.0)) == 3.0
        assert moved(row[None], 0, l2=1.0) <= 1.0 + 1e-9

    @QUICK
    @given(rows=ROWS, bound=BOUNDS)
    def test_idempotent(self, rows, bound):
        """Clipping a clipped row changes nothing."""
        once = peek(record(rows[:1]).clip(l2=bound))
        assert np.allclose(peek(record(once[None]).clip(l2=bound)), once, rtol=1e-12, atol=0)

    @QUICK
    @given(rows=ROWS, bound=BOUNDS)
    def test_direction_is_kept(self, rows, bound):
        """A clipped row is the row times one factor in [0, 1], even near the largest float."""
        row = rows[0]
        clipped = peek(record(row[None]).clip(l2=bound))
        largest = np.abs(row).max()
        if largest > 0:
            factor = np.abs(clipped).max() / largest
            assert 0 <= factor <= 1 + 1e-12
            assert np.allclose(clipped, row * factor, rtol=1e-9, atol=1e-300)

    def test_short_rows_pass(self):
        """What is inside the ball is not scaled up."""
        assert np.array_equal(peek(record([[0.3, 0.4]]).clip(l2=1.0)), [0.3, 0.4])

    def test_zero_stays_zero_under_any_bound(self):
        """No division by the norm of nothing, and no overflow for a large bound."""
        assert np.array_equal(peek(record(np.zeros((2, 3))).clip(l2=1e300)), np.zeros(3))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_non_finite_units_count_as_zero(self, bad):
        """They neither crash the step nor poison the sum: a crash would tell who was there."""
        assert np.array_equal(peek(record([[bad, 1.0], [0.0, 0.5]]).clip(l2=1.0)), [0.0, 0.5])

    def test_huge_rows_reach_the_bound(self):
        """1e308 in every coordinate has an infinite norm in floats, and still clips to the bound."""
        clipped = peek(record(np.full((1, 4), 1e308)).clip(l2=2.0))
        assert np.allclose(clipped, 1.0)

    @pytest.mark.parametrize("keys", [{}, {"l2": 1.0, "l1": 1.0}])
    def test_needs_exactly_one_norm(self, keys):
        """Both or neither is refused."""
        with pytest.raises(PrivacyError, match="exactly one"):
            record([[1.0]]).clip(**keys)

    @pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan])
    def test_bound_is_finite_and_positive(self, bound):
        """An infinite bound has no noise that fits it."""
        with pytest.raises(ConfigError):
            record([[1.0]]).clip(l2=bound)

    def test_nobody_is_a_zero_sum(self):
        """An empty cohort still releases."""
        total = Private(np.zeros((0, 3)), Unit.CLIENT).clip(l2=1.0)
        assert np.array_equal(peek(total), np.zeros(3))


class TestBoundedSum:
    """Bounds follow the arithmetic."""

    def test_scaling_scales_the_bound(self):
        """Both norms."""
        total = record([[3.0, 4.0]]).clip(l1=2.0).scaled(0.5)
        assert (total.l2, total.l1) == (1.0, 1.0)

    def test_merging_disjoint_units_keeps_the_larger_bound(self):
        """One unit moves only its own part."""
        total = record([[1.0]]).clip(l2=1.0).merge(record([[9.0]]).clip(l2=3.0))
        assert (total.l2, total.l1) == (3.0, None)
        assert peek(total) == [4.0]

    def test_units_do_not_mix(self):
        """A client's bound says nothing about a record."""
        client = Private(np.ones((1, 1)), Unit.CLIENT).clip(l2=1.0)
        with pytest.raises(PrivacyError, match="different units"):
            record([[1.0]]).clip(l2=1.0).merge(client)

    def test_beside_keeps_the_larger_bound(self):
        """Each unit has a place of its own; an L1 bound holds only if every part has one."""
        parts = [record([[3.0, 4.0]]).clip(l2=1.0), record([[9.0, 0.0]]).clip(l1=3.0)]
        with pytest.raises(PrivacyError, match="different units"):
            parts[0].beside(Private(np.ones((1, 1)), Unit.CLIENT).clip(l2=1.0))

        total = parts[0].beside(parts[1])

        assert (total.l2, total.l1) == (3.0, None)
        assert np.allclose(peek(total), [0.6, 0.8, 3.0, 0.0])
        assert parts[1].beside(parts[1].scaled(2.0)).l1 == 6.0

    def test_certify_refuses_what_is_not_finite(self):
        """A NaN has no bound."""
        with pytest.raises(PrivacyError, match="not finite"):
            certify(np.array([np.nan]), unit=Unit.RECORD, l2=1.0)

    def test_certify_needs_a_bound(self):
        """No bound, no sum."""
        with pytest.raises(ConfigError):
            certify(np.zeros(2), unit=Unit.RECORD, l2=None)

    def test_total_of_a_stream(self):
        """A stream is merged; an empty one is an error."""
        sums = (record([[float(i)]]).clip(l2=10.0) for i in range(4))
        assert peek(total_of(sums)) == [6.0]
        with pytest.raises(PrivacyError):
            total_of([])


class TestDoor:
    """The only exit charges first, and its noise is computed from the bound."""

    def test_releases_no_more_than_charged(self):
        """The third release of two charged ones is refused."""
        exit_, total = door(count=2), record([[1.0]]).clip(l2=1.0)
        exit_(total)
        exit_(total)
        with pytest.raises(PrivacyError, match="not charged"):
            exit_(total)

    def test_refuses_another_event_than_charged(self):
        """A charge for much noise does not pay for little."""
        mechanism = TinyGaussian(0.1)
        exit_ = Door(mechanism, mechanism.event(), ("a",), reserved(events.gaussian(9.0)), SeededNoise(0))
        with pytest.raises(PrivacyError, match="not charged"):
            exit_(record([[1.0]]).clip(l2=1.0))

    def test_refuses_the_wrong_unit(self):
        """A client's account cannot release a record-level sum."""
        with pytest.raises(PrivacyError, match="another unit"):
            door(unit=Unit.CLIENT)(record([[1.0]]).clip(l2=1.0))

    def test_refuses_an_unknown_account(self):
        """Nobody was charged."""
        mechanism = TinyGaussian(1.0)
        exit_ = Door(mechanism, mechanism.event(), ("b",), reserved(mechanism.event()), SeededNoise(0))
        with pytest.raises(PrivacyError, match="not charged"):
            exit_(record([[1.0]]).clip(l2=1.0))

    def test_refuses_predictable_noise_on_a_real_account(self):
        """A seeded source is for accounts marked as tests."""
        with pytest.raises(PrivacyError, match="seeded source"):
            door(test=False)(record([[1.0]]).clip(l2=1.0))

    def test_real_accounts_take_system_noise(self):
        """The default source works on both."""
        total = record([[1.0]]).clip(l2=1.0)
        assert np.isfinite(door(test=False, source=SystemNoise())(total)).all()
        assert np.isfinite(door(test=True, source=SystemNoise())(total)).all()

    def test_result_is_a_float32_vector(self):
        """What crosses the wire."""
        released = door()(record([[1.0, 2.0]]).clip(l2=1.0))
        assert (released.dtype, released.shape) == (np.float32, (2,))

    def test_sum_and_noise_lie_on_one_grid(self):
        """No low bits of the sum survive in the output: it is whole multiples of 2^-30 of the noise."""
        total = certify(np.array([np.pi, np.e, 1e-17]), unit=Unit.RECORD, l2=1.0)
        released = door(noise_multiplier=4.0, source=SeededNoise(3))(total)
        steps = released.astype(np.float64) / 2.0 ** (2 - GRID_BITS)
        assert np.array_equal(steps, np.rint(steps))

    @pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 29])
    def test_sum_and_noise_are_rounded_each_in_every_block(self, monkeypatch, size):
        """Each coordinate is its own two whole numbers of steps; rounding after adding (the twin) gives others."""
        monkeypatch.setattr(kernel, "BLOCK", 8)
        step, rng = 2.0**-GRID_BITS, np.random.default_rng(0)
        exact, noise = step * (rng.integers(-999, 999, (2, size)) + 0.4)

        class Fixed(TinyGaussian):
            def draw(self, source, permit, scale, size):
                return noise

        mechanism = Fixed(1.0)
        released = Door(mechanism, mechanism.event(), ("a",), reserved(mechanism.event()), SeededNoise(0))(
            certify(exact, unit=Unit.RECORD, l2=1.0)
        )
        assert np.array_equal(released / step, np.rint(exact / step) + np.rint(noise / step))
        assert not np.array_equal(released / step, np.rint((exact + noise) / step))

    def test_rounding_is_paid_for(self):
        """The scale a mechanism is asked for covers the extra grid step of each coordinate."""
        asked = []

        class Spy(TinyGaussian):
            def scale(self, l2, l1):
                asked.append(l2)
                return super().scale(l2, l1)

        mechanism = Spy(1.0)
        Door(mechanism, mechanism.event(), ("a",), reserved(mechanism.event()), SeededNoise(0))(
            certify(np.zeros(100), unit=Unit.RECORD, l2=1.0)
        )
        assert asked == [1.0, 1.0 + 2.0**-GRID_BITS * 10]


@pytest.fixture(scope="module")
def released():
    """Shape (400 releases, 250 coordinates), of a zero sum with bound 3 and multiplier 1.5."""
    exit_ = door(1.5, count=400, source=SeededNoise(11))
    zero = certify(np.zeros(250), unit=Unit.RECORD, l2=3.0)
    return np.stack([exit_(zero) for _ in range(400)]).astype(np.float64)


class TestNoiseOfTheDoor:
    """The released noise has the std that the event claims. False alarm 1e-9 each; each check sees its fault."""

    std = 4.5

    def test_std_is_multiplier_times_bound(self, released):
        """Sum of squares against chi-squared; 1e5 draws see 2 % of missing noise."""
        assert enough_noise(released, self.std)
        assert not too_much_noise(released, self.std)

    @pytest.mark.parametrize("factor", [0.5, 0.95])
    def test_missing_noise_is_caught(self, released, factor):
        """Negative control."""
        assert not enough_noise(factor * released, self.std)

    def test_every_coordinate_has_noise(self, released):
        """The smallest variance of a coordinate, corrected for looking at all of them."""
        assert enough_noise_everywhere(released, self.std)

    def test_one_coordinate_without_noise_is_caught(self, released):
        """Negative control: 1 of 250, which the overall std cannot see."""
        broken = released.copy()
        broken[:, 17] = 0.0
        assert enough_noise(broken, self.std * 0.99)
        assert not enough_noise_everywhere(broken, self.std)

    def test_noise_is_fresh(self, released):
        """No two consecutive releases are correlated."""
        assert fresh(released)

    def test_reused_noise_is_caught(self, released):
        """Negative control: every tenth release repeats the one before."""
        broken = released.copy()
        broken[1::10] = broken[0::10]
        assert not fresh(broken)

    def test_the_law_is_normal(self, released):
        """Kolmogorov-Smirnov; a Laplace law of equal std fails."""
        sample = released.ravel()[:20_000]
        assert stats.kstest(sample / self.std, "norm").pvalue > FALSE_ALARM
        laplace = np.random.default_rng(0).laplace(size=20_000) / np.sqrt(2)
        assert stats.kstest(laplace, "norm").pvalue < FALSE_ALARM


def moved(rows, position, *, order=2, **bound):
    """How far leaving out one row moves the clipped sum."""
    without = np.delete(rows, position % len(rows), axis=0)
    return np.linalg.norm(peek(record(rows).clip(**bound)) - peek(record(without).clip(**bound)), ord=order)


def enough_noise(sample, std):
    return np.square(sample / std).sum() > stats.chi2.ppf(FALSE_ALARM, sample.size)


def too_much_noise(sample, std):
    return np.square(sample / std).sum() > stats.chi2.isf(FALSE_ALARM, sample.size)


def enough_noise_everywhere(sample, std):
    releases, coordinates = sample.shape
    return np.square(sample / std).sum(axis=0).min() > stats.chi2.ppf(FALSE_ALARM / coordinates, releases)


def fresh(sample):
    one, next_ = sample[:-1].ravel(), sample[1:].ravel()
    correlation = one @ next_ / np.sqrt((one @ one) * (next_ @ next_))
    return abs(correlation) * np.sqrt(one.size) < stats.norm.isf(FALSE_ALARM)
