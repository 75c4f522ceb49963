"""The audit drives the product: our engines and stages pass, and faults planted in the product's own code are found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from sordino.audit.sensor.engines import Training
from sordino.audit.sensor.full import audit
from sordino.audit.sensor.rounds import Rounds
from sordino.core.types import NoiseAt, Unit
from sordino.federation import pipeline
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages.adaptive_clip import AdaptiveClip
from sordino.federation.stages.clip import Clip
from sordino.local.clipping import _sums, bookkeeping, oracle
from sordino.local.trainers import _data, dpsgd
from sordino.privacy import kernel
from sordino.privacy import noise as privacy_noise
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise, SystemNoise

torch.set_num_threads(1)

SMALL = {"rows": 160, "steps": 40}
seeded = partial(SeededNoise, 11)


def failed(subject, **sizes) -> list[str]:
    """The checks that a subject does not pass."""
    return [check.name for check in audit(subject, seed=1, **(SMALL | sizes)).failed]


TRAININGS = {
    "bookkeeping": Training("bookkeeping"),
    "vmap": Training("vmap"),
    "opacus": Training("opacus"),
    "oracle": Training("oracle"),
    "per layer": Training(rule="per_layer"),
    "automatic": Training(rule="automatic"),
    "persons": Training(unit=Unit.USER),
    "full batch": Training(rate=1.0),
    "rare": Training(rate=0.03),
    "momentum": Training(momentum=0.9, clip=0.02),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_our_trainings_pass(name):
    """
    Every engine and rule releases what it declares; noise is seeded, so that this cannot fail by chance.
    """
    own = TRAININGS[name]
    subject = Training(own.engine, own.rule, own.rate, own.unit, own.clip, own.momentum, source=seeded)

    assert failed(subject) == []


ROUNDS = {
    "clip": {},
    "weight, then clip": {"stages": ({"weight": {"cap": 100}}, {"clip": {"norm": 0.5}})},
    "adaptive": {"stages": ({"adaptive_clip": {"norm": 0.1}},)},
    "per layer": {"stages": ({"clip_per_layer": {"norm": 2.0}},)},
    "half reply": {"replies": 0.5},
    "all": {"sampling": {"all": {}}},
    "at silo": {"noise_at": NoiseAt.SILO},
    "laplace": {"stages": ({"clip_l1": {"norm": 1.0}},), "mechanism": "laplace"},
    "skellam": {"sampling": {"all": {}}, "mechanism": "skellam"},
    "discrete gaussian": {"sampling": {"all": {}}, "mechanism": "discrete_gaussian"},
    "cut": {"sampling": {"truncated_poisson": {"rate": 0.2, "cap": 20}}},
    "fixed size": {"sampling": {"fixed_size": {"size": 2}}},
    "in turns": {"sampling": {"round_robin": {"size": 2}}},
    "as they arrive": {"sampling": {"buffered": {"size": 2, "per_client": 10**6, "concurrency": 4}}},
}


@pytest.mark.parametrize("name", ROUNDS)
def test_our_aggregations_pass(name):
    """
    Every stage, sampler and place of noise releases what it declares.
    """
    assert failed(Rounds(**ROUNDS[name], source=seeded)) == []


def test_the_systems_noise_passes():
    """
    The real source, which nobody can seed: a false alarm in a hundred million runs of this test.
    """
    report = audit(Training(source=SystemNoise), alpha=1e-8, **SMALL)

    assert report.failed == ()


def halved_keystream(patch):
    sound = privacy_noise._normal
    patch.setattr(privacy_noise, "_normal", lambda stream, std, size: sound(stream, std / 2, size))


def three_percent_less(patch):
    sound = Gaussian.scale
    patch.setattr(Gaussian, "scale", lambda self, l2, l1: 0.97 * sound(self, l2, l1))


def one_adapter_tensor_without(patch):
    sound = Gaussian.draw

    def draw(self, source, permit, scale, size):
        drawn = sound(self, source, permit, scale, size)
        drawn[: size // 2] = 0.0
        return drawn

    patch.setattr(Gaussian, "draw", draw)


def used_twice(patch):
    sound, kept = Gaussian.draw, {}

    def draw(self, source, permit, scale, size):
        drawn = sound(self, source, permit, scale, size)
        return kept.setdefault((permit.serial // 2, scale, size), drawn)

    patch.setattr(Gaussian, "draw", draw)


def same_stream_for_every_charge(patch):
    """Noise of a process started again, and of another silo, is that of the first."""
    patch.setattr(SeededNoise, "_stream", lambda self, permit: privacy_noise._Keystream(self._key(str(permit.serial))))


def coarse(patch):
    sound = Gaussian.draw

    def draw(self, source, permit, scale, size):
        return np.round(sound(self, source, permit, scale, size) / scale * 64) / 64 * scale

    patch.setattr(Gaussian, "draw", draw)


def door_skips_every_tenth(patch):
    sound = Gaussian.draw

    def draw(self, source, permit, scale, size):
        return sound(self, source, permit, scale, size) * (permit.serial % 10 != 0)

    patch.setattr(Gaussian, "draw", draw)


def _everywhere(patch, factors):
    """In the engines that clip rows, and in the one that clips shares."""
    patch.setattr(_sums, "factors", factors)
    patch.setattr(bookkeeping, "factors", factors)


def clip_off(patch):
    def factors(squares, layers, norm, rule):
        return torch.ones_like(squares), squares.sum(0).isfinite()

    _everywhere(patch, factors)


def clip_longer(patch):
    sound = _sums.factors
    _everywhere(patch, lambda squares, layers, norm, rule: sound(squares, layers, 1.1 * norm, rule))


def clip_of_the_batch(patch):
    sound = _sums.factors

    def factors(squares, layers, norm, rule):
        n = squares.shape[1]
        whole = squares.sum(1, keepdim=True) / n**2
        return sound(whole.expand(squares.shape), layers, norm, rule)

    _everywhere(patch, factors)


def not_finite_counts(patch):
    sound = _sums.factors

    def factors(squares, layers, norm, rule):
        shares, finite = sound(squares, layers, norm, rule)
        return torch.where(finite, shares, 1.0), torch.ones_like(finite)

    _everywhere(patch, factors)


def double_rate(patch):
    sound = _data.coins
    patch.setattr(_data, "coins", lambda source, rate, size: sound(source, min(1.0, 2 * rate), size))


def fixed_batches(patch):
    patch.setattr(_data, "coins", lambda source, rate, size: privacy_noise.choice(source, size, round(rate * size)))


def realised_divisor(patch):
    """The sum is scaled by who came, before the door."""
    sound = dpsgd.step_sum

    def step_sum(parts, model, loss, x, y, plan, source, engine):
        drawn = []
        for pool in parts:
            draw = pool.units.draw
            pool.units.draw = lambda rate, source, draw=draw: (rows := draw(rate, source), drawn.append(len(rows)))[0]
        total = sound(parts, model, loss, x, y, plan, source, engine)
        for pool in parts:
            del pool.units.draw
        return total.scaled(plan.expected_batch / max(1, sum(drawn)))

    patch.setattr(dpsgd, "step_sum", step_sum)


FAULTS_OF_TRAINING = {
    halved_keystream: "noise scale",
    three_percent_less: "noise scale",
    one_adapter_tensor_without: "every group noised",
    used_twice: "freshness",
    same_stream_for_every_charge: "noise after a restart",
    coarse: "noise lattice",
    door_skips_every_tenth: "every release noised",
    clip_off: "clip bound",
    clip_longer: "clip bound",
    clip_of_the_batch: "equal weights",
    not_finite_counts: "non-finite input",
    double_rate: "sampling rate",
    fixed_batches: "batch-size law",
    realised_divisor: "denominators",
}


@pytest.mark.parametrize("fault", FAULTS_OF_TRAINING, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_products_training_is_found(monkeypatch, fault):
    """
    The audit goes through the product: what is broken there fails here, by the check that is meant for it.
    """
    fault(monkeypatch)

    assert FAULTS_OF_TRAINING[fault] in failed(Training("bookkeeping", source=seeded))


def test_a_longer_clip_of_the_slow_engine_is_found(monkeypatch):
    """
    The oracle shares no code with the others, and is asked with fewer canaries: a tenth too long is still seen.
    """
    sound = oracle._shortened
    monkeypatch.setattr(oracle, "_shortened", lambda gradient, norm: sound(gradient, 1.1 * norm))

    assert "clip bound" in failed(Training("oracle", source=seeded), rows=400, steps=60)


def weight_after_the_clip(patch):
    """A client with many records counts more, whatever the clip did; nothing holds it to the bound afterwards."""
    sound = Clip.client

    def client(self, update, plan):
        factor = np.float32(min(update.records, 1600) / 400)
        return replace(update, vector=sound(self, update, plan).vector * factor)

    patch.setattr(pipeline, "_held", lambda updates, bound: updates)
    patch.setattr(Clip, "client", client)


def later_norm(patch):
    """Noise is drawn for the norm after the round, clipping used the norm before."""
    sound = Pipeline.total

    def total(self, updates, plan, size, unit):
        following = Pipeline(tuple(_grown(stage, 0.9) for stage in self.stages))
        made = sound(self, updates, plan, size, unit)
        patch_l2 = following.bound().l2 / made.l2
        return _rebound(made, patch_l2)

    patch.setattr(Pipeline, "total", total)


def _grown(stage, factor):
    return replace(stage, norm=stage.norm * factor) if isinstance(stage, AdaptiveClip) else stage


def _rebound(total, factor):
    """The same private sum under another bound: what no caller can do, so the test reaches inside."""
    vector = total._BoundedSum__vector
    return kernel.BoundedSum(kernel._PROOF, vector, total.unit, total.l2 * factor, total.l1, total.records)


def replies_as_divisor(patch):
    """The mean is over who replied."""
    sound = Pipeline.total

    def total(self, updates, plan, size, unit):
        arrived = list(updates)
        return sound(self, arrived, plan, size, unit).scaled(plan.expected / max(1, len(arrived)))

    patch.setattr(Pipeline, "total", total)


def client_clip_off(patch):
    patch.setattr(Clip, "client", lambda self, update, plan: update)
    patch.setattr(pipeline, "_held", lambda updates, bound: updates)


def unclipped_when_not_finite(patch):
    sound = pipeline.shortened

    def shortened(vector, bound, order=1):
        return sound(vector, bound) if np.isfinite(vector).all() else vector

    patch.setattr(pipeline, "shortened", shortened)
    patch.setattr(Clip, "client", lambda self, update, plan: update)


WEIGHTED = ({"weight": {"cap": 100}}, {"clip": {"norm": 0.5}})
FAULTS_OF_ROUNDS = {
    weight_after_the_clip: (Rounds(WEIGHTED, source=seeded), "equal weights"),
    later_norm: (Rounds(({"adaptive_clip": {"norm": 0.1}},), source=seeded), "noise scale"),
    replies_as_divisor: (Rounds(replies=0.5, source=seeded), "denominators"),
    client_clip_off: (Rounds(source=seeded), "clip bound"),
    one_adapter_tensor_without: (Rounds(source=seeded), "every group noised"),
    three_percent_less: (Rounds(source=seeded), "noise scale"),
}


@pytest.mark.parametrize("fault", FAULTS_OF_ROUNDS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_products_aggregation_is_found(monkeypatch, fault):
    """
    The same for clients: stages, sum and door.
    """
    subject, check = FAULTS_OF_ROUNDS[fault]
    fault(monkeypatch)

    assert check in failed(subject, rows=240)


def test_a_certificate_that_a_bad_update_breaks_is_found(monkeypatch):
    """
    A client's update that is not finite stops the round where nothing holds it to the bound.
    """
    unclipped_when_not_finite(monkeypatch)

    assert "non-finite input" in failed(Rounds(source=seeded))


def test_the_door_is_the_products(monkeypatch):
    """
    Without a door nothing is released at all: the drives do not go round it.
    """

    def silent(self, total):
        return np.zeros(total._BoundedSum__vector.size, np.float32)

    monkeypatch.setattr(Door, "__call__", silent)

    assert {"noise scale", "clip bound"} <= set(failed(Training(source=seeded)))
