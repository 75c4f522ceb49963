"""Crafted clients: what they show of sound rounds, and what of rounds with less noise or a longer clip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sordino.audit.attacks import attacks
from sordino.audit.findings import Finding, Grade, Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects._crafting import crafted_gradient
from sordino.audit.subjects._rounds import Rounds
from sordino.core.seeds import stream
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages.adaptive_clip import AdaptiveClip
from sordino.federation.stages.clip import Clip
from sordino.local.layout import trainable
from sordino.local.losses import cross_entropy
from worlds import clients as worlds
from worlds.canaries import Less


def attacked(name: str, subject: Rounds, **fields: object) -> Finding:
    found: Finding = attacks.build(name, fields).run(subject, lambda _: None)
    return found


@pytest.mark.parametrize(("noise_multiplier", "epsilon"), [(0.5, 10.0), (1.0, 4.38), (2.0, 1.99)])
def test_cosines_estimate_a_sound_rounds_epsilon(noise_multiplier: float, epsilon: float) -> None:
    """Near what is exact on the whole, and up to 2.1 times it where it is small: so nothing is gated on it."""
    estimates = []
    for seed in range(3):
        finding = attacked("cosine_canaries", worlds.rounds(noise_multiplier=noise_multiplier, seed=seed))
        estimates.append(finding.figures["estimate, one round"].value)
        assert 0.7 * epsilon < estimates[-1] < 2.2 * epsilon
        assert finding.verdict is Verdict.HOLDS
        assert finding.grade is Grade.LEAKAGE
        assert finding.lower_bound is None
        assert "no bound" in finding.says
    assert np.mean(estimates) < 1.8 * epsilon


def test_cosines_show_half_the_noise_and_still_refute_nothing() -> None:
    """About 9.7 where 4.38 is claimed."""
    finding = attacked("cosine_canaries", worlds.rounds(mechanism=Less))
    assert finding.figures["estimate, one round"].value > 8
    assert finding.verdict is Verdict.LEAKS


def test_cosines_of_the_sum_of_rounds_see_their_composition() -> None:
    """Four rounds at noise 2 are one at noise 1."""
    finding = attacked("cosine_canaries", worlds.rounds(noise_multiplier=2.0, seed=1))
    assert 3.3 < finding.figures["estimate, sum of 4 rounds"].value < 5.9


def test_too_small_a_model_is_said_to_be_one() -> None:
    """Directions of a small space are never orthogonal."""
    with pytest.raises(DoesNotFit, match="need 50 parameters each"):
        attacked("cosine_canaries", worlds.rounds(size=500))


def test_canife_lets_sound_rounds_pass() -> None:
    """Four audits; the bound says something, and never more than the claim."""
    found = [attacked("canife", worlds.trained(seed=seed), rounds=300) for seed in range(4)]
    assert all(finding.verdict is Verdict.HOLDS and not finding.above_claim for finding in found)
    assert np.mean([finding.lower_bound for finding in found]) > 1.5


@pytest.mark.parametrize(
    "broken", [worlds.trained(mechanism=Less), worlds.trained(pipeline=worlds.Loose((Clip(1.0),)))]
)
def test_canife_refutes_half_the_noise_and_four_times_the_clip(broken: Rounds) -> None:
    """While its twin above passes."""
    finding = attacked("canife", broken)
    assert finding.verdict is Verdict.REFUTED
    assert finding.causes
    assert finding.above_claim


def test_canife_drives_the_same_code_at_another_noise_where_its_own_could_not_be_refuted() -> None:
    """A claim of 22 or of 0.2 is out of reach of 1,200 rounds; half the noise is not."""
    for noise in (0.25, 20.0):
        finding = attacked("canife", worlds.trained(noise_multiplier=noise, mechanism=Less))
        assert finding.promise is not None
        assert finding.promise.epsilon == pytest.approx(2.0, abs=0.01)
        assert finding.verdict is Verdict.REFUTED
        assert "at noise multiplier" in finding.says


def test_a_crafted_record_is_heard_beside_others() -> None:
    """Its gradient overlaps less with the held-out updates than that of any candidate it began from."""
    world = worlds.trained()
    module = worlds._model()[0]
    rng = stream(0, "candidates of a test world")
    x, y = rng.normal(size=(8, 64)).astype(np.float32), rng.integers(0, 10, 8)
    held = world.held / np.linalg.norm(world.held, axis=1, keepdims=True)

    def overlap(gradient: np.ndarray) -> float:
        return float(np.square(held @ (gradient / np.linalg.norm(gradient))).sum())

    plain = []
    for i in range(8):
        loss = cross_entropy(module(torch.from_numpy(x[i : i + 1])), torch.from_numpy(y[i : i + 1])).sum()
        parts = torch.autograd.grad(loss, list(trainable(module).values()))
        plain.append(overlap(torch.cat([part.flatten() for part in parts]).numpy()))
    crafted = crafted_gradient(module, x, y, world.held)
    assert overlap(crafted) < 0.2 * min(plain)
    assert np.linalg.norm(crafted) == pytest.approx(1.0, abs=1e-5)


def test_all_stages_of_a_run_are_passed_and_what_they_add_is_settled() -> None:
    """Weights, and a clip that adds a coordinate: the released change has the model's length, its noise the bound's."""
    pipeline = Pipeline.from_tables([{"weight": {"cap": 5}}, {"adaptive_clip": AdaptiveClip.example}])
    world = worlds.rounds(size=300, pipeline=pipeline)
    nobody = np.zeros((0, 300), np.float32)
    released = np.stack(list(world.released([nobody] * 200, 1.0, seed=3)))
    assert released.shape == (200, 300)
    bound = pipeline.bound().l2
    assert released.std(axis=0).mean() == pytest.approx(bound, rel=0.05)


@pytest.mark.parametrize("name", ["canife", "cosine_canaries"])
def test_rounds_of_private_clients_stay_local(name: str) -> None:
    """How far a canary is from real updates, and rounds with them under a test's noise, tell of real records."""
    fields: dict[str, object] = {"rounds": 40} if name == "canife" else {"rounds": 1}
    subject = worlds.sound(name)
    assert not attacked(name, subject, **fields).local
    assert attacked(name, replace(subject, public=False), **fields).local
