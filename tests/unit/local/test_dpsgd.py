"""Private steps end to end: real data, a real door, and four broken twins that the same checks catch."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from sklearn.datasets import load_breast_cancer

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.core.types import Unit
from sordino.local import evaluate
from sordino.local.clipping import engines
from sordino.local.layout import Layout
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.gradient_sum import gradient_sum
from sordino.local.trainers.plans import PlainSteps, PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.kernel import certify
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

torch.set_num_threads(1)

PLAIN = objectives.example("plain")
WIDE = InputSpec((400,), classes=4)
PLAN = PrivateSteps(steps=3, lr=1.0, clip=0.5, batch="full", expected_batch=1.0)


@dataclass(frozen=True)
class Gaussian:
    """The smallest Gaussian mechanism, with the faults a test may ask for."""

    noise_multiplier: float
    halved: bool = False

    def event(self):
        return events.gaussian(self.noise_multiplier)

    def scale(self, l2, l1):
        return self.noise_multiplier * l2

    def draw(self, source, permit, scale, size):
        return source.normal(permit, scale, size) / (2 if self.halved else 1)


def door(steps, mechanism, *, rate=1.0, unit=Unit.RECORD, seed=1):
    """A door whose account was charged for exactly `steps` releases, and its source."""
    source = SeededNoise(seed)
    charged = events.poisson(rate, mechanism.event())
    lines = [Line("silo", unit, events.key(charged), steps)]
    reservation = mint_reservation("t1", lines, test=True)
    return Door(mechanism, charged, ("silo",), reservation, source), source


class Counting:
    """A release that counts."""

    def __init__(self, inner):
        self.inner, self.count = inner, 0

    def __call__(self, total):
        self.count += 1
        return self.inner(total)


def wide_model():
    model = models.build("mlp", {"hidden": [50]}).build(WIDE, seed=1)
    return model, Layout.of(model)


def nobody(spec=WIDE):
    return np.empty((0, *spec.shape), np.float32), np.empty(0, np.int64), None


def train(model, layout, data, plan, release, source, **more):
    start = layout.flatten(model)
    return train_private(
        model, layout, data, start, plan, release=release, source=source, objective=more.pop("objective", PLAIN), **more
    )


@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.USER])
def test_learns_on_real_records(unit):
    """
    Breast cancer, 569 records, Poisson batches, a real door: well above chance, exactly one release per step.
    """
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    user = np.arange(len(x)) // 2
    units = len(x) if unit is Unit.RECORD else int(user.max()) + 1
    model = models.build("logistic", {}).build(InputSpec((30,), 2), seed=1)
    plan = PrivateSteps(30, lr=1.0, clip=1.0, batch=0.3, expected_batch=0.3 * units, unit=unit, momentum=0.5)
    inner, source = door(30, Gaussian(3.0), rate=0.3, unit=unit)
    release = Counting(inner)
    layout = Layout.of(model)
    start = layout.flatten(model)

    change = train(model, layout, (x, y, user), plan, release, source)

    assert release.count == plan.steps
    assert np.allclose(layout.flatten(model), start + change)
    assert evaluate.auc(evaluate.scores(model, x), y) > 0.95
    assert evaluate.accuracy(evaluate.scores(model, x), y) > 0.85


def test_the_charge_limits_the_steps():
    """
    One step more than was charged is refused by the reservation.
    """
    model, layout = wide_model()
    release, source = door(2, Gaussian(1.0))

    with pytest.raises(PrivacyError, match="not charged"):
        train(model, layout, nobody(), PLAN, release, source)


def test_the_unit_of_the_account_must_fit():
    """
    Records' sums do not leave through a door that was charged for people.
    """
    model, layout = wide_model()
    release, source = door(3, Gaussian(1.0), unit=Unit.USER)

    with pytest.raises(PrivacyError, match="another unit"):
        train(model, layout, nobody(), PLAN, release, source)


class TestNoise:
    """Without data the change is noise only: its variance per tensor over the expected one, at false alarm 1e-6."""

    def test_every_tensor_gets_all_its_noise(self):
        """
        A silo without records releases noise of the planned size in every tensor, fresh at every step.
        """
        assert noise_is_right(sound)

    @pytest.mark.parametrize("twin", ["noise halved", "noise reused", "a tensor without noise"])
    def test_broken_twins_are_caught(self, twin):
        """
        Half the noise, one draw for all steps, and one bias left bare all fail the same check.
        """
        assert not noise_is_right(TWINS[twin])


def sound(layout):
    return door(PLAN.steps, Gaussian(2.0))


def halved(layout):
    return door(PLAN.steps, Gaussian(2.0, halved=True))


def reused(layout):
    release, source = sound(layout)
    first = []

    def again(total):
        first.append(release(total))
        return first[0]

    return again, source


def bare(layout):
    release, source = sound(layout)
    group = layout.groups[1]

    def without(total):
        released = release(total)
        released[group.start : group.stop] = getattr(total, "_BoundedSum__vector")[group.start : group.stop]  # noqa: B009
        return released

    return without, source


TWINS = {"noise halved": halved, "noise reused": reused, "a tensor without noise": bare}


def noise_is_right(make):
    model, layout = wide_model()
    release, source = make(layout)
    change = train(model, layout, nobody(), PLAN, release, source) / (2.0 * PLAN.clip * np.sqrt(PLAN.steps))
    for group in layout.groups:
        squares, n = float(np.sum(change[group.start : group.stop] ** 2)), group.stop - group.start
        low, high = chi2.ppf([5e-7, 1 - 5e-7], df=n)
        if not low <= squares <= high:
            return False
    return True


class TestDivisor:
    """The divisor is public: the same records twice give twice the change."""

    def test_is_the_expected_batch(self):
        """
        Whatever number of records there really is.
        """
        assert doubling(train) == pytest.approx(2, rel=1e-3)

    def test_the_realised_denominator_is_caught(self):
        """
        A twin that divides by the records it has gives the same change for both.
        """

        def realised(model, layout, data, plan, release, source):
            return train(model, layout, data, replace(plan, expected_batch=float(len(data[0]))), release, source)

        assert doubling(realised) == pytest.approx(1, rel=1e-3)


def doubling(trainer):
    """Change by eight equal records over the change by four of them, with next to no noise."""
    x, y = np.ones((8, 400), np.float32), np.zeros(8, np.int64)
    sizes = []
    for n in (4, 8):
        model, layout = wide_model()
        release, source = door(1, Gaussian(1e-6))
        plan = replace(PLAN, steps=1, expected_batch=4.0)
        sizes.append(np.linalg.norm(trainer(model, layout, (x[:n], y[:n], None), plan, release, source)))
    return sizes[1] / sizes[0]


class TestSteps:
    def silent(self, total):
        return getattr(total, "_BoundedSum__vector").astype(np.float32)  # noqa: B009

    def records(self, n=20, seed=0):
        rng = np.random.default_rng(seed)
        return rng.normal(size=(n, 400)).astype(np.float32), rng.integers(4, size=n), np.arange(n) % 7

    def test_bad_records_count_as_zero(self):
        """
        NaN and infinite records change nothing and stop nothing.
        """
        x, y, user = self.records()
        bad = np.vstack([x, np.full((2, 400), np.nan), np.full((1, 400), np.inf)]).astype(np.float32)
        results = []
        for data in ((x, y, user), (bad, np.append(y, [0, 1, 2]), np.append(user, [7, 7, 8]))):
            model, layout = wide_model()
            results.append(train(model, layout, data, PLAN, self.silent, SeededNoise(1)))

        assert np.allclose(*results, atol=1e-6)

    def test_an_empty_poisson_batch_still_releases(self):
        """
        At a tiny rate most batches are empty; every step releases.
        """
        model, layout = wide_model()
        release = Counting(self.silent)
        plan = replace(PLAN, steps=20, batch=1e-6)

        change = train(model, layout, self.records(), plan, release, SeededNoise(1))

        assert release.count == 20
        assert not change.any()

    def test_engines_take_the_same_path(self):
        """
        With equal coins and noise, all engines end at the same parameters.
        """
        ends = []
        for name in engines.names():
            model, layout = wide_model()
            plan = replace(PLAN, batch=0.5, engine=name, expected_batch=10.0, unit=Unit.USER)
            ends.append(train(model, layout, self.records(), plan, self.silent, SeededNoise(1)))

        assert all(np.allclose(end, ends[0], atol=1e-5) for end in ends)

    def test_users_join_with_all_their_records(self):
        """
        Poisson sampling of people: their whole mean gradient counts, and their number is what batches average.
        """
        seen = []

        def release(total):
            seen.append(np.linalg.norm(self.silent(total)))
            return np.zeros(layout.size, np.float32)

        model, layout = wide_model()
        x, y = np.ones((40, 400), np.float32) * 100, np.zeros(40, np.int64)
        plan = replace(PLAN, steps=200, batch=0.5, unit=Unit.USER)

        train(model, layout, (x, y, np.arange(40) // 10), plan, release, SeededNoise(1))

        people = np.array(seen) / PLAN.clip  # four people with ten equal records each: 0.5 per joining person
        assert np.allclose(people, people.round(), atol=1e-4)
        assert set(people.round().astype(int)) == {0, 1, 2, 3, 4}
        assert people.mean() == pytest.approx(2, abs=5 / np.sqrt(200))

    def test_momentum_uses_released_gradients(self):
        """
        Three equal releases of one: steps of 1, 1 + m and 1 + m + m².
        """
        model, layout = wide_model()
        plan = replace(PLAN, momentum=0.5, lr=0.1)

        change = train(model, layout, nobody(), plan, lambda _: np.ones(layout.size, np.float32), SeededNoise(1))

        assert np.allclose(change, -0.1 * (1 + 1.5 + 1.75), atol=1e-6)

    def test_one_module_serves_many_silos(self):
        """
        Silos trained one after another in one module end where they end in modules of their own.
        """
        shared, layout = wide_model()
        start = layout.flatten(shared)
        run = partial(
            train_private,
            plan=PLAN,
            release=self.silent,
            source=SeededNoise(1),
            objective=objectives.example("fedprox"),
        )

        for seed in range(3):
            own, _ = wide_model()
            together = run(shared, layout, self.records(seed=seed), start)
            assert np.array_equal(together, run(own, layout, self.records(seed=seed), start))

    def test_divergence_is_an_engine_error(self):
        """
        The parameters are public by then, so stopping tells nothing.
        """
        model, layout = wide_model()
        plan = replace(PLAN, lr=1e38)

        with np.errstate(over="ignore", invalid="ignore"), pytest.raises(EngineError, match="diverged"):
            train(model, layout, nobody(), plan, lambda _: np.full(layout.size, 1e30, np.float32), SeededNoise(1))

    def test_a_release_of_another_shape_is_refused(self):
        """
        The whole vector, or nothing.
        """
        model, layout = wide_model()
        with pytest.raises(PrivacyError, match="shape"):
            train(model, layout, nobody(), PLAN, lambda _: np.zeros(3, np.float32), SeededNoise(1))


class TestGradientSum:
    def test_is_one_bounded_sum(self):
        """
        For noise at the sum: the engine's sum at the given parameters, with the clip as its bound.
        """
        model, layout = wide_model()
        x, y, user = TestSteps().records()
        at = layout.flatten(model)

        total = gradient_sum(model, layout, (x, y, user), at, clip=0.5, unit=Unit.USER)
        merged = total.merge(certify(np.zeros(layout.size), unit=Unit.USER, l2=0.5))

        assert total.l2 == merged.l2 == 0.5
        assert total.unit is Unit.USER
        by_oracle = gradient_sum(
            model, layout, (x, y, user), at, clip=0.5, unit=Unit.USER, engine=engines.example("oracle")
        )
        assert np.allclose(TestSteps().silent(total), TestSteps().silent(by_oracle), atol=1e-6)

    def test_sampling_needs_a_source(self):
        """
        Coins come from a noise source, never from an ordinary generator.
        """
        model, layout = wide_model()
        with pytest.raises(ConfigError, match="coins"):
            gradient_sum(model, layout, TestSteps().records(), layout.flatten(model), clip=1.0, batch=0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"lr": 0.0},
        {"clip": -1.0},
        {"batch": 1.5},
        {"expected_batch": 0.0},
        {"momentum": 1.0},
        {"unit": Unit.CLIENT},
    ],
)
def test_nonsensical_plans_are_refused(change):
    """
    Before anything runs.
    """
    with pytest.raises(ConfigError):
        replace(PLAN, **change)


def test_plain_plans_take_epochs_or_steps():
    """
    Exactly one of the two.
    """
    for wrong in ({}, {"epochs": 1, "steps": 1}, {"epochs": 0}, {"steps": 1, "batch_size": 0}):
        with pytest.raises(ConfigError):
            PlainSteps(lr=0.1, **wrong)


def test_users_must_be_known():
    """
    The unit user needs to know whose each record is; arrays must agree in length.
    """
    model, layout = wide_model()
    x, y, _ = TestSteps().records()
    with pytest.raises(ConfigError, match="whose"):
        train(model, layout, (x, y, None), replace(PLAN, unit=Unit.USER), TestSteps().silent, SeededNoise(1))
    with pytest.raises(ConfigError, match="length"):
        train(model, layout, (x, y[:-1], None), PLAN, TestSteps().silent, SeededNoise(1))
