"""Zeroth-order steps: slopes, their bound, their noise and their replay; broken twins that the same checks catch."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import nn

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.core.types import Unit
from sordino.federation.mechanisms import mechanisms
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.trainers import zeroth
from sordino.local.trainers.plans import ZerothSteps
from sordino.local.trainers.zeroth import Directions, Slopes, replay, train_zeroth
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.kernel import Private
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation
from tiny_lm import spec_of, texts, tiny

torch.set_num_threads(1)

SPEC = InputSpec((6,), classes=3)
PLAN = ZerothSteps(steps=3, lr=0.5, clip=0.5, batch="full", expected_batch=10.0, directions=4)


def silent(total):
    """The private sum itself: no noise."""
    return getattr(total, "_BoundedSum__vector").astype(np.float32)  # noqa: B009


def small(name="logistic", **options):
    model = models.build(name, options).build(SPEC, seed=1)
    return model, Layout.of(model)


def records(n=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 6)).astype(np.float32), rng.integers(3, size=n), np.arange(n) // 2


def train(plan=PLAN, data=None, release=silent, source=None, parts=None, **more):
    model, layout = parts or small()
    directions = Directions(1, 0, layout.size)
    start = layout.flatten(model)
    return train_zeroth(
        model, layout, data or records(), start, plan, directions, release=release, source=source, **more
    )


def test_a_noiseless_step_is_the_directional_derivative():
    """
    On a linear model each released number is the mean gradient times its direction, as autograd computes it.
    """
    model, layout = small()
    x, y, _ = records()
    plan = replace(PLAN, steps=1, clip=1e6, expected_batch=12.0)
    mean = cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).mean()
    gradient = torch.cat([g.ravel() for g in torch.autograd.grad(mean, list(model.parameters()))]).numpy()
    directions = Directions(1, 0, layout.size)

    slopes = train(plan, parts=(model, layout))[0]

    assert np.allclose(slopes, [gradient @ directions(0, k) for k in range(4)], rtol=1e-3, atol=1e-3)
    assert all(parameter.grad is None for parameter in model.parameters())


class TestReplay:
    @given(st.integers(0, 2**31), st.sampled_from([0.0, 0.6]))
    def test_expanding_the_mean_is_the_mean_of_the_expanded(self, seed, momentum):
        """
        Silos on different paths: the change by averaged slopes is the weighted mean of the silos' changes.
        """
        rng = np.random.default_rng(seed)
        plan, directions = replace(PLAN, momentum=momentum), Directions(seed, 3, 50)
        slopes = rng.normal(size=(3, plan.steps, plan.directions)).astype(np.float32)
        weights = rng.dirichlet([1, 1, 1]).astype(np.float32)

        averaged = replay(np.einsum("s,skd->kd", weights, slopes), plan, directions)
        expanded = np.einsum("s,sd->d", weights, [replay(own, plan, directions) for own in slopes])

        assert np.allclose(averaged, expanded, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("momentum", [0.0, 0.6])
    def test_is_where_the_silo_went(self, momentum):
        """
        The silo's own parameters end where anyone gets who knows the start and the released numbers.
        """
        model, layout = small()
        start = layout.flatten(model)
        plan = replace(PLAN, momentum=momentum)

        slopes = train(plan, parts=(model, layout))

        assert slopes.any()
        assert np.allclose(
            layout.flatten(model), start + replay(slopes, plan, Directions(1, 0, layout.size)), atol=1e-5
        )

    def test_directions_are_public_and_never_repeat(self):
        """
        The same in every silo; others in another round, step or place; standard normal.
        """
        one = Directions(1, 0, 4000)
        drawn = [one(0, 0), one(0, 1), one(1, 0), Directions(1, 1, 4000)(0, 0), Directions(2, 0, 4000)(0, 0)]

        assert np.array_equal(one(0, 0), Directions(1, 0, 4000)(0, 0))
        assert np.abs(np.corrcoef(drawn) - np.eye(5)).max() < 0.1
        assert np.std(drawn) == pytest.approx(1, abs=0.05)


def furthest_move(unit, norm):
    """How far one unit, ordinary or extreme, moves a step's sum, in units of the clip."""
    plan = replace(PLAN, steps=1, clip=0.1, unit=unit, norm=norm)
    x, y, user = records()
    order = 1 if norm == "l1" else 2
    moved = []
    for feature in (1.0, -30.0, 1e30, np.inf, np.nan):
        changed = x.copy()
        changed[4:6] = feature
        stay = np.ones(12, dtype=bool)
        stay[4 : 6 if unit is Unit.USER else 5] = False
        sums = []
        for data in ((changed, y, user), (changed[stay], y[stay], user[stay])):
            seen = []
            train(plan, data, release=lambda total, seen=seen: seen.append(silent(total)) or seen[0])
            sums.append(seen[0])
        moved.append(np.linalg.norm(sums[0] - sums[1], ord=order) / plan.clip)
    return max(moved)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.USER])
