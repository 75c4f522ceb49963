"""The clipped sum of one private step, pool by pool: all records, or each public group by its own rate and clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino.core.errors import ConfigError
from sordino.local.clipping import Clip, ClippingEngine
from sordino.local.losses import Loss
from sordino.local.trainers._data import Data, Units
from sordino.local.trainers.plans import GroupSteps, PrivateSteps
from sordino.privacy.kernel import BoundedSum, total_of
from sordino.privacy.noise import NoiseSource


@dataclass(frozen=True, eq=False)
class Pool:
    """Records that are drawn and clipped alike.

    Args:
        units: The pool's own units.
        rows: Where they stand among the silo's records.
        steps: Rate, and clip as a share of the plan's; the name of a public group, or of none.
    """

    units: Units
    rows: NDArray[np.int64]
    steps: GroupSteps

    def bounded_sum(
        self,
        model: nn.Module,
        loss: Loss,
        x: Tensor,
        y: Tensor,
        plan: PrivateSteps,
        source: NoiseSource | None,
        engine: ClippingEngine,
    ) -> BoundedSum:
        """The clipped gradients of the records that join a step."""
        drawn = self.units.draw(self.steps.batch, source)
        rows = self.rows[drawn]
        picked = torch.from_numpy(rows).to(x.device)
        batch = (x, y) if len(rows) == len(x) else (x[picked], y[picked])
        people = self.units.groups(drawn)
        norm = plan.clip * self.steps.share
        total = engine.clipped_sum(model, loss, batch, Clip(norm, self.units.clipped, plan.clipping), people).total
        return self.units.bounded(total) if self.steps.name is None else total.of_group(self.steps.name)


def pools(data: Data, labels: NDArray[Any] | None, plan: PrivateSteps) -> tuple[Pool, ...]:
    """A silo's pools.

    Args:
        data: The silo's records.
        labels: The public group of each record, where the plan tells groups apart.
        plan: What to do.

    Raises:
        ConfigError: A record is of no group of the plan.
    """
    if not plan.groups:
        whole = GroupSteps(None, plan.batch)
        return (Pool(Units(data, plan.unit, plan.records_per_person), np.arange(len(data[0])), whole),)
    names = [group.name for group in plan.groups]
    known = None if labels is None else np.asarray(labels).astype(str)
    if known is None or not set(np.unique(known).tolist()) <= set(names):
        raise ConfigError.about("data", "is not of a group of the plan", "name every group", groups=names)
    found = []
    for group in plan.groups:
        rows = np.flatnonzero(known == group.name)
        own = (data[0][rows], data[1][rows], None)
        found.append(Pool(Units(own, plan.unit), rows, group))
    return tuple(found)


def step_sum(
    pools: tuple[Pool, ...],
    model: nn.Module,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    plan: PrivateSteps,
    source: NoiseSource | None,
    engine: ClippingEngine,
) -> BoundedSum:
    """The clipped sum of one step over all pools. A record is in one pool, so it moves no other's part."""
    return total_of(pool.bounded_sum(model, loss, x, y, plan, source, engine) for pool in pools)
