"""Silos side by side: each one's sum is the oracle's, bounded and released on its own."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sordino.core.errors import EngineError, PrivacyError
from sordino.core.types import Unit
from sordino.local.clipping import Clip, engines
from sordino.local.clipping import stacked as stacked_file
from sordino.local.clipping._engine import Unsupported
from sordino.local.clipping.stacked import clipped_sums
from sordino.local.cohort.buckets import Member, padded
from sordino.local.cohort.choice import choose_private
from sordino.local.cohort.plain import split
from sordino.local.cohort.private import Silo, train_private_many
from sordino.local.cohort.twin import Twin
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.probe import synthetic
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

torch.set_num_threads(1)

NORM = 0.5
SPECS = {
    "logistic": (InputSpec((6,), classes=2), {}),
    "mlp": (InputSpec((6,), classes=3), {"hidden": [5]}),
    "cnn": (InputSpec((2, 6, 6), classes=3), {"channels": [3], "kernel": 3, "hidden": 4, "activation": "tanh"}),
    "char_lstm": (InputSpec((4,), classes=5, vocabulary=5), {"embedding": 3, "hidden": 4}),
}


def built(name):
    spec, options = SPECS[name]
    return models.build(name, options).build(spec, seed=1), spec


def silos_of(spec, sizes):
    made = [synthetic(spec, max(size, 1), seed) for seed, size in enumerate(sizes)]
    return [(x.numpy()[:size], y.numpy()[:size], None) for (x, y), size in zip(made, sizes, strict=True)]


def opened(total):
    """The values of a bounded sum, which only a test may look at."""
    return getattr(total, "_BoundedSum__vector")  # noqa: B009 - the name is mangled on purpose


def thetas(layout, model, silos):
    rng = np.random.default_rng(5)
    return layout.flatten(model) + rng.normal(scale=0.3, size=(silos, layout.size)).astype(np.float32)


def sums(twin, theta, datas, norm=NORM, **more):
    batch = padded(datas, [np.arange(len(data[1])) for data in datas], twin.device)
    shares = twin.shares(split(twin.layout, torch.from_numpy(theta)), batch)
    made = list(clipped_sums(shares, twin.layout.groups, batch.present, norm=norm, **more))
    assert all((each.total.l2, each.total.unit) == (norm, Unit.RECORD) for each in made)
    return np.stack([opened(each.total) for each in made]), [each.nonfinite for each in made]


def oracle(model, theta, datas, norm=NORM, **more):
    layout, made = Layout.of(model), []
    for own, (x, y, _) in zip(theta, datas, strict=True):
        layout.restore(model, own)
        batch = torch.from_numpy(x), torch.from_numpy(y)
        engine = engines.build("oracle", {})
        made.append(engine.clipped_sum(model, cross_entropy, batch, Clip(norm, **more)))
    return np.stack([opened(each.total) for each in made]), [each.nonfinite for each in made]


@pytest.mark.parametrize("name", SPECS)
class TestClippedSums:
    @settings(max_examples=8)
    @given(sizes=st.lists(st.integers(0, 7), min_size=1, max_size=5), norm=st.sampled_from([0.01, 0.5, 100.0]))
    def test_every_silos_sum_is_the_oracles(self, name, sizes, norm):
        """
        At parameters of its own, with padding, for clips that touch all, some or none.
        """
        model, spec = built(name)
        twin, datas = Twin(model, cross_entropy), silos_of(spec, sizes)
        theta = thetas(twin.layout, model, len(sizes))
        made, expected = sums(twin, theta, datas, norm)[0], oracle(model, theta, datas, norm)[0]
        assert np.allclose(made, expected, rtol=1e-5, atol=1e-5)
        assert expected.any() == any(sizes)

    @pytest.mark.parametrize("rule", ["per_layer", "automatic"])
    def test_every_rule(self, name, rule):
        """
        As the oracle's.
        """
        model, spec = built(name)
        twin, datas = Twin(model, cross_entropy), silos_of(spec, [3, 5, 1])
        theta = thetas(twin.layout, model, 3)
        made, expected = sums(twin, theta, datas, rule=rule)[0], oracle(model, theta, datas, rule=rule)[0]
        assert np.allclose(made, expected, rtol=1e-5, atol=1e-5)

    def test_a_record_that_is_not_finite_counts_as_zero_in_its_silo(self, name):
        """
        And nowhere else; padding is not counted as such a record.
        """
        model, spec = built(name)
        if spec.vocabulary is not None:
            pytest.skip("tokens are always finite")
        twin, datas = Twin(model, cross_entropy), silos_of(spec, [4, 2, 3])
        theta = thetas(twin.layout, model, 3)
        datas[0][0][1], datas[2][0][0] = np.inf, np.nan
        finite = [np.isfinite(x).reshape(len(x), -1).all(1) for x, _, _ in datas]
        without = [(x[keep], y[keep], None) for (x, y, _), keep in zip(datas, finite, strict=True)]
        made, counts = sums(twin, theta, datas)
        assert counts == [1, 0, 1]
        assert np.allclose(made, oracle(model, theta, without)[0], rtol=1e-5, atol=1e-5)


def moves(name="cnn"):
    """How far one record more moves each silo's sum: short, long and absurdly long gradients."""
    model, spec = built(name)
    twin, datas = Twin(model, cross_entropy), silos_of(spec, [4, 4, 3])
    theta = thetas(twin.layout, model, 3)
    for factor in (1e-4, 1.0, 1e10):
        x, y, _ = datas[1]
        more = [datas[0], (np.concatenate([x, x[:1] * np.float32(factor)]), np.append(y, y[0]), None), datas[2]]
        yield np.linalg.norm(sums(twin, theta, more)[0] - sums(twin, theta, datas)[0], axis=1)