class TestSensitivity:
    def test_one_unit_moves_the_sum_by_at_most_the_clip(self, unit, norm):
        """
        With or without it, in the norm that the noise is measured against; non-finite losses count as zero.
        """
        assert 0.9 < furthest_move(unit, norm) <= 1 + 1e-5

    def test_a_clipped_batch_mean_is_caught(self, unit, norm, monkeypatch):
        """
        Broken twin: the mean over the batch is clipped, then multiplied by its size.
        """

        def mean_clipped(slopes, groups, plan):
            rows = slopes.nan_to_num(0, 0, 0).numpy()
            return Private(rows.mean(axis=0), plan.unit).clip(**{plan.norm: plan.clip}).scaled(len(rows))

        monkeypatch.setattr(zeroth, "_bounded", mean_clipped)

        assert furthest_move(unit, norm) > 1.5


@dataclass(frozen=True)
class Halved:
    """Another mechanism's twin that draws half its noise."""

    sound: object

    def event(self):
        return self.sound.event()

    def scale(self, l2, l1):
        return self.sound.scale(l2, l1)

    def draw(self, source, permit, scale, size):
        return self.sound.draw(source, permit, scale, size) / 2


def noise_is_right(law, twin):
    """Without data the slopes are noise only; the squares of 800 are as large as planned, at false alarm 1e-5."""
    plan = replace(PLAN, steps=200, lr=1e-6, norm="l1" if law == "laplace" else "l2")
    source, mechanism = SeededNoise(1), twin(mechanisms.build(law, {"noise_multiplier": 2.0}))
    charged = mechanism.event()
    lines = [Line("silo", Unit.RECORD, events.key(charged), plan.steps)]
    door = Door(mechanism, charged, ("silo",), mint_reservation("t", lines, test=True), source)
    nobody = (np.empty((0, 6), np.float32), np.empty(0, np.int64), None)
    drawn = train(plan, nobody, release=door, source=source) * plan.expected_batch / (2.0 * plan.clip)
    if law == "laplace":  # the absolute value of a Laplace draw, doubled, is chi-squared with two degrees of freedom
        statistic, degrees = 2 * np.abs(drawn).sum(), 2 * drawn.size
    else:
        statistic, degrees = (drawn.astype(np.float64) ** 2).sum(), drawn.size
    low, high = chi2.ppf([5e-6, 1 - 5e-6], df=degrees)
    return bool(low <= statistic <= high)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
class TestNoise:
    def test_every_number_gets_all_its_noise(self, law):
        """
        A silo without records releases fresh noise of the planned size at every step.
        """
        assert noise_is_right(law, lambda sound: sound)

    def test_half_the_noise_is_caught(self, law):
        """
        Negative control.
        """
        assert not noise_is_right(law, Halved)


