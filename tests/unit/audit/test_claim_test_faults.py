"""The claim test on the product's own step: it lets sound trainings pass, and sees each of five faults.

10,000 canaries, 200 steps at rate 0.1, claimed epsilon 3.36; `benchmarks/claim_test.py` has more seeds and claims.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sordino.audit.attacks._trials import Trial, scores
from sordino.audit.stats.curve_test import best_gdp_bound, claim_test, curve_lower_bound
from sordino.audit.stats.one_run import best_bound
from sordino.core.seeds import stream
from sordino.core.types import Adjacency
from worlds.canaries import CLAIMED, FAULTS, SOUND, Maker, promised

CANARIES = 10_000
PROMISE = promised(CLAIMED)


def trained(make: Maker, seed: int) -> Trial:
    """One training with canaries."""
    included = stream(seed, "claim test").random(CANARIES) < 0.5
    released = make(CLAIMED).released(included[None], CLAIMED, 1000 * seed)[0]
    return Trial("step", "a step", included, scores(released, CLAIMED), PROMISE)


@cache
def sound() -> list[Trial]:
    return [trained(SOUND, seed) for seed in range(10)]


def rejected(trial: Trial) -> bool:
    return claim_test(trial.scores, trial.included, PROMISE, guesses=trial.guesses).rejected


def test_sound_trainings_pass() -> None:
    """Ten of them; were the level 5 %, more than two would be a chance of 1 %."""
    assert sum(rejected(trial) for trial in sound()) <= 2


def test_the_bound_of_sound_trainings_lies_below_the_claim_and_proves_that_the_attack_works() -> None:
    """Between 0.45 of the claim on average, and the claim in every one."""
    about = [{"included": t.included, "promise": PROMISE, "guesses": t.guesses} for t in sound()]
    bounds = np.array([curve_lower_bound(t.scores, **a).epsilon for t, a in zip(sound(), about, strict=True)])  # type: ignore[arg-type]
    any_mechanism = [best_bound(t.scores, t.included, delta=PROMISE.delta).epsilon for t in sound()]
    assert bounds.mean() >= 0.45 * PROMISE.epsilon
    assert bounds.max() <= PROMISE.epsilon
    assert max(any_mechanism) <= PROMISE.epsilon


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_seen(fault: str) -> None:
    """In each of three trainings."""
    trials = [trained(FAULTS[fault], seed) for seed in range(3)]
    assert all(rejected(trial) for trial in trials)
    if fault == "noise halved":
        bounds = [best_gdp_bound(t.scores, t.included, delta=1e-5, guesses=t.guesses).epsilon for t in trials]
        assert np.mean(bounds) >= 1.1 * PROMISE.epsilon


def test_frozen_noise_is_seen_by_the_changes_between_releases_alone() -> None:
    """Neither the likelihood ratio nor the sum of all releases tells it; that is why there are two scores."""
    trial = trained(FAULTS["noise frozen"], 0)

    def alone(name: str) -> bool:
        return claim_test({name: trial.scores[name]}, trial.included, PROMISE, guesses=trial.guesses).rejected

    assert alone("changes between releases")
    assert not alone("likelihood ratio")


def test_the_coins_must_be_the_real_ones() -> None:
    """Other coins than those of the training look like guessing: the test has no power to invent a leak."""
    trial = trained(FAULTS["noise halved"], 0)
    other = stream(99, "claim test").random(CANARIES) < 0.5
    assert not claim_test(trial.scores, other, PROMISE, guesses=trial.guesses).rejected


def test_the_promise_is_that_of_adding_or_removing() -> None:
    """A canary is in or out, so no other relation would be tested."""
    assert PROMISE.adjacency is Adjacency.ADD_REMOVE
    assert PROMISE.epsilon == pytest.approx(3.36, abs=0.01)


@pytest.mark.slow
def test_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 2 rejections in 40 sound trainings and at least 9 in 10 of each fault, at every claim."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    import claim_test as benchmark

    for noise in benchmark.NOISE:
        terms = benchmark.Terms(benchmark.RATE, noise, benchmark.STEPS)
        promise = promised(terms)
        assert sum(benchmark.tested(SOUND, terms, promise, seed)["rejected"] for seed in range(40)) <= 2
        for make in FAULTS.values():
            assert sum(benchmark.tested(make, terms, promise, seed)["rejected"] for seed in range(10)) >= 9
