"""Rounds of a small federation by the product's own stages, sum and door: sound, or with one planted fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.audit.subjects._crafting import crafted_gradient
from sordino.audit.subjects._rounds import Rounds
from sordino.audit.subjects.clients import Floats
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Group, RoundPlan, Unit, Update, Vector
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.pipeline import Pipeline
from sordino.federation.stages.clip import Clip
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.privacy import events
from sordino.privacy.doors import Mechanism
from sordino.privacy.kernel import BoundedSum, certify
from worlds.canaries import Less

WIDE = 20_000
"""Parameters of a model for random directions: 400 canaries with 50 each."""

HONEST = 10


class Loose(Pipeline):
    """Lets four times the clip through, and certifies the clip: nothing that arrives is held to the bound."""

    def client(self, update: Update, plan: RoundPlan) -> Update:
        sent = super().client(update, plan)
        return replace(sent, vector=4 * sent.vector)

    def total(self, updates: Iterable[Update], plan: RoundPlan, size: int, unit: Unit) -> BoundedSum:
        return certify(self.plain_total(updates, plan, size), unit=unit, l2=self.bound().l2)


def rounds(
    size: int = WIDE,
    noise_multiplier: float = 1.0,
    mechanism: Callable[[float], Mechanism] = Gaussian,
    pipeline: Pipeline | None = None,
    seed: int = 0,
) -> Rounds:
    """A federation whose clients agree a little, as real ones do."""
    rng = stream(seed, "clients of a test world")
    common = rng.normal(size=size)
    updates = common + rng.normal(size=(2 * HONEST, size))
    groups = (Group("layer.weight", 0, size // 2), Group("layer.bias", size // 2, size))
    return Rounds(
        promise=promised(noise_multiplier),
        noise_multiplier=noise_multiplier,
        pipeline=pipeline or Pipeline((Clip(1.0),)),
        mechanism=mechanism,
        groups=groups,
        honest=updates[:HONEST].astype(np.float32),
        held=updates[HONEST:].astype(np.float32),
        craft=_random_direction,
        public=True,
        seed=seed,
    )


def trained(
    noise_multiplier: float = 1.0,
    mechanism: Callable[[float], Mechanism] = Gaussian,
    pipeline: Pipeline | None = None,
    seed: int = 0,
) -> Rounds:
    """The same with gradients of a real model, so that a record can be crafted."""
    module, x, y = _model()
    layout, found = Layout.of(module), []
    for rows in torch.arange(len(y)).split(20):
        loss = cross_entropy(module(x[rows]), y[rows]).mean()
        found.append(np.concatenate([g.numpy().ravel() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    updates = -np.stack(found)
    whole = rounds(layout.size, noise_multiplier, mechanism, pipeline, seed)
    return replace(whole, groups=layout.groups, honest=updates[:HONEST], held=updates[HONEST:], craft=_crafted)


def promised(noise_multiplier: float) -> Promise:
    """What one round promises a client that takes part."""
    sequence = [(events.gaussian(noise_multiplier), 1)]
    return Promise.declared(sequence, 1e-5, unit=Unit.CLIENT, adjacency=Adjacency.ADD_REMOVE, by="a test world")


def sound(attack: str) -> Rounds:
    """Rounds that keep their promise."""
    return rounds() if attack == "cosine_canaries" else trained()


def leaky(attack: str) -> Rounds:
    """The noise is missing, all but a hundredth, while the promise stands."""
    less = partial(Less, share=0.01)
    return rounds(mechanism=less) if attack == "cosine_canaries" else trained(mechanism=less)


@cache
def _model() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A perceptron, and records of ten classes that it has not seen."""
    rng = stream(0, "records of a test world")
    centres = rng.normal(size=(10, 64))
    y = np.arange(20 * 2 * HONEST) % 10
    x = (centres[y] + rng.normal(size=(len(y), 64))).astype(np.float32)
    module = models.build("mlp", {"hidden": [32]}).build(InputSpec((64,), 10), 0)
    return module, torch.from_numpy(x), torch.from_numpy(y)


def _crafted(avoid: Floats, seed: int) -> Vector:
    rng = stream(seed, "candidates of a test world")
    x: NDArray[np.float32] = rng.normal(size=(8, 64)).astype(np.float32)
    return crafted_gradient(_model()[0], x, rng.integers(0, 10, 8), avoid)


def _random_direction(avoid: Floats, seed: int) -> Vector:
    direction = stream(seed, "direction").normal(size=avoid.shape[1])
    return (direction / np.linalg.norm(direction)).astype(np.float32)
