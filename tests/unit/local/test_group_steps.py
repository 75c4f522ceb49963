"""Private steps over public groups: who joins how often, and how far a record of a group moves the sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Unit
from sordino.local.clipping import engines
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers._pools import pools, step_sum
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import GroupSteps, PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door, GroupDoor
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

CLIP = 0.05
LABELS = np.array(["open", "strict", "strict", "open"] * 10)
SAMPLE = (GroupSteps("open", 0.6), GroupSteps("strict", 0.2))
SCALE = (GroupSteps("open", "full"), GroupSteps("strict", "full", 0.25))


def plan_of(groups, steps=1):
    return PrivateSteps(steps, 1.0, CLIP, 0.4, expected_batch=16.0, groups=groups)


def data():
    x = np.random.default_rng(0).normal(size=(len(LABELS), 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64), None


def peek(total):
    """The private sum. Only a test may look."""
    return getattr(total, "_BoundedSum__vector")  # noqa: B009


def noiseless(groups, keep=slice(None)):
    """The clipped sum of all groups over some of the records, at fixed parameters far from a solution."""
    x, y, _ = data()
    x, y, labels = x[keep], y[keep], LABELS[keep]
    model = models.build("logistic", {}).build(InputSpec((4,), 2), seed=1)
    plan = plan_of(groups)
    parts = pools((x, y, None), labels, plan)
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    return step_sum(parts, model, cross_entropy, *tensors, plan, None, engines.example("auto"))


def largest_moves(groups):
    """How far a record of each group moves the sum at most."""
    whole = peek(noiseless(groups))
    found = {"open": 0.0, "strict": 0.0}
    for row, label in enumerate(LABELS):
        without = peek(noiseless(groups, np.arange(len(LABELS)) != row))
        found[label] = max(found[label], float(np.linalg.norm(whole - without)))
    return found


def test_a_record_moves_the_sum_by_its_groups_share():
    """
    Every gradient is longer than the clip: the bounds are reached, and not passed.
    """
    moves, bounds = largest_moves(SCALE), noiseless(SCALE).groups

    assert bounds == {"open": CLIP, "strict": pytest.approx(0.25 * CLIP)}
    for name, bound in bounds.items():
        assert moves[name] == pytest.approx(bound, rel=1e-3)


def joins(groups, times=2000):
    """How often each group's records join, on average."""
    source, parts = SeededNoise(3), pools(data(), LABELS, plan_of(groups))
    drawn = {pool.steps.name: [len(pool.units.draw(pool.steps.batch, source)) for _ in range(times)] for pool in parts}
    return {name: np.mean(counts) / 20 for name, counts in drawn.items()}


def test_each_group_joins_at_its_own_rate():
    """
    Within five standard errors; a twin that gives everyone the mean rate is caught by the same check.
    """

    def fits(found):
        return all(abs(found[g.name] - g.batch) < 5 * np.sqrt(0.25 / (20 * 2000)) for g in SAMPLE)

    assert fits(joins(SAMPLE))
    assert not fits(joins((GroupSteps("open", 0.4), GroupSteps("strict", 0.4))))


def group_door(groups, noise, steps):
    """A door charged for each group, noise over the clip."""
    charges = {
        g.name: (g.name, events.poisson(1.0 if g.batch == "full" else g.batch, events.gaussian(noise / g.share)))
        for g in groups
    }
    lines = [Line(account, Unit.RECORD, events.key(event), steps) for account, event in charges.values()]
    return GroupDoor(Gaussian(noise), charges, mint_reservation("t", lines, test=True), SeededNoise(0))


class Gaussian:
    """The smallest Gaussian mechanism."""

    def __init__(self, noise_multiplier):
        self.noise_multiplier = noise_multiplier

    def event(self):
        return events.gaussian(self.noise_multiplier)

    def scale(self, l2, l1):
        return self.noise_multiplier * l2

    def draw(self, source, permit, scale, size):
        return source.normal(permit, scale, size)


def trained(groups, release, labels=LABELS):
    model = models.build("logistic", {}).build(InputSpec((4,), 2), seed=1)
    layout = Layout.of(model)
    return train_private(
        model,
        layout,
        data(),
        layout.flatten(model),
        plan_of(groups, steps=3),
        release=release,
        source=SeededNoise(1),
        objective=objectives.example("plain"),
        labels=labels,
    )


@pytest.mark.parametrize("groups", [SAMPLE, SCALE])
def test_training_releases_through_the_groups_door(groups):
    """
    Three steps, three releases that every group pays for; a fourth is refused.
    """
    door = group_door(groups, 2.0, 3)

    assert np.abs(trained(groups, door)).max() > 0
    with pytest.raises(PrivacyError, match="another release"):
        trained(groups, door)


def test_a_trainer_that_clips_all_alike_is_refused():
    """
    The twin forgets the strict group's share: its records would get a quarter of the noise they paid for.
    """
    alike = tuple(GroupSteps(g.name, g.batch) for g in SCALE)

    with pytest.raises(PrivacyError, match="not the noise"):
        trained(alike, group_door(SCALE, 2.0, 3))


def test_an_ordinary_door_is_refused():
    """
    One account cannot pay for groups.
    """
    event = events.gaussian(2.0)
    lines = [Line("a", Unit.RECORD, events.key(event), 3)]
    door = Door(Gaussian(2.0), event, ("a",), mint_reservation("t", lines, test=True), SeededNoise(0))

    with pytest.raises(PrivacyError, match="groups"):
        trained(SCALE, door)


def test_a_record_of_no_group_is_refused():
    """
    It would be left out without a word.
    """
    with pytest.raises(ConfigError, match="not of a group"):
        trained(SCALE[:1], group_door(SCALE[:1], 2.0, 3))
    with pytest.raises(ConfigError, match="not of a group"):
        trained(SCALE, group_door(SCALE, 2.0, 3), labels=None)
    with pytest.raises(ConfigError, match="groups"):
        PrivateSteps(1, 1.0, CLIP, "full", 1.0, unit=Unit.USER, groups=SCALE)
