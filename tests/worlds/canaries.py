"""Trainings with canaries: the product's own private step, sound or with one planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sordino.audit.promise import Promise
from sordino.audit.subjects._rows import RowStep
from sordino.audit.subjects.canaries import Carried, Step, Terms
from sordino.core.types import Unit
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.local.clipping import Clip, Clipped, ClippingEngine, engines
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy.kernel import certify
from sordino.privacy.noise import NoiseSource
from sordino.privacy.permits import Permit

CLAIMED = Terms(rate=0.1, noise_multiplier=2.0, steps=200)
"""Epsilon 3.36 at delta 1e-5."""


@dataclass(frozen=True, eq=False)
class World:
    """A subject of canary attacks."""

    promise: Promise | None
    step: Step | None
    carried: Carried | None = None
    seed: int = 0


@dataclass(frozen=True)
class Less(Gaussian):
    """Draws a share of the noise that it says it draws."""

    share: float = 0.5

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        return source.normal(permit, scale * self.share, size)


@dataclass(frozen=True)
class Frozen(Gaussian):
    """Draws once, and the same again for every release."""

    drawn: list[NDArray[np.float64]] = field(default_factory=list)

    def draw(self, source: NoiseSource, permit: Permit, scale: float, size: int) -> NDArray[np.float64]:
        if not self.drawn:
            self.drawn.append(source.normal(permit, scale, size))
        permit._used = True
        return self.drawn[0]


@dataclass(frozen=True)
class Longer:
    """Clips at a multiple of the norm that it certifies."""

    times: float = 2.0
    inner: ClippingEngine = field(default_factory=lambda: engines.build("auto", {}))

    def clipped_sum(self, model: nn.Module, loss: Any, batch: Any, clip: Clip, groups: Any = None) -> Clipped:
        found = self.inner.clipped_sum(model, loss, batch, replace(clip, norm=clip.norm * self.times), groups)
        return Clipped(certify(hidden(found.total), unit=clip.unit, l2=clip.norm), 0)


@dataclass(frozen=True)
class BatchMean:
    """Clips the mean gradient of the batch, as one microbatch does, and calls it a sum over the batch."""

    inner: ClippingEngine = field(default_factory=lambda: engines.build("auto", {}))

    def clipped_sum(self, model: nn.Module, loss: Any, batch: Any, clip: Clip, groups: Any = None) -> Clipped:
        size = max(1, len(batch[0]))
        mean = hidden(self.inner.clipped_sum(model, loss, batch, replace(clip, norm=1e9), groups).total) / size
        mean *= min(1.0, clip.norm / max(float(np.linalg.norm(mean)), 1e-12))
        return Clipped(certify(mean * size, unit=clip.unit, l2=clip.norm), 0)


def hidden(total: Any) -> NDArray[np.float64]:
    """What a bounded sum holds. Broken twins look where nobody may."""
    vector: NDArray[np.float64] = total._BoundedSum__vector
    return vector


@dataclass(frozen=True, eq=False)
class DoubleRate(RowStep):
    """Records join twice as often as is charged."""

    def plan(self, terms: Terms, records: int) -> PrivateSteps:
        declared = super().plan(terms, records)
        return replace(declared, batch=min(1.0, 2 * terms.rate))


Maker = Callable[[Terms], RowStep]

SOUND: Maker = lambda terms: RowStep(terms, engines.build("auto", {}), Gaussian)  # noqa: E731 - a table of makers

FAULTS: dict[str, Maker] = {
    "noise halved": lambda terms: RowStep(terms, engines.build("auto", {}), Less),
    "batch mean clipped": lambda terms: RowStep(terms, BatchMean(), Gaussian),
    "noise frozen": lambda terms: RowStep(terms, engines.build("auto", {}), Frozen),
    "clipped at 2C": lambda terms: RowStep(terms, Longer(), Gaussian),
    "rate doubled": lambda terms: DoubleRate(terms, engines.build("auto", {}), Gaussian),
}
"""What one training with canaries must find."""


def promised(terms: Terms) -> Promise:
    """What the terms declare of themselves."""
    return terms.promise(1e-5, Unit.RECORD, "a test world")


def sound() -> World:
    """A training that keeps its promise."""
    return World(promised(CLAIMED), SOUND(CLAIMED))


def leaky() -> World:
    """The noise is missing, all but a thousandth, while the promise stands."""
    almost_none = RowStep(CLAIMED, engines.build("auto", {}), lambda z: Less(z, share=1e-3))
    return World(promised(CLAIMED), almost_none)
