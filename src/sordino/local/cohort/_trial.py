"""Made-up clients of a public shape, to try a way of training on: no data is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import nn

from sordino.core.seeds import stream
from sordino.core.types import Vector
from sordino.local.clipping import Clip, ClippingEngine
from sordino.local.clipping._shares import Share
from sordino.local.clipping.stacked import clipped_sums, totals
from sordino.local.cohort.buckets import ENTRIES, ROWS, Member, Padded, padded
from sordino.local.cohort.plain import Stack, split, train_plain_many
from sordino.local.cohort.twin import Twin
from sordino.local.layout import Layout
from sordino.local.losses import Loss
from sordino.local.models import InputSpec
from sordino.local.objectives import objectives
from sordino.local.probe import synthetic
from sordino.local.trainers._data import Data, tensor
from sordino.local.trainers.plans import PlainSteps
from sordino.local.trainers.sgd import train_plain

CLIENTS = 16
"""How many clients are tried at once, where they find room."""

LARGEST = 5_000_000
"""Parameters, frozen ones included, above which a model gains nothing from company."""

PLAIN = objectives.build("plain", {})


@dataclass(frozen=True)
class Trial:
    """A cohort of made-up clients; one of them holds fewer records, so that padding is tried too.

    Args:
        model: In the mode it is to train in. Its parameters are overwritten; see `kept`.
        loss: One loss per example.
        spec: Shape of a record.
        examples: Records per step, about.
    """

    model: nn.Module
    loss: Loss
    spec: InputSpec
    examples: int

    @cached_property
    def clients(self) -> int:
        """How many fit; fewer than two are no company."""
        if sum(p.numel() for p in self.model.parameters()) > LARGEST or self.spec.folder is not None:
            return 0
        return min(CLIENTS, ENTRIES // self.layout.size, ROWS // max(1, self.examples))

    @cached_property
    def layout(self) -> Layout:
        """The model's parameters."""
        return Layout.of(self.model)

    @cached_property
    def start(self) -> Vector:
        """Beside the model's own start, where an adapter's zeros would hide what is compared."""
        noise = stream(0, "cohort trial").normal(scale=0.02, size=self.layout.size)
        return (self.layout.flatten(self.model) + noise).astype(np.float32)

    @cached_property
    def datas(self) -> list[Data]:
        """Every client's records."""
        sizes = [self.examples] * (self.clients - 1) + [self.examples // 2 + 1]
        made = [synthetic(self.spec, size, seed) for seed, size in enumerate(sizes)]
        return [(x.numpy(), y.numpy(), None) for x, y in made]

    def together(self, stack: Stack) -> list[Vector]:
        """Everybody's change after a step, all at once."""
        members = [Member(len(data[1]), partial(_same, data)) for data in self.datas]
        changes = dict(train_plain_many(stack, members, self.start, self._plan, self._rngs.__getitem__, PLAIN))
        return [changes[i] for i in range(self.clients)]

    def one_by_one(self) -> list[Vector]:
        """The same, one after another."""
        parts = self.model, self.layout
        return [
            train_plain(*parts, data, self.start, self._plan, rng, PLAIN, loss=self.loss)
            for data, rng in zip(self.datas, self._rngs, strict=True)
        ]

    def clipped_together(self, twin: Twin) -> None:
        """Everybody's clipped sum, all at once."""
        batch, shares = self._shares(twin)
        list(clipped_sums(shares, self.layout.groups, batch.present, norm=1.0))

    def clipped_one_by_one(self, engine: ClippingEngine) -> None:
        """The same, one after another."""
        for data in self.datas:
            self.layout.restore(self.model, self.start)
            batch = tensor(self.model, data[0]), tensor(self.model, data[1])
            engine.clipped_sum(self.model, self.loss, batch, Clip(1.0))

    def shares_add_up(self, twin: Twin) -> bool:
        """Whether unclipped shares add up to everybody's change, times records."""
        batch, shares = self._shares(twin)
        ones = batch.present.double()
        sums = torch.empty(self.clients, self.layout.size, dtype=torch.float64, device=twin.device)
        for each, group in zip(shares, self.layout.groups, strict=True):
            totals(each, ones, torch.ones_like(batch.present), sums[:, group.start : group.stop])
        means = sums.cpu().numpy() / batch.present.sum(0).cpu().numpy()[:, None]
        return all(near(-mean, change) for mean, change in zip(means, self.one_by_one(), strict=True))

    def _shares(self, twin: Twin) -> tuple[Padded, list[Share]]:
        rows = [np.arange(len(data[1])) for data in self.datas]
        batch = padded(self.datas, rows, twin.device)
        theta = torch.from_numpy(np.tile(self.start, (self.clients, 1))).to(twin.device)
        return batch, twin.shares(split(self.layout, theta), batch)

    @property
    def _plan(self) -> PlainSteps:
        return PlainSteps(lr=1.0, steps=1)

    @property
    def _rngs(self) -> list[np.random.Generator]:
        return [stream(0, "cohort trial", i) for i in range(self.clients)]


def near(a: Vector, b: Vector) -> bool:
    """Whether two changes are the same up to rounding."""
    return bool(np.linalg.norm(a - b) <= 1e-3 * np.linalg.norm(b) + 1e-6)


def _same(data: Data) -> Data:
    return data


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """The model's parameters are afterwards what they were."""
    layout = Layout.of(model)
    before = layout.flatten(model)
    try:
        yield
    finally:
        layout.restore(model, before)
