"""Every objective: its regulariser stays outside the clip, so neither sums nor sensitivity know of it."""

import numpy as np
import pytest
import torch

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
from sordino.local.layout import Layout
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.probe import synthetic
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy.noise import SeededNoise

torch.set_num_threads(1)

SPEC = InputSpec((5,), classes=3)


class Recording:
    """A release that adds no noise and keeps what it was handed."""

    def __init__(self):
        self.sums = []

    def __call__(self, total):
        self.sums.append((total.l2, getattr(total, "_BoundedSum__vector").copy()))  # noqa: B009 - mangled on purpose
        return self.sums[-1][1].astype(np.float32)


def run(objective, steps=1, records=6):
    model = models.example("mlp").build(SPEC, seed=1)
    layout, release = Layout.of(model), Recording()
    x, y = synthetic(SPEC, examples=records)
    start = layout.flatten(model)
    plan = PrivateSteps(steps, lr=0.5, clip=0.3, batch="full", expected_batch=6.0, unit=Unit.RECORD)
    change = train_private(
        model,
        layout,
        (x.numpy(), y.numpy(), None),
        start,
        plan,
        release=release,
        source=SeededNoise(1),
        objective=objective,
    )
    return change, release.sums


@pytest.mark.parametrize("name", objectives.names())
class TestEveryObjective:
    def test_without_a_pull_the_regulariser_is_zero(self, name):
        """
        And with one it is not: a trainer that leaves it out where there is none changes nothing.
        """
        theta, start = np.arange(4, dtype=np.float32), np.zeros(4, dtype=np.float32)
        objective = objectives.example(name)
        assert objective.pulls == bool(objective.regulariser(theta, start).any())

    def test_depends_on_released_parameters_only(self, name):
        """
        A vector of the same length, a new array each time, zero where the round begins.
        """
        theta = np.arange(4, dtype=np.float32)
        regulariser = objectives.example(name).regulariser(theta, theta)

        assert regulariser.shape == theta.shape
        assert regulariser.dtype == np.float32
        assert not regulariser.any()

    def test_leaves_the_clipped_sum_alone(self, name):
        """
        The sum handed to the door in the first step is the one of the plain objective, with the same bound.
        """
        (bound, total), (plain_bound, plain) = (
            run(objectives.build(*kind))[1][0] for kind in ((name, EXAMPLES[name]), ("plain", {}))
        )

        assert bound == plain_bound == 0.3
        assert np.array_equal(total, plain)

    def test_leaves_the_sensitivity_alone(self, name):
        """
        One record fewer moves the first step's sum by at most the clip, however strong the objective.
        """
        whole, without = (run(objectives.build(name, EXAMPLES[name]), records=n)[1][0][1] for n in (6, 5))

        assert np.linalg.norm(whole - without) <= 0.3 * (1 + 1e-5)


EXAMPLES = {name: objectives.get(name).example for name in objectives.names()} | {"fedprox": {"mu": 50.0}}


def test_fedprox_pulls_back():
    """
    After the first step the pull acts: each further step keeps the share 1 - lr·mu of the drift.
    """
    theta, start = np.float32([3.0, -1.0]), np.float32([1.0, 0.0])

    assert objectives.build("fedprox", {"mu": 0.5}).regulariser(theta, start).tolist() == [1.0, -0.5]

    plain, pulled = (np.linalg.norm(run(objectives.build("fedprox", {"mu": mu}), steps=8)[0]) for mu in (0.0, 1.0))
    assert pulled < 0.6 * plain


def test_a_negative_pull_is_refused():
    """
    It would push silos apart without bound.
    """
    with pytest.raises(ConfigError, match="mu"):
        objectives.build("fedprox", {"mu": -1.0})
