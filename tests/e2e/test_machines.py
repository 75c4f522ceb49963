"""The same experiment with silos that answer letters: same updates, same epsilon, and their own ledgers decide."""

from __future__ import annotations

import numpy as np
import pytest
from machines import Machines, answers
from whole_runs import model, planned

from sordino.experiment.run import run


@pytest.fixture
def machines(heart):
    return Machines.enrolled(heart, test=True)




def test_same_plan_and_seeds_same_model_as_in_process(machines):
    """
    Bit by bit, and the same claims.
    """
    plan, population = planned(machines.file, "simulation.noise_seed=5")
    alone = run(plan, population, "", machines.root / "alone")
    with machines.members() as members:
        apart = machines.run(answers(members), "simulation.noise_seed=5")
    assert machines.told == []
    assert np.array_equal(model(alone), model(apart))
    assert apart.summary["epsilon"] == alone.summary["epsilon"]
    assert apart.summary["metrics"] == alone.summary["metrics"]
