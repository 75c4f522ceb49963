"""Records of persons, drawn one by one under a cap: who counts, how often, and how far one person moves the sum."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.local.clipping import Clip, engines
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers import _data
from sordino.local.trainers._data import Units
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.gradient_sum import gradient_sum
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.kernel import Private
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation
from sordino.privacy.tradeoff import attack_bounds

CAP = 3
USERS = np.array([f"p{i}" for i, n in enumerate((5, 1, 3, 2, 9)) for _ in range(n)])


def data(users=USERS, seed=0):
    """Records of the users; those of a user depend on their name alone."""
    order = {name: np.flatnonzero(users == name) for name in np.unique(users)}
    x = np.zeros((len(users), 4), np.float32)
    for name, rows in order.items():
        x[rows] = np.random.default_rng([seed, *name.encode()]).normal(size=(len(rows), 4))
    return x, (x[:, 0] > 0).astype(np.int64), users


def uncapped(x, y, person, records):
    """The broken twin: forgets the cap."""
    return np.arange(len(x))


def refuses_nothing(monkeypatch):
    """A kernel that believes every cap: for twins only."""
    monkeypatch.setattr(Units, "bounded", lambda self, total: total)


def values(rows, x):
    """Records as a set of values."""
    return {x[row].tobytes() for row in rows}


class TestTheCap:
    """At most K records of a person, the same ones whoever else is there."""

    def test_nobody_has_more(self):
        """
        Each person keeps the smaller of the cap and what they have.
        """
        rows = Units(data(), Unit.USER, CAP).draw("full", None)

        assert np.unique(USERS[rows], return_counts=True)[1].tolist() == [3, 1, 3, 2, 3]

    def test_which_ones_depends_on_nobody_else(self):
        """
        Without some person, or in another order of the file, the others' records in play are the same.
        """
        x, y, users = data()
        everyone = values(Units((x, y, users), Unit.USER, CAP).draw("full", None), x)
        shuffled = np.random.default_rng(1).permutation(len(x))
        mixed = (x[shuffled], y[shuffled], users[shuffled])

        assert values(Units(mixed, Unit.USER, CAP).draw("full", None), mixed[0]) == everyone
        for name in np.unique(users):
            kept = users != name
            rest = (x[kept], y[kept], users[kept])
            alone = values(Units(rest, Unit.USER, CAP).draw("full", None), rest[0])
            assert alone == everyone - {row.tobytes() for row in x[~kept]}

    def test_the_kernel_refuses_a_silo_that_forgets_it(self, monkeypatch):
        """
        The bound is checked against everybody's records in play, whatever the batch happens to hold.
        """
        monkeypatch.setattr(_data, "_first", uncapped)
        units = Units(data(), Unit.USER, CAP)

        with pytest.raises(PrivacyError, match="exceeded"):
            units.bounded(Private(np.zeros((1, 2)), Unit.RECORD).clip(l2=1.0))


def drawn_counts(units, users, name, rate, times=3000):
    """How many records of a person are in a batch, over many batches."""
    source = SeededNoise(5)
    return np.bincount([np.sum(users[units.draw(rate, source)] == name) for _ in range(times)], minlength=10)


class TestTheDraw:
    """A person's records in a batch are binomial, which is what is priced."""

    @staticmethod
    def fits(counts, rate):
        """Whether the counts may be binomial with K trials, at false alarm 1e-6."""
        expected = binom.pmf(np.arange(CAP + 1), CAP, rate) * counts.sum()
        return counts[CAP + 1 :].sum() == 0 and chisquare(counts[: CAP + 1], expected).pvalue > 1e-6

    def test_records_join_one_by_one(self):
        """
        Nine records, three of which count.
        """
        assert self.fits(drawn_counts(Units(data(), Unit.USER, CAP), USERS, "p4", 0.3), 0.3)

    def test_twins_are_caught(self, monkeypatch):
        """
        People who join as a whole, and a cap that is forgotten, draw otherwise.
        """
        assert not self.fits(drawn_counts(Units(data(), Unit.USER), USERS, "p2", 0.3), 0.3)
        monkeypatch.setattr(_data, "_first", uncapped)
        assert not self.fits(drawn_counts(Units(data(), Unit.USER, CAP), USERS, "p4", 0.3), 0.3)


def peek(total):
    """The private sum. Only a test may look."""
    return getattr(total, "_BoundedSum__vector")  # noqa: B009


def moved(seed, clip, records):
    """How far each person's presence moves a silo's noiseless sum, and the bound that was tracked."""
    model = models.build("logistic", {}).build(InputSpec((4,), 2), seed=1)
    layout = Layout.of(model)
    at = np.random.default_rng(seed).normal(size=layout.size).astype(np.float32)

    def total(held):
        return gradient_sum(model, layout, held, at, clip=clip, unit=Unit.USER, records_per_person=records)

    x, y, users = data(seed=seed)
    whole = total((x, y, users))
    moves = [
        np.linalg.norm(peek(whole) - peek(total((x[users != u], y[users != u], users[users != u]))))
        for u in np.unique(users)
    ]
    return max(moves), whole.l2


