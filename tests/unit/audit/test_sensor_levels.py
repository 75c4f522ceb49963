"""Laplace's tails are heavier than the normal law's: no sound step is stopped for them, and broken ones still are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from sordino.audit.sensor import clipping, full
from sordino.audit.sensor.clipping import JOINED, Quiet
from sordino.audit.sensor.full import QUIET, audit, quiet_multiplier
from sordino.audit.sensor.rounds import Rounds
from sordino.audit.sensor.start import start
from sordino.audit.sensor.world import Declared, World
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, NoiseAt
from sordino.federation import pipeline
from sordino.federation.pipeline import Pipeline
from sordino.privacy.noise import SeededNoise

DECLARED = {
    "normal": Declared(),
    "Laplace": Declared(noise="laplace"),
    "a record replaced": Declared(adjacency=Adjacency.REPLACE_ONE),
    "Laplace, a record replaced": Declared(noise="laplace", adjacency=Adjacency.REPLACE_ONE),
    "shares": Declared(shares=(1.0, 0.25)),
}
SUBJECTS = {
    "coordinator": Rounds(
        stages=({"clip_l1": {"norm": 1.0}},), sampling={"round_robin": {"size": 3}}, mechanism="laplace"
    ),
    "silo": Rounds(
        stages=({"clip_l1": {"norm": 1.0}},), sampling={"all": {}}, mechanism="laplace", noise_at=NoiseAt.SILO
    ),
}


COMPANY = Rounds(stages=({"clip_l1": {"norm": 1.0}},), mechanism="laplace")
"""Clients by coins of their own: several join a round, and each of them joins several."""


def passes(std: float, groups: int, *, laplace: bool) -> float:
    """At most the chance that a number of noise alone counts as somebody who joined."""
    if not laplace:
        return float(stats.norm.sf(JOINED / std))
    return float(stats.gamma.sf(JOINED * groups**0.5 / (std / 2**0.5), groups))


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("name", DECLARED)
def test_noise_alone_never_counts_as_somebody_who_joined(name, groups):
    declared = DECLARED[name]
    std = declared.std(quiet_multiplier(declared)) / min(declared.shares)
    assert passes(std, groups, laplace=declared.noise == "laplace") < 1e-12


def test_at_one_multiplier_for_all_laws_it_would():
    assert passes(QUIET * 2**0.5, 3, laplace=True) > 1e-6


def quiet(groups: int, *, heavy: bool) -> Quiet:
    nobody = np.zeros((1, groups, 1))
    return Quiet(nobody, np.ones(1), np.ones((1, 1), bool), np.ones(1, bool), heavy)


@pytest.mark.parametrize(("free", "draws", "groups"), [(1, 1, 1), (4, 1, 1), (12, 1, 3), (12, 5, 2), (200, 1, 2)])
def test_sums_of_squares_of_laplace_noise_keep_their_level(free, draws, groups):
    """
    Of 100,000 sums, no more have a small p-value than may; with p-values for normal noise far more do, if few draws
    stand behind each square.
    """
    rng, totals = stream(3, "sums", free, draws), []
    for _ in range(10):
        noise = rng.laplace(scale=2**-0.5, size=(10_000, free, draws * groups)).sum(2) / (draws * groups) ** 0.5
        totals.append(np.square(noise).sum(1))
    largest = np.sort(np.concatenate(totals))[::-1]
    for level in (1e-2, 1e-3, 1e-4):
        few = stats.binom.ppf(0.9999, largest.size, level)
        # p falls as sums grow, so the first one that is not rare settles all others.
        assert quiet(groups, heavy=True).too_much(float(largest[int(few)]), free, draws) > level
        if draws * groups < 3:
            assert quiet(groups, heavy=False).too_much(float(largest[int(few)]), free, draws) < level


def test_unequal_weights_are_far_beyond_any_level():
    """
    Twelve canaries, of which one counts a tenth more than the others, at the noise that they are looked at under.
    """
    declared = DECLARED["Laplace"]
    std = declared.std(quiet_multiplier(declared))
    assert quiet(3, heavy=True).too_much((0.1 / std) ** 2 + 11, 11, 1) < 1e-9


@pytest.fixture(params=[False, True], ids=["sound", "twin"])
def twin(request, monkeypatch):
    """The twin looks at canaries under as much Laplace noise as normal noise, and takes its tails for normal ones."""
    if request.param:
        monkeypatch.setattr(full, "HEAVY", 2**0.5)
        monkeypatch.setattr(clipping, "_laplace_tail", lambda *_: 0.0)
    return request.param


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_sound_start_with_laplace_noise_is_not_stopped(name, twin):
    """
    In 200 sound worlds no check comes to the level at which it stops a run.
    """
    subjects = [replace(SUBJECTS[name], source=partial(SeededNoise, seed)) for seed in range(200)]
    levels = [check.p for seed, subject in enumerate(subjects) for check in start(subject, 2.0, seed=seed).checks]
    assert (min(levels) < 1e-6) is twin


def test_a_sound_audit_with_laplace_noise_does_not_fail(twin):
    subjects = [replace(SUBJECTS["silo"], source=partial(SeededNoise, seed)) for seed in range(20)]
    assert any(audit(subject, seed=seed).failed for seed, subject in enumerate(subjects)) is twin


def counts_unevenly(update, plan):
    """Every other client counts a quarter less, whatever the clip did."""
    return replace(update, vector=update.vector * np.float32(0.75 if np.argmax(np.abs(update.vector)) % 2 else 1.0))


def half_replied(update, plan):
    """The sum of every fourth round is over who replied instead of who was expected."""
    return replace(update, vector=update.vector * np.float32(0.75 if plan.round % 4 == 0 else 1.0))


def too_long(update, plan):
    """A client that counts a tenth more than the bound."""
    return replace(update, vector=update.vector * np.float32(1.1))


BROKEN = {counts_unevenly: "equal weights", half_replied: "denominators", too_long: "clip bound"}


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("full_form", [False, True], ids=["start", "audit"])
def test_broken_steps_with_laplace_noise_are_still_stopped(fault, full_form, monkeypatch):
    """
    Planted behind the product's own clip. Its bound is of absolute values: in another norm a clip too long would pass.
    """
    sound = Pipeline.client
    monkeypatch.setattr(pipeline, "_held", lambda updates, bound: updates)
    monkeypatch.setattr(Pipeline, "client", lambda self, update, plan: fault(sound(self, update, plan), plan))
    for seed in range(5):
        subject = replace(COMPANY, source=partial(SeededNoise, seed))
        report = audit(subject, seed=seed) if full_form else start(subject, 2.0, seed=seed)
        assert BROKEN[fault] in [check.name for check in report.failed]


@pytest.mark.parametrize(("times", "seen"), [(1.0, False), (1.3, True)])
def test_under_noise_a_contribution_is_held_to_the_sum_of_absolute_values(times, seen):
    world, declared = World.made(64, 3, 0, canaries=8), Declared("all", (1.0,), noise="laplace")
    iterates = np.zeros((16, 3, 64))
    iterates[:, :, world.canary_rows] = times / 3
    assert (clipping.under_noise(iterates, world, declared, 0.1).p < 1e-6) is seen