class TestSensitivity:
    def test_one_record_moves_its_own_silos_sum_by_the_norm_at_most(self):
        """
        No other silo's beyond rounding, and its own does move.
        """
        distances = np.stack(list(moves()))
        assert (distances[:, 1] <= NORM * (1 + 1e-9)).all()
        assert distances[1:, 1].min() > 0.9 * NORM
        assert distances[:, [0, 2]].max() < 1e-6

    @pytest.mark.parametrize("fault", ["no clip", "one tensor forgotten", "clip of the silo's sum", "shared factors"])
    def test_four_broken_twins_are_found_out(self, fault, monkeypatch):
        """
        Negative control: each of these moves some silo's sum too far.
        """
        right = stacked_file.factors

        def wrong(squares, layers, norm, rule):
            if fault == "no clip":
                return torch.ones_like(squares), torch.ones(squares.shape[1], dtype=torch.bool)
            if fault == "one tensor forgotten":
                return right(squares[-2:], layers[-2:], norm, rule)[0][:1].expand(squares.shape), squares[0] >= 0
            by_silo = squares.view(len(squares), -1, 3)
            if fault == "shared factors":
                factor, finite = right(by_silo.roll(1, dims=2).reshape(squares.shape), layers, norm, rule)
                return factor, finite
            whole = by_silo.mean(1, keepdim=True).expand(by_silo.shape).reshape(squares.shape)
            return right(whole, layers, norm, rule)

        monkeypatch.setattr(stacked_file, "factors", wrong)
        distances = np.stack(list(moves()))
        assert not ((distances[:, 1] <= NORM * (1 + 1e-9)).all() and distances[:, [0, 2]].max() < 1e-6)


@dataclass(frozen=True)
class Gaussian:
    """The smallest Gaussian mechanism."""

    noise_multiplier: float

    def event(self):
        return events.gaussian(self.noise_multiplier)

    def scale(self, l2, l1):
        return self.noise_multiplier * l2

    def draw(self, source, permit, scale, size):
        return source.normal(permit, scale, size)


def doors(silos, steps, source, noise=0.01):
    """A door per silo, all under one charge of `steps` releases each."""
    mechanism = Gaussian(noise)
    lines = [Line(f"silo {i}", Unit.RECORD, events.key(mechanism.event()), steps) for i in range(silos)]
    reservation = mint_reservation("t1", lines, test=True)
    return [Door(mechanism, mechanism.event(), (line.account,), reservation, source) for line in lines]


def steps_of(sizes, steps, batch="full", **more):
    return [PrivateSteps(steps, 0.3, NORM, batch, max(1.0, 0.5 * size), **more) for size in sizes]


def side_by_side(model, start, datas, plans, objective, source, releases):
    members = [Member(len(data[1]), lambda data=data: data) for data in datas]
    silos = [Silo(*parts) for parts in zip(members, plans, releases, strict=True)]
    changes = dict(train_private_many(Twin(model, cross_entropy), silos, start, objective, source))
    return np.stack([changes[i] for i in range(len(silos))])


