"""A private step on canary rows: the model is one parameter per canary, and each canary's gradient lies on its own.

records of a canary ──engine──► clipped sum ──door──► released sum ──► row i tells of canary i alone
                    └ coins, batches, clip, certificate, permit, noise: all of it the training's own ┘
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sordino.audit.subjects._books import ACCOUNT, reserved
from sordino.audit.subjects.canaries import Bools, Floats, Terms
from sordino.core.types import Unit, Vector
from sordino.local.clipping import ClippingEngine, Rule
from sordino.local.cohort.buckets import Member
from sordino.local.cohort.private import Silo, train_private_many
from sordino.local.cohort.twin import Twin
from sordino.local.layout import Layout
from sordino.local.objectives import objectives
from sordino.local.trainers._data import Data
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.gradient_sum import gradient_sum
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy.doors import Door, Mechanism, Release
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import NoiseSource, SeededNoise

GAIN = 100.0
"""Length of a canary's gradient over the clip norm: so long that any sound clip shortens it."""

FEWEST = 8
"""Rows of a model, at least: engines rehearse it on a few examples of their own."""

SPARSE, DENSE = 10_000, 500
"""Canaries of a training whose engine keeps gradients factored, and of one that writes every record's out."""


@dataclass(frozen=True, eq=False)
class RowStep:
    """The private step of one silo.

    Args:
        terms: Those of the run.
        engine: What clips.
        mechanism: The noise law at a multiplier over the clip norm of one gradient.
        clip: L2 norm of one gradient.
        rule: How gradients are brought within it.
        unit: `record` or `user`.
        at: Which of the product's trainers is driven: a silo alone, silos side by side, or the noised sum of silos.
        most: Canaries that one training can take in a second or so.
    """

    terms: Terms
    engine: ClippingEngine
    mechanism: Callable[[float], Mechanism]
    clip: float = 1.0
    rule: Rule = "flat"
    unit: Unit = Unit.RECORD
    at: Literal["silo", "side by side", "sum"] = "silo"
    most: int = SPARSE
    _done: dict[tuple[Terms, int, bytes], Floats] = field(default_factory=dict, repr=False)

    def released(self, included: Bools, terms: Terms, seed: int) -> Floats:
        key = terms, seed, included.tobytes()
        if key not in self._done:  # several attacks read one training
            self._done[key] = self._released(included, terms, seed)
        return self._done[key]

    def _released(self, included: Bools, terms: Terms, seed: int) -> Floats:
        trainings, canaries = included.shape
        model = rows_model(max(FEWEST, canaries))
        found = np.empty((trainings, terms.steps, canaries))
        reservation = reserved(terms.event, trainings * terms.steps, self.unit)
        for number, coins in enumerate(included):
            # A mechanism and a source of its own: trainings have nothing in common but the code.
            source = SeededNoise(seed + number)
            door = Door(self.mechanism(terms.noise_multiplier), terms.event, (ACCOUNT,), reservation, source)
            watched = Watched(door)
            self.train(model, self.records(coins, terms), terms, watched, source)
            found[number] = np.stack(watched.seen)[:, :canaries]
        return found / self.clip

    def records(self, included: Bools, terms: Terms) -> Data:
        """The canaries that are in, each with its records: the row they push, and how hard."""
        who = np.repeat(np.flatnonzero(included), terms.records)
        return who, np.full(len(who), GAIN * self.clip, dtype=np.float32), who if self.unit is Unit.USER else None

    def train(self, model: nn.Module, data: Data, terms: Terms, release: Release, source: NoiseSource) -> None:
        """One training by the product's own trainer."""
        layout, plan = Layout.of(model), self.plan(terms, len(data[0]))
        start, plain = np.zeros(layout.size, dtype=np.float32), objectives.build("plain", {})
        if self.at == "side by side":
            silo = Silo(Member(len(data[0]), lambda: data), plan, release)
            for _ in train_private_many(Twin(model, pushed), [silo], start, plain, source):
                pass
            return
        if self.at == "silo":
            train_private(
                model,
                layout,
                data,
                start,
                plan,
                release=release,
                source=source,
                objective=plain,
                loss=pushed,
                engine=self.engine,
            )
            return
        for _ in range(plan.steps):
            total = gradient_sum(
                model,
                layout,
                data,
                start,
                clip=plan.clip,
                unit=plan.unit,
                records_per_person=plan.records_per_person,
                rule=plan.clipping,
                batch=plan.batch,
                source=source,
                loss=pushed,
                engine=self.engine,
            )
            release(total)

    def plan(self, terms: Terms, records: int) -> PrivateSteps:
        """What the trainer is told."""
        return PrivateSteps(
            steps=terms.steps,
            lr=1e-6,
            clip=self.clip,
            batch="full" if terms.rate == 1 else terms.rate,
            expected_batch=max(1.0, records * terms.rate),
            clipping=self.rule,
            unit=self.unit,
            records_per_person=terms.records if self.unit is Unit.USER and terms.records > 1 else None,
        )


@dataclass(frozen=True, eq=False)
class Watched:
    """A release whose results an observer keeps, as everybody may."""

    release: Release
    seen: list[Vector] = field(default_factory=list)

    def __call__(self, total: BoundedSum) -> Vector:
        self.seen.append(self.release(total))
        return self.seen[-1]


def rows_model(canaries: int) -> nn.Module:
    """One parameter per canary."""
    rows = nn.Embedding(canaries, 1, _weight=torch.zeros(canaries, 1))
    return nn.Sequential(OrderedDict(rows=rows))


def pushed(outputs: Tensor, target: Tensor) -> Tensor:
    """A loss whose gradient is as long as the target says, wherever the parameters are. Shape (batch,)."""
    return outputs.flatten(1).sum(1) * target