class TestSteps:
    def test_one_release_per_step_and_one_number_per_direction(self):
        """
        Empty batches release as well: at a tiny rate most are.
        """
        seen = []
        plan = replace(PLAN, steps=20, batch=1e-6)

        slopes = train(plan, release=lambda total: seen.append(total) or silent(total), source=SeededNoise(1))

        assert len(seen) == 20
        assert slopes.shape == (20, 4)
        assert not slopes.any()

    def test_the_divisor_is_public(self):
        """
        The same records twice give twice the slopes.
        """
        x, y, _ = records()
        plan = replace(PLAN, steps=1)

        once, twice = (train(plan, (np.tile(x, (n, 1)), np.tile(y, n), None)) for n in (1, 2))

        assert np.allclose(twice, 2 * once, rtol=1e-4, atol=1e-5)

    def test_other_records_keep_every_bit(self):
        """
        With one record less, the others' slopes are the same numbers: fixed shapes, whatever the batch.
        """
        model, layout = small("mlp", hidden=[40])
        x, y = (torch.from_numpy(part) for part in records(23)[:2])
        slopes = Slopes(model, layout, cross_entropy, rows=8)
        theta, along = layout.flatten(model), lambda k: Directions(1, 0, layout.size)(0, k)

        whole = slopes.at(theta, along, PLAN, x, y)

        for gone in (0, 11, 22):
            stay = torch.arange(23) != gone
            assert torch.equal(slopes.at(theta, along, PLAN, x[stay], y[stay]), whole[stay])

    def test_texts_keep_every_bit(self, tmp_path):
        """
        A language model cuts off what is padding in all texts; the longest one must not show in the others' slopes.
        """
        model = models.build("text_classifier", {"base": str(tiny(tmp_path, "bert")), "adapter": {"lora": {"rank": 2}}})
        module = model.build(spec_of(tmp_path), seed=1)
        layout = Layout.of(module)
        x, y = texts(lengths=(10, 3, 5, 2, 4, 6))
        slopes = Slopes(module, layout, cross_entropy, rows=4)
        theta, along = layout.flatten(module), lambda k: Directions(1, 0, layout.size)(0, k)

        whole = slopes.at(theta, along, PLAN, x, y)

        assert whole.abs().min() > 0
        assert torch.equal(slopes.at(theta, along, PLAN, x[1:], y[1:]), whole[1:])

    def test_chunks_change_nothing_but_memory(self):
        """
        Few or many records per forward pass.
        """
        model, layout = small("mlp", hidden=[40])
        x, y = (torch.from_numpy(part) for part in records(23)[:2])
        theta, along = layout.flatten(model), lambda k: Directions(1, 0, layout.size)(0, k)

        few, many = (Slopes(model, layout, cross_entropy, n).at(theta, along, PLAN, x, y) for n in (2, 64))

        assert torch.allclose(few, many, atol=1e-3)  # last bits of the losses, over 2φ

    def test_dropout_is_off_and_put_back(self):
        """
        Another mask on either side of a difference would be noise without a purpose.
        """
        dropping = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
        plain = nn.Sequential(nn.Linear(6, 3))
        plain.load_state_dict({key: value.clone() for key, value in dropping.state_dict().items()})

        slopes = [train(parts=(model, Layout.of(model))) for model in (dropping, plain)]

        assert np.array_equal(*slopes)
        assert dropping[1].training

    def test_a_release_of_another_shape_is_refused(self):
        """
        One number per direction, or nothing.
        """
        with pytest.raises(PrivacyError, match="one number per direction"):
            train(release=lambda _: np.zeros(3, np.float32))

    def test_divergence_is_an_engine_error(self):
        """
        The parameters are public by then, so stopping tells nothing.
        """
        with np.errstate(over="ignore", invalid="ignore"), pytest.raises(EngineError, match="diverged"):
            train(replace(PLAN, lr=1e38), release=lambda _: np.full(4, 1e30, np.float32))


@pytest.mark.parametrize(
    "change", [{"directions": 0}, {"directions": 17}, {"radius": 0.0}, {"batch": 1.5}, {"unit": Unit.CLIENT}]
)
def test_nonsensical_plans_are_refused(change):
    """
    Before anything runs; more than 16 directions are more than 64 bytes a step.
    """
    with pytest.raises(ConfigError):
        replace(PLAN, **change)