class TestTraining:
    @settings(max_examples=15)
    @given(
        name=st.sampled_from(["logistic", "mlp", "cnn"]),
        sizes=st.lists(st.integers(0, 8), min_size=1, max_size=5),
        batch=st.sampled_from(["full", 0.5]),
        steps=st.integers(1, 3),
        momentum=st.sampled_from([0.0, 0.9]),
        objective=st.sampled_from(["plain", "fedprox"]),
        apart=st.booleans(),
    )
    def test_the_same_run_as_one_after_another(self, name, sizes, batch, steps, momentum, objective, apart):
        """
        The same coins, the same seeded noise for every silo and step, the same post-processing; from one start or many.
        """
        model, spec = built(name)
        starts = thetas(Layout.of(model), model, len(sizes))
        starts, datas = starts if apart else starts[:1].repeat(len(sizes), 0), silos_of(spec, sizes)
        start = starts if apart else starts[0]
        plans, pull = steps_of(sizes, steps, batch, momentum=momentum), objectives.example(objective)

        source = SeededNoise(7)
        releases = [door.ahead(steps) for door in doors(len(sizes), steps, source)]
        changes = side_by_side(model, start, datas, plans, pull, source, releases)

        source = SeededNoise(7)
        parts = zip(datas, starts, plans, doors(len(sizes), steps, source), strict=True)
        expected = [
            train_private(model, Layout.of(model), d, own, p, release=r, source=source, objective=pull)
            for d, own, p, r in parts
        ]
        assert np.allclose(changes, expected, rtol=1e-5, atol=1e-5)

    def test_every_step_of_every_silo_takes_a_permit_of_its_own(self):
        """
        Three steps on a charge of two are refused, and noise differs between silos and steps.
        """
        model, spec = built("mlp")
        start, datas = Layout.of(model).flatten(model), silos_of(spec, [0, 0, 0])
        source = SeededNoise(1)
        releases = doors(3, 2, source, noise=1.0)
        changes = side_by_side(model, start, datas, steps_of([1] * 3, 2), objectives.example("plain"), source, releases)
        assert np.linalg.matrix_rank(changes) == 3
        with pytest.raises(PrivacyError, match="was not charged for another release"):
            releases[0](clipped_nothing(model))
        with pytest.raises(PrivacyError, match="was not charged for another release"):
            side_by_side(
                model, start, datas, steps_of([1] * 3, 3), objectives.example("plain"), source, doors(3, 2, source)
            )

    def test_people_are_not_stacked(self):
        """
        Their means need whole gradients.
        """
        model, spec = built("mlp")
        plans = steps_of([2], 1, unit=Unit.USER)
        with pytest.raises(PrivacyError, match="stacks records only"):
            side_by_side(
                model,
                Layout.of(model).flatten(model),
                silos_of(spec, [2]),
                plans,
                objectives.example("plain"),
                SeededNoise(1),
                doors(1, 1, SeededNoise(1)),
            )

    def test_divergence_is_said(self):
        """
        As when a silo trains alone.
        """
        model, spec = built("mlp")
        plans = [PrivateSteps(2, 1e38, 1e3, "full", 1.0)]
        start, datas, source = Layout.of(model).flatten(model), silos_of(spec, [2]), SeededNoise(1)
        with pytest.raises(EngineError, match="diverged"), np.errstate(over="ignore", invalid="ignore"):
            side_by_side(model, start, datas, plans, objectives.example("plain"), source, doors(1, 2, source, 1.0))


def clipped_nothing(model):
    x, y = synthetic(SPECS["mlp"][0], 2)
    return engines.build("oracle", {}).clipped_sum(model, cross_entropy, (x, y), Clip(NORM)).total


class TestAhead:
    def test_permits_are_taken_at_once_and_in_order(self):
        """
        Two doors that take turns draw what each draws alone, and no more than was taken.
        """
        model, _ = built("mlp")
        total = clipped_nothing(model)
        one, two = doors(2, 2, SeededNoise(3))
        expected = [one(total), one(total), two(total), two(total)]
        one, two = (door.ahead(2) for door in doors(2, 2, SeededNoise(3)))
        turns = [one(total), two(total), one(total), two(total)]
        assert np.array_equal([turns[0], turns[2], turns[1], turns[3]], expected)
        with pytest.raises(PrivacyError, match="released all that was taken ahead"):
            one(total)

    def test_the_charge_must_cover_them_all(self):
        """
        Before anything is drawn.
        """
        with pytest.raises(PrivacyError, match="was not charged for another release"):
            doors(1, 2, SeededNoise(3))[0].ahead(3)


class InPlace(nn.Module):
    """Overwrites a layer's output, whose gradient would then be another's."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.relu_(self.embedding(x)).mean(1))


class TestChoice:
    def test_a_small_model_is_stacked(self):
        """
        Book-keeping one silo after another loses by far.
        """
        model, spec = built("logistic")
        assert isinstance(choose_private(model, cross_entropy, spec, 8, engines.build("auto", {})), Twin)

    def test_a_model_that_cannot_be_stacked_is_looped(self):
        """
        In-place writes are found out by the shares themselves.
        """
        spec = InputSpec((4,), classes=3, vocabulary=5)
        model, batch = InPlace(), padded(silos_of(spec, [2, 2]), [np.arange(2)] * 2, torch.device("cpu"))
        twin = Twin(model, cross_entropy)
        theta = np.tile(twin.layout.flatten(model), (2, 1))
        with pytest.raises(Unsupported, match="in place"):
            twin.shares(split(twin.layout, torch.from_numpy(theta)), batch)
        assert choose_private(model, cross_entropy, spec, 4, engines.build("auto", {})) is None
