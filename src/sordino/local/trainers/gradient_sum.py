"""One clipped gradient sum, still private: for noise that is added at the sum over silos."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from sordino.core.types import Unit, Vector
from sordino.local.clipping import Clip, ClippingEngine, Rule, engines
from sordino.local.layout import Layout
from sordino.local.losses import Loss, cross_entropy
from sordino.local.trainers._data import Data, Units, tensor
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import NoiseSource


def gradient_sum(  # noqa: PLR0913 - as in train_private
    model: nn.Module,
    layout: Layout,
    data: Data,
    at: Vector,
    *,
    clip: float,
    unit: Unit = Unit.RECORD,
    records_per_person: int | None = None,
    rule: Rule = "flat",
    batch: float | Literal["full"] = "full",
    source: NoiseSource | None = None,
    loss: Loss = cross_entropy,
    engine: ClippingEngine | None = None,
) -> BoundedSum:
    """The sum of the silo's clipped gradients at given parameters.

    Args:
        model: A shared instance: its parameters are overwritten.
        layout: `Layout.of(model)`.
        data: The silo's records.
        at: Released or public parameters, shape (d,).
        clip: L2 norm of one unit's gradient.
        unit: `record` or `user`.
        records_per_person: As in `PrivateSteps`.
        rule: How gradients are brought within the clip.
        batch: `"full"`, or the rate at which a unit joins.
        source: For the coins, when `batch` is a rate.
        loss: One loss per example.
        engine: The clipping engine; left out, `auto`.

    Guarantee:
        One unit moves the sum by at most `clip`; with `records_per_person` K, one person by at most K times that.
    """
    units = Units(data, unit, records_per_person)
    x, y = tensor(model, data[0]), tensor(model, data[1])
    layout.restore(model, at)
    rows = units.draw(batch, source)
    picked = torch.from_numpy(rows).to(x.device)
    clipping = engine or engines.build("auto", {})
    groups = units.groups(rows)
    drawn = (x[picked], y[picked])
    total = clipping.clipped_sum(model, loss, drawn, Clip(clip, units.clipped, rule), groups).total
    return units.bounded(total)
