"""What a silo does in a round, as data. Every field is public, and none of it needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Unit

UPLINK_BYTES = 64
"""What a silo sends in one zeroth-order step, at most."""


@dataclass(frozen=True)
class GroupSteps:
    """How the records of one public group take part in a step.

    Args:
        name: The group; None for all records.
        batch: Rate at which its records join, or `"full"`.
        share: Its clip over the plan's, in (0, 1].
    """

    name: str | None
    batch: float | Literal["full"]
    share: float = 1.0

    def __post_init__(self) -> None:
        checks.rate("group", share=self.share)
        if self.batch != "full":
            checks.rate("group", batch=self.batch)


@dataclass(frozen=True)
class PrivateSteps:
    """DP-SGD steps; each is one release.

    Args:
        steps: Number of steps, hence of releases.
        lr: Step size.
        clip: L2 norm of one unit's gradient.
        batch: Rate at which a unit joins a step's batch, or `"full"`.
        expected_batch: Public divisor: the expected number of units in a batch, never the realised one.
        engine: Name of the clipping engine.
        clipping: How each gradient is brought within the clip.
        unit: `record` or `user`.
        momentum: Of released gradients.
        records_per_person: For the unit `user`: records join one by one and are clipped one by one, and at most so
            many of a person's count. Left out, a person joins as a whole and their mean gradient is clipped.
        groups: Public groups with rates and clips of their own, for the unit `record`; then `batch` serves nobody.
    """

    steps: int
    lr: float
    clip: float
    batch: float | Literal["full"]
    expected_batch: float
    engine: str = "auto"
    clipping: Literal["flat", "per_layer", "automatic"] = "flat"
    unit: Unit = Unit.RECORD
    momentum: float = 0.0
    records_per_person: int | None = None
    groups: tuple[GroupSteps, ...] = ()

    def __post_init__(self) -> None:
        checks.count("steps", steps=self.steps)
        checks.positive("steps", lr=self.lr, clip=self.clip, expected_batch=self.expected_batch)
        if self.records_per_person is not None:
            checks.count("steps", records_per_person=self.records_per_person)
        if self.groups and self.unit is not Unit.RECORD:
            raise ConfigError.about("steps", "tells groups of records apart", "drop the groups", unit=self.unit.value)
        if self.batch != "full":
            checks.rate("steps", batch=self.batch)
        if self.unit is Unit.CLIENT:
            raise ConfigError.about("steps", "is not protected by private steps", "clip whole updates", unit="client")
        _momentum(self.momentum)


@dataclass(frozen=True)
class ZerothSteps:
    """Zeroth-order steps; each is one release of `directions` numbers, whatever the size of the model.

    Args:
        steps: Number of steps, hence of releases.
        lr: Step size.
        clip: Norm of one unit's slopes along the step's directions.
        batch: Rate at which a unit joins a step's batch, or `"full"`.
        expected_batch: Public divisor: the expected number of units in a batch, never the realised one.
        directions: Random directions per step, K.
        radius: How far along a direction the losses are taken, φ.
        norm: Which norm is clipped: `l2` for Gaussian noise, `l1` for Laplace noise.
        unit: `record` or `user`.
        momentum: Of released slopes.
        micro_batch: Most examples of a forward pass; left out, chosen by their size.
    """

    steps: int
    lr: float
    clip: float
    batch: float | Literal["full"]
    expected_batch: float
    directions: int = 1
    radius: float = 1e-3
    norm: Literal["l1", "l2"] = "l2"
    unit: Unit = Unit.RECORD
    momentum: float = 0.0
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        checks.count("steps", steps=self.steps)
        checks.positive("steps", lr=self.lr, clip=self.clip, expected_batch=self.expected_batch, radius=self.radius)
        if self.micro_batch is not None:
            checks.count("steps", micro_batch=self.micro_batch)
        check_directions("steps", self.directions)
        if self.batch != "full":
            checks.rate("steps", batch=self.batch)
        if self.unit is Unit.CLIENT:
            raise ConfigError.about("steps", "is not protected by private steps", "clip whole updates", unit="client")
        _momentum(self.momentum)


@dataclass(frozen=True)
class PlainSteps:
    """Plain SGD. Give `epochs` or `steps`.

    Args:
        lr: Step size.
        epochs: Passes over the records.
        steps: Number of steps.
        batch_size: Records per step, without replacement within a pass; None for all.
        momentum: Of the gradients.
    """

    lr: float
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        checks.positive("steps", lr=self.lr)
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError.about(
                "steps", "takes exactly one of epochs and steps", epochs=self.epochs, steps=self.steps
            )
        for name in ("epochs", "steps", "batch_size"):
            if getattr(self, name) is not None:
                checks.count("steps", **{name: getattr(self, name)})
        _momentum(self.momentum)


def check_directions(where: str, directions: int) -> None:
    """A step's directions are few enough for its uplink.

    Raises:
        ConfigError: Their float32 numbers would not fit `UPLINK_BYTES`.
    """
    checks.count(where, directions=directions)
    if 4 * directions > UPLINK_BYTES:
        raise ConfigError.about(
            where, f"is more than the {UPLINK_BYTES} bytes of a step's uplink hold", "16 at most", directions=directions
        )


def _momentum(momentum: float) -> None:
    if not 0 <= momentum < 1:
        raise ConfigError.about("steps", "must lie in [0, 1)", momentum=momentum)
