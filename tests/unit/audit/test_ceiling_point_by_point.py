"""Our own training at noise 1 against the best attacker there is: rates lie on the promise's ceiling, none above it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from sordino.audit.promise import Promise
from sordino.audit.sensor.engines import Training
from sordino.audit.sensor.world import World
from sordino.audit.stats.ceiling import ceiling
from sordino.audit.stats.roc import certified_points
from sordino.privacy import events
from sordino.privacy.noise import SeededNoise

torch.set_num_threads(1)

FPRS = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
CONFIDENCE = 0.999
PLANS = {"one release of everybody": (1.0, 1), "twenty sampled steps": (0.1, 20)}
WORLDS = 20


def allowed(rate: float, steps: int) -> np.ndarray:
    """The ceiling of the plan with noise 1."""
    event = events.gaussian(1.0)
    sequence = [(event if rate == 1 else events.poisson(rate, event), steps)]
    return ceiling(Promise.declared(sequence, 1e-5, by="the plan"), FPRS)


def attacked(noise: float, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios of records that were in, and of rows that were nobody's.

    The attacker sees every step and knows everything but who was in: no attack can do better. Noise is drawn for each
    row by itself, so all scores are independent.
    """
    inside, outside = [], []
    for seed in range(WORLDS):
        world = World.made(1000, 1, seed, 500)
        training = Training("bookkeeping", rate=rate, source=partial(SeededNoise, seed))
        seen = training.iterates(world, steps, noise, seed)[:, 0]
        ratios = np.log1p(rate * np.expm1((seen - 0.5) / noise**2)).sum(0)
        inside.append(ratios[world.canary_rows][world.loud])
        outside.append(ratios[world.nobody])
    return np.concatenate(inside), np.concatenate(outside)


@pytest.mark.parametrize("plan", PLANS)
def test_no_point_lies_above_the_ceiling_and_all_reach_it(plan):
    """
    The ceiling lies between the ends of every measured rate, all of them together at 99.9 %: it holds, and is tight.
    """
    most = allowed(*PLANS[plan])
    points = certified_points(*attacked(1.0, *PLANS[plan]), FPRS, confidence=CONFIDENCE)

    assert [point.certifiable for point in points[1:]] == [True] * (len(FPRS) - 1)
    assert [point.fpr for point, at_most in zip(points, most, strict=True) if point.low > at_most] == []
    assert [point.fpr for point, at_most in zip(points, most, strict=True) if point.high < 0.98 * at_most] == []


@pytest.mark.parametrize("plan", PLANS)
def test_a_fifth_less_noise_lies_above_it(plan):
    """
    The broken twin: from 3 % false alarms on, every certified rate is above what noise 1 allows.
    """
    most = allowed(*PLANS[plan])
    points = certified_points(*attacked(0.8, *PLANS[plan]), FPRS, confidence=CONFIDENCE)

    above = [point.fpr for point, at_most in zip(points, most, strict=True) if point.low > at_most]
    assert set(above) >= {0.03, 0.1, 0.3}