class TestTheBound:
    """What a person moves."""

    @settings(max_examples=8)
    @given(seed=st.integers(0, 1000), clip=st.floats(0.01, 0.3), records=st.integers(1, 6))
    def test_no_person_moves_the_sum_further(self, seed, clip, records):
        """
        K clips, and the sum says so.
        """
        most, bound = moved(seed, clip, records)

        assert bound == pytest.approx(records * clip)
        assert most <= bound * (1 + 1e-6)

    def test_without_the_cap_a_person_moves_it_further(self, monkeypatch):
        """
        The twin whose cap is forgotten and never checked breaks the bound that the sound one keeps.
        """
        monkeypatch.setattr(_data, "_first", uncapped)
        refuses_nothing(monkeypatch)

        assert moved(3, 0.01, CAP)[0] > CAP * 0.01 * 1.2


class Gaussian:
    """The smallest Gaussian mechanism."""

    def __init__(self, noise_multiplier, fault=1.0):
        self.noise_multiplier, self.fault = noise_multiplier, fault

    def event(self):
        return events.gaussian(self.noise_multiplier)

    def scale(self, l2, l1):
        return self.noise_multiplier * l2 * self.fault

    def draw(self, source, permit, scale, size):
        return source.normal(permit, scale, size)


def door_of(records, rate, noise, steps, fault=1.0):
    """A door charged for steps of so many records per person, its noise over one record's clip."""
    source, charged = SeededNoise(1), events.records_of_person(records, rate, noise)
    lines = [Line("silo", Unit.USER, events.key(charged), steps)]
    mechanism = Gaussian(noise / records, fault)
    return Door(mechanism, charged, ("silo",), mint_reservation("t", lines, test=True), source), source


def advantage(fault):
    """TPR − FPR of the best test whether a person with K equal records was there, over real releases."""
    rate, noise, times = 0.5, 2.0, 3000
    door, source = door_of(CAP, rate, noise, 2 * times, fault)
    users = np.array(["them"] * CAP + ["other"])
    x = np.zeros((len(users), 1), np.float32)
    both = Units((x, np.zeros(len(x), np.int64), users), Unit.USER, CAP)
    rest = Units((x[CAP:], np.zeros(1, np.int64), users[CAP:]), Unit.USER, CAP)

    def released(units, value):
        rows = units.draw(rate, source)
        total = Private(np.array([[value if row < CAP else 0.0] for row in rows] or [[0.0]]), Unit.RECORD).clip(l2=1.0)
        return float(door(units.bounded(total))[0])

    there = np.array([released(both, 1.0) for _ in range(times)])
    away = np.array([released(rest, 0.0) for _ in range(times)])
    return max(np.mean(there > cut) - np.mean(away > cut) for cut in np.linspace(-2, 4, 61))


def test_an_attacker_sees_what_is_priced_and_no_more():
    """
    The best attack on real releases reaches the bound of the mixture; with noise of z·C/K it breaks it.
    """
    priced = [(events.records_of_person(CAP, 0.5, 2.0), 1)]
    most = 2 * attack_bounds(priced, 1e-6, adjacency=Adjacency.ADD_REMOVE).accuracy - 1
    error = 5 * math.sqrt(0.5 / 3000)

    assert most - error < advantage(1.0) < most + error
    assert advantage(1 / CAP) > most + error


@pytest.mark.parametrize("rate", ["full", 0.5])
def test_training_releases_persons_sums(rate):
    """
    A private step end to end: one release each, through a door that was charged for the mixture.
    """
    share = 1.0 if rate == "full" else rate
    door, source = door_of(CAP, share, 6.0, 4)
    model = models.build("logistic", {}).build(InputSpec((4,), 2), seed=1)
    layout = Layout.of(model)
    plan = PrivateSteps(4, 0.5, 0.1, rate, expected_batch=12 * share, unit=Unit.USER, records_per_person=CAP)
    train = partial(train_private, model, layout, data(), layout.flatten(model), plan)

    change = train(release=door, source=source, objective=objectives.example("plain"))

    assert change.shape == (layout.size,)
    assert np.abs(change).max() > 0


def test_records_are_clipped_one_by_one():
    """
    Not a person's mean: the sum under a cap that nobody reaches is the sum of all clipped records.
    """
    model = models.build("logistic", {}).build(InputSpec((4,), 2), seed=1)
    layout = Layout.of(model)
    x, y, users = data()
    mine = gradient_sum(
        model, layout, (x, y, users), layout.flatten(model), clip=0.1, unit=Unit.USER, records_per_person=50
    )
    batch = (torch.from_numpy(x), torch.from_numpy(y))
    plain = engines.example("oracle").clipped_sum(model, cross_entropy, batch, Clip(0.1)).total

    assert peek(mine) == pytest.approx(peek(plain), abs=1e-6)
