"""Adaptive clipping: one Gaussian pays for update and bit, and the norm finds the quantile from both sides."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.types import RoundPlan, Update
from sordino.federation.bounds import Bound, length
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages.adaptive_clip import AdaptiveClip

CLIENTS, SIZE = 100, 4
PLAN = RoundPlan(0, 100, (), expected=float(CLIENTS))


@given(z=st.floats(0.1, 10), bit=st.floats(1e-3, 10), norm=st.floats(1e-3, 1e3))
def test_one_joint_gaussian_is_the_papers_split(z, bit, norm):
    """Noise z times the folded bound on every coordinate is z_Δ on the update, σ_b on the bits, as in the paper.

    z_Δ = (z⁻² − (2σ_b)⁻²)^(−½), Andrew et al. (2021), theorem 1, with the bit counted as ±½.
    """
    std = z * AdaptiveClip(norm=norm, bit=bit).bound(Bound()).l2
    update_multiplier = std / norm
    bits_std = std / (2 * norm * bit)  # one bit of ±½ is sent as ±norm·bit
    assert update_multiplier == pytest.approx((z**-2 - (2 * bits_std) ** -2) ** -0.5, rel=1e-5)


def test_the_bit_says_whether_the_update_was_left_alone():
    """Plus inside the norm, minus outside, zero for an update that is not finite."""
    stage = AdaptiveClip(norm=1.0, bit=0.5)
    vectors = [np.array([0.3, 0.4]), np.array([3.0, 4.0]), np.array([np.nan, 0.0])]
    sent = [stage.client(Update(vector.astype(np.float32)), PLAN).vector for vector in vectors]
    np.testing.assert_allclose([vector[-1] for vector in sent], [0.5, -0.5, 0.0], rtol=1e-6)
    assert all(length(vector) <= stage.bound(Bound()).l2 for vector in sent)


def test_a_sent_bit_stays_inside_the_bound_for_every_norm():
    """Rounding the bit to float32 never carries it over norm·bit."""
    for norm in np.geomspace(1e-6, 1e6, 500):
        stage = AdaptiveClip(norm=float(norm))
        assert 0 < stage.coordinate <= norm * stage.bit


def run(start: float, noise: float, rounds: int, stage_type=AdaptiveClip, quantile: float = 0.5) -> float:
    """The norm after some rounds of a fixed log-normal population, with seeded noise for the test's sake."""
    rng = np.random.default_rng(5)
    norms = np.exp(rng.normal(0.0, 0.5, CLIENTS))
    pipeline = Pipeline((stage_type(norm=start, quantile=quantile),))
    history = []
    for _ in range(rounds):
        sent = [pipeline.client(Update(np.eye(1, SIZE, dtype=np.float32)[0] * n), PLAN) for n in norms]
        total = pipeline.plain_total(sent, PLAN, SIZE)
        std = noise * pipeline.bound().l2
        released, pipeline = pipeline.settle((total + rng.normal(0, std, total.size)).astype(np.float32), PLAN)
        assert released.shape == (SIZE,)
        history.append(pipeline.stages[0].norm)
    return float(np.exp(np.log(history[-10:]).mean())) / float(np.quantile(norms, quantile))


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("start", [0.05, 20.0])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_norm_finds_the_quantile_from_both_sides(start, noise, quantile):
    """From 20 times too small and 20 times too large, with and without noise, to within 15 %."""
    assert run(start, noise, 120, quantile=quantile) == pytest.approx(1.0, abs=0.15)


class InvertedBit(AdaptiveClip):
    """Flower 1.42's error: the bit says "was clipped" where the update rule wants "was not"."""

    def client(self, update, plan):
        sent = super().client(update, plan)
        return replace(sent, vector=np.append(sent.vector[:-1], -sent.vector[-1]))


@pytest.mark.parametrize("start", [0.5, 2.0])
def test_an_inverted_bit_runs_away(start):
    """Negative control: the convergence test does fail when the bit is inverted."""
    assert abs(math.log(run(start, 0.0, 120, InvertedBit))) > math.log(3)


def test_the_divisor_is_the_public_cohort():
    """Half the expected cohort, all unclipped: the share is ¾, not 1, because the realised size is never used."""
    stage = AdaptiveClip(norm=1.0, quantile=0.5, lr=1.0)
    total = np.append(np.zeros(SIZE), CLIENTS / 2 * stage.coordinate).astype(np.float32)
    _, following = stage.settle(total, PLAN)
    assert following.norm == pytest.approx(math.exp(-0.25), rel=1e-5)


def test_noise_cannot_throw_the_norm_away():
    """However large the noise on the bit, one round moves the norm by at most a factor exp(lr)."""
    stage = AdaptiveClip(norm=1.0, lr=0.2)
    for noise in (-1e30, 1e30):
        _, following = stage.settle(np.append(np.zeros(SIZE), noise).astype(np.float32), PLAN)
        assert abs(math.log(following.norm)) <= 0.2


def test_two_adaptive_clips_settle_in_reverse():
    """Each strips its own coordinate, the last one first."""
    pipeline = Pipeline((AdaptiveClip(norm=1.0), AdaptiveClip(norm=9.0)))
    sent = pipeline.client(Update(np.zeros(SIZE, np.float32)), PLAN).vector
    assert sent.shape == (SIZE + 2,)
    released, following = pipeline.settle(sent, replace(PLAN, expected=1.0))
    assert released.shape == (SIZE,)
    assert [stage.norm < before.norm for stage, before in zip(following.stages, pipeline.stages, strict=True)] == [
        True,
        True,
    ]
