"""What a clipping engine promises: a sum whose per-unit bound it has just enforced, never a mean, never a `.grad`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.registry import Registry
from sordino.core.types import Unit
from sordino.local.clipping._rules import Rule
from sordino.local.losses import Loss
from sordino.privacy.kernel import BoundedSum

Batch: TypeAlias = tuple[Tensor, Tensor]
"""Inputs and targets, one row per example."""

Groups: TypeAlias = NDArray[Any] | None
"""Who each example belongs to, shape (examples,); None where a unit is one record."""


class Unsupported(PrivacyError):
    """The engine cannot bound examples of the model; another engine may."""


@dataclass(frozen=True)
class Clip:
    """How far one unit may move a sum of gradients.

    Args:
        norm: L2 norm of a unit's gradient, > 0.
        unit: `record` or `user`.
        rule: How a gradient is brought within the norm; see `_rules`.

    Raises:
        PrivacyError: A whole client is protected by clipping its update, not its gradients.
    """

    norm: float
    unit: Unit = Unit.RECORD
    rule: Rule = "flat"

    def __post_init__(self) -> None:
        checks.positive("clip", norm=self.norm)
        if self.unit is Unit.CLIENT:
            raise PrivacyError.about(
                "clip", "is not protected by clipping gradients inside a silo", "clip the whole update", unit="client"
            )


@dataclass(frozen=True)
class Clipped:
    """A clipped sum, and how many units counted as zero because they were not finite.

    Args:
        total: Over the flat vector of `Layout.of(model)`.
        nonfinite: Number of such units. Private: it stays in the silo.
    """

    total: BoundedSum
    nonfinite: int


class ClippingEngine(Protocol):
    """Per-example gradients, clipped per unit and summed."""

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        """The sum of the units' gradients, each scaled to L2 norm at most `clip.norm`.

        A record's gradient is that of its own loss; a user's is the mean over the user's examples in the batch.

        Args:
            model: With parameters in place and every module in the mode it is to train in.
            loss: One loss per example.
            batch: Any number of examples, none included.
            clip: How far, whose, and by which rule.
            groups: Person of each example, for the unit `user` only.

        Guarantee:
            Adding or removing one unit moves the sum by at most `clip.norm`, if examples do not influence each other
            in the model (see `sordino.local.probe`). A unit that is not finite counts as zero.
        """
        ...


engines: Registry[ClippingEngine] = Registry("engine")


def checked(batch: Batch, clip: Clip, groups: Groups) -> None:
    """The arguments of `clipped_sum`, if they fit together."""
    if (groups is not None) != (clip.unit is Unit.USER):
        raise PrivacyError.about("clip", "needs person ids for the unit user, and only for it", unit=clip.unit.value)
    lengths = {len(part) for part in (*batch, groups) if part is not None}
    if len(lengths) != 1:
        raise PrivacyError.about("clip", "inputs, targets and groups differ in length", lengths=sorted(lengths))


def per_example(losses: Tensor, examples: int) -> Tensor:
    """The losses, if there is one per example."""
    if losses.shape != (examples,):
        raise PrivacyError.about(
            "loss",
            f"must have one entry per example, ({examples},)",
            "return a vector: a mean over each example's own tokens, not over the batch",
            shape=tuple(losses.shape),
        )
    return losses
