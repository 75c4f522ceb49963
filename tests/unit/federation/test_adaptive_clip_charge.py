"""The bits of adaptive clipping go through the same door as the update: one charge, one noise, on every number."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.core.types import RoundPlan, Unit, Update
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages.adaptive_clip import AdaptiveClip
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

CLIENTS, SIZE, NOISE, TIMES = 20, 4, 1.5, 1200
PLAN = RoundPlan(0, 10, (), expected=float(CLIENTS))


def private_total(pipeline: Pipeline):
    """The clients' certified sum: half of them are clipped."""
    raw = [Update(np.full(SIZE, 0.2 if i % 2 else 3.0, np.float32)) for i in range(CLIENTS)]
    return pipeline.total((pipeline.client(update, PLAN) for update in raw), PLAN, SIZE, Unit.CLIENT)


def released(total) -> np.ndarray:
    """What leaves, under so many charges of a single Gaussian each. Shape (times, numbers)."""
    mechanism = Gaussian(NOISE)
    line = Line("clients", Unit.CLIENT, events.key(mechanism.event()), TIMES)
    door = Door(mechanism, mechanism.event(), ("clients",), mint_reservation("t", [line], test=True), SeededNoise(0))
    return np.stack([door(total) for _ in range(TIMES)])


def covered(values: np.ndarray, bound: float) -> bool:
    """Whether every number that leaves scatters as the charge says: 10 % is five standard errors."""
    return bool(np.all(np.abs(values.std(axis=0) / (NOISE * bound) - 1) < 0.1))


def test_the_charge_covers_the_bit():
    """One event per round pays for SIZE + 1 numbers: all have noise of the joint bound, the bit among them."""
    pipeline = Pipeline((AdaptiveClip(norm=1.0, bit=0.3),))
    total, bound = private_total(pipeline), pipeline.bound().l2

    assert total.l2 == bound == pytest.approx(np.sqrt(1 + 0.3**2), rel=1e-5)
    values = released(total)
    assert values.shape == (TIMES, pipeline.wire_size(SIZE)) == (TIMES, SIZE + 1)
    assert covered(values, bound)


def test_bits_in_the_clear_are_found():
    """Negative control: a twin that releases the update by the door and the count of bits beside it."""
    pipeline = Pipeline((AdaptiveClip(norm=1.0, bit=0.3),))
    total, bound = private_total(pipeline), pipeline.bound().l2
    values = released(total)
    values[:, -1] = total._BoundedSum__vector[-1]
    assert not covered(values, bound)


def test_the_next_norm_comes_from_the_released_bit_alone():
    """Post-processing: other clients with the same released numbers give the same norm; another bit gives another."""
    stage = AdaptiveClip(norm=1.0, bit=0.3)
    numbers = np.array([9.0, 9.0, 9.0, 9.0, 2.0], np.float32)
    other = numbers + np.array([0, 0, 0, 0, 1], np.float32)
    norms = [stage.settle(vector, PLAN)[1].norm for vector in (numbers, numbers * [0, 0, 0, 0, 1], other)]
    assert norms[0] == norms[1] != norms[2]
