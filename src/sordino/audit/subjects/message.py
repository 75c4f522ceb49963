"""Messages of one silo, and what their receiver knows anyway: model, loss, learning rate and divisor."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.core.errors import ConfigError
from sordino.core.types import Vector

if TYPE_CHECKING:
    from torch import nn

    from sordino.local.layout import Layout
    from sordino.local.losses import Loss

NOTHING = "none"
"""The protection of the positive control: the same records, sent in the clear."""


class Content(enum.StrEnum):
    """What a record is."""

    IMAGE = "image"
    """Channels × height × width."""
    TABLE = "table"
    """A row of numbers."""
    TEXT = "text"
    """Tokens."""


@dataclass(frozen=True)
class Protection:
    """How messages are protected. Public, as a plan is.

    Args:
        name: Part of file names and of figures' names, such as `none`, `clip`, `epsilon-4`.
        label: For people, such as `ε = 4`.
        epsilon: Of the whole run that sends such messages; inf without noise.
        scale: What a message is multiplied by to estimate the mean gradient of its records.
        std: Standard deviation of the noise on each number of that estimate; 0 without noise.
    """

    name: str
    label: str
    epsilon: float
    scale: float
    std: float = 0.0


@dataclass(frozen=True, eq=False)
class Batch:
    """A few records, and the message that they became, once under each protection.

    Args:
        x: The records, shape (n, ...). An attack may look at them to score itself only.
        y: Their labels, or the token that follows at each place.
        wires: By the protection's name, what left the silo, shape (d,).
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    wires: Mapping[str, Vector]


@dataclass(frozen=True, eq=False)
class Message:
    """Messages under attack, beside the same messages under other protections.

    Args:
        promise: What the run promises, or None.
        module: The model, at the parameters that the messages were computed at. They are public.
        layout: Where its trainable parameters lie in a message.
        loss: One loss per example. Public.
        content: What a record is.
        protections: From the weakest on; the first is named `NOTHING`, the positive control.
        audited: Name of the protection that the run has: it decides the verdict.
        batches: The records and their messages; several, so that a figure is no accident.
        public: Whether the records are published or made up, so that pictures of them may be shown.
        box: Least and largest value of a record's numbers. Public.
        guess: What an attacker without any message would say a record is: the mean of others. None for text.

    Raises:
        ConfigError: The control or the audited protection is missing, or a batch lacks a message.
    """

    promise: Promise | None
    module: nn.Module
    layout: Layout
    loss: Loss
    content: Content
    protections: tuple[Protection, ...]
    audited: str
    batches: tuple[Batch, ...]
    public: bool
    box: tuple[float, float] = (0.0, 1.0)
    guess: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        names = [protection.name for protection in self.protections]
        if names[:1] != [NOTHING] or self.audited not in names:
            raise ConfigError.about("message", "needs its control first, and the audited one", protections=names)
        if not self.batches or any(set(names) - batch.wires.keys() for batch in self.batches):
            raise ConfigError.about("message", "lacks a batch, or a message under a protection", protections=names)

    def protection(self, name: str) -> Protection:
        """The protection of a name."""
        return next(protection for protection in self.protections if protection.name == name)

    def gradient(self, batch: Batch, protection: Protection) -> NDArray[np.float64]:
        """The attacker's estimate of the mean gradient of a batch, shape (d,)."""
        return batch.wires[protection.name].astype(np.float64) * protection.scale
