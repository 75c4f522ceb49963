"""Epsilon spent so far, as shown between rounds: cheap, never too small, and the claim at the end."""

from __future__ import annotations

import time

import pytest

from sordino.core.types import Adjacency
from sordino.experiment.config import parse
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.progress import Spent
from sordino.experiment.run import run
from sordino.ledger import Ledger
from sordino.privacy.accounting import best_epsilon

SAMPLED = "local={ lr = 1.0, clip = 0.3, batch = 0.2 }"
CLIENTS = (
    "privacy={ unit = 'client', noise_at = 'coordinator', noise_multiplier = 1.0, delta = 1e-5 }",
    "partition={ iid = { clients = 100 } }",
    "stages=[{ clip = { norm = 0.1 } }]",
    "local={ lr = 1.0 }",
)


@pytest.fixture
def plan_of(heart):
    """Plans the hospitals' experiment with some terms changed."""

    def plan(*overrides: str):
        experiment = parse(heart.read_text(encoding="utf-8"), overrides)
        return make_plan(experiment, load(experiment))

    return plan


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (SAMPLED,),
        (SAMPLED, "privacy.adjacency=replace_one"),
        (*CLIENTS, "sampling={ round_robin = { size = 30 } }"),
        (*CLIENTS, "sampling={ poisson = { rate = 0.2 } }"),
    ],
    ids=["exact", "rdp", "neither", "in turn", "cohorts"],
)
def test_progress_never_shows_less_than_was_charged(plan_of, overrides):
    """
    After every round it is at least the best price of what was charged, it never falls, and it ends at the claim.
    """
    plan = plan_of(*overrides, "rounds=5")
    spent = Spent(plan)
    shown = [spent.at(round_).spent for round_ in range(6)]

    assert shown[0] == 0.0
    assert shown == sorted(shown)
    assert shown[-1] == plan.worst.epsilon
    ((event, count),) = plan.worst.events
    for round_ in range(1, 6):
        charged = count * round_ // 5
        if charged:
            price = best_epsilon([(event, charged)], plan.delta, adjacency=Adjacency(plan.adjacency)).epsilon
            assert shown[round_] >= price * (1 - 1e-9)


def test_progress_agrees_with_the_ledger(heart):
    """
    Where no sampling is involved it is what the ledger says of the charges so far.
    """
    experiment = parse(heart.read_text(encoding="utf-8"))
    population = load(experiment)
    plan = make_plan(experiment, population)
    seen = []
    result = run(plan, population, "", heart.parent / "runs", progress=seen.append)

    with Ledger(result.folder / "ledger.db", read_only=True) as ledger:
        (name,) = ledger.runs()
        assert seen[-1].spent == pytest.approx(ledger.spent(name, plan.worst.name))
    assert [step.round for step in seen] == [1, 2, 3]


def test_a_thousand_sampled_rounds_spend_seconds_on_progress(plan_of):
    """
    Showing progress 1,000 times costs less than 5 CPU seconds.
    """
    plan = plan_of("local={ lr = 1.0, clip = 0.3, batch = 0.02 }", "rounds=1000")
    begun = time.process_time()
    spent = Spent(plan)
    shown = [spent.at(round_).spent for round_ in range(1, 1001)]

    assert time.process_time() - begun < 5
    assert shown[99] < shown[499] < shown[-1]


def test_a_run_without_privacy_shows_no_bound(plan_of):
    """
    Nothing is promised, so nothing is counted.
    """
    plan = plan_of("privacy={ non_private = true }", "local={ lr = 1.0 }")

    assert Spent(plan).at(1).limit == float("inf")
