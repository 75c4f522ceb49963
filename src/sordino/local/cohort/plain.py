"""Plain SGD of many clients at once, with the same result as one after another up to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sordino.core.types import Vector
from sordino.local.cohort.buckets import Member, Padded, buckets, padded
from sordino.local.layout import Layout
from sordino.local.objectives import Objective
from sordino.local.trainers.plans import PlainSteps
from sordino.local.trainers.sgd import batches


class Stack(Protocol):
    """A model for many clients at once."""

    @property
    def layout(self) -> Layout:
        """The model's parameters."""
        ...

    @property
    def device(self) -> torch.device:
        """Where they are."""
        ...

    def gradients(self, parameters: Sequence[Tensor], batch: Padded) -> list[Tensor]:
        """Each client's gradient of its own mean loss; see `Twin.gradients`."""
        ...


def train_plain_many(
    stack: Stack,
    members: Sequence[Member],
    start: Vector,
    plan: PlainSteps,
    rng: Callable[[int], np.random.Generator],
    objective: Objective,
) -> Iterator[tuple[int, Vector]]:
    """The changes that plain SGD makes for each client. Private: each must go through a door.

    Args:
        stack: The model for many clients.
        members: The cohort.
        start: Shape (d,), or each client's own, shape (clients, d).
        plan: What every client does.
        rng: What shuffles the records of the client at a position in `members`, made when its turn comes.
        objective: Its regulariser is added to each step's mean gradient.

    Returns:
        Positions in `members` and changes, bucket by bucket. As `train_plain` for each: all NaN where training
        diverged, zero where there are no records. A client that has no more steps to do stays where it is.
    """
    starts = np.broadcast_to(np.asarray(start, dtype=np.float32), (len(members), stack.layout.size))
    for bucket in buckets([member.records for member in members], plan.batch_size, stack.layout.size):
        steps = {i: list(batches(members[i].records, plan, rng(i))) for i in bucket}
        order = sorted(bucket, key=lambda i: -len(steps[i]))
        datas = [members[i].load() for i in order]
        begun = starts[order]
        theta = torch.from_numpy(begun.copy()).to(stack.device)
        velocity = torch.zeros_like(theta) if plan.momentum else None
        for step in range(len(steps[order[0]])):
            moving = sum(len(steps[i]) > step for i in order)
            batch = padded(datas[:moving], [steps[i][step] for i in order[:moving]], theta.device)
            _step(stack, theta[:moving], None if velocity is None else velocity[:moving], batch, begun, plan, objective)
        moved = theta.cpu().numpy()
        for i, each, own in zip(order, moved, begun, strict=True):
            # Once not finite, parameters stay so: one look at the end is enough.
            yield i, each - own if np.isfinite(each).all() else np.full_like(own, np.nan)


def _step(
    stack: Stack,
    theta: Tensor,
    velocity: Tensor | None,
    batch: Padded,
    starts: Vector,
    plan: PlainSteps,
    objective: Objective,
) -> None:
    """One step of the clients that still have one to do, in place."""
    gradients = stack.gradients(split(stack.layout, theta), batch)
    if objective.pulls:
        pairs = zip(theta.cpu().numpy(), starts, strict=False)  # those that still move stand first
        pull = torch.from_numpy(np.stack([objective.regulariser(each, own) for each, own in pairs]))
        gradients = [g + own for g, own in zip(gradients, split(stack.layout, pull.to(theta.device)), strict=True)]
    if velocity is not None:
        for own, gradient in zip(split(stack.layout, velocity), gradients, strict=True):
            own.mul_(plan.momentum).add_(gradient)
        gradients = split(stack.layout, velocity)
    for own, direction in zip(split(stack.layout, theta), gradients, strict=True):
        own.sub_(direction, alpha=plan.lr)


def split(layout: Layout, theta: Tensor) -> list[Tensor]:
    """Each parameter of every client, shape (clients, *shape), as views."""
    pairs = zip(layout.groups, layout.shapes, strict=True)
    return [theta[:, group.start : group.stop].reshape(len(theta), *shape) for group, shape in pairs]
