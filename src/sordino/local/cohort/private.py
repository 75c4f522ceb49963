"""DP-SGD of many silos at once: one pass for all, and still every silo's every step through its own door.

coins of each silo ──► padded batch ──twin──► shares ──clipped_sums──► one BoundedSum per silo
                                                                            │ its own release
θ of each silo ◄── momentum ◄── + regulariser ◄── / its expected batch ◄────┘

Right of the doors everything is post-processing, as for one silo alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sordino.core.errors import EngineError, PrivacyError
from sordino.core.types import Unit, Vector
from sordino.local.clipping import Clipped
from sordino.local.clipping.stacked import clipped_sums
from sordino.local.cohort.buckets import Member, buckets, padded
from sordino.local.cohort.plain import split
from sordino.local.cohort.twin import Twin
from sordino.local.objectives import Objective
from sordino.local.passes import likely
from sordino.local.trainers._data import Data
from sordino.local.trainers.dpsgd import checked
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy.doors import Release
from sordino.privacy.noise import NoiseSource, coins


@dataclass(frozen=True)
class Silo:
    """One silo of a cohort.

    Args:
        member: Its records.
        plan: What it does; the number of steps is the cohort's.
        release: Adds its noise; the caller has reserved `plan.steps` releases.
        coins: For its batches; left out, the cohort's.
    """

    member: Member
    plan: PrivateSteps
    release: Release
    coins: NoiseSource | None = None


def train_private_many(
    twin: Twin, silos: Sequence[Silo], start: Vector, objective: Objective, source: NoiseSource
) -> Iterator[tuple[int, Vector]]:
    """The changes that each silo's private steps make to the parameters.

    Args:
        twin: The model for many silos.
        silos: The cohort. Their plans differ in the expected batch at most.
        start: Released or public parameters, shape (d,), or each silo's own, shape (silos, d).
        objective: Added outside the clip.
        source: For the coins of the batches, drawn silo by silo as if one trained after another.

    Returns:
        Positions in `silos` and released changes, bucket by bucket; as `train_private` for each.

    Raises:
        PrivacyError: The unit is not the record, or a release was refused.
        EngineError: A silo's parameters diverged.

    Guarantee:
        That of `train_private`, for every silo by itself: a batched product has a slice per silo, and each
        sum is clipped, certified and released on its own. The last bits of a gradient may depend on the company.
    """
    if any(silo.plan.unit is not Unit.RECORD for silo in silos):
        raise PrivacyError.about("cohort", "stacks records only", 'use cohort = "loop"', unit="user")
    rows = [[_draw(silo, silo.coins or source) for _ in range(silo.plan.steps)] for silo in silos]
    starts = np.broadcast_to(np.asarray(start, dtype=np.float32), (len(silos), twin.layout.size))
    most = max((len(each) for drawn in rows for each in drawn), default=1)
    for bucket in buckets([silo.member.records for silo in silos], max(1, most), twin.layout.size):
        chosen = [silos[i] for i in bucket]
        changes = _bucket(twin, chosen, [rows[i] for i in bucket], starts[bucket], objective)
        yield from zip(bucket, changes, strict=True)


def _draw(silo: Silo, source: NoiseSource) -> NDArray[np.int64]:
    if silo.plan.batch == "full":
        return np.arange(silo.member.records)
    return coins(source, silo.plan.batch, silo.member.records)


def _bucket(
    twin: Twin,
    silos: Sequence[Silo],
    rows: Sequence[Sequence[NDArray[np.int64]]],
    starts: Vector,
    objective: Objective,
) -> list[Vector]:
    datas = [silo.member.load() for silo in silos]
    theta = starts.copy()
    velocity = np.zeros_like(theta) if silos[0].plan.momentum else None
    for step in range(silos[0].plan.steps):
        sums = _sums(twin, silos, datas, [each[step] for each in rows], theta)
        for i, (silo, each) in enumerate(zip(silos, sums, strict=True)):
            released = checked(silo.release(each.total), twin.layout)
            gradient = released / np.float32(silo.plan.expected_batch)
            if objective.pulls:
                gradient += objective.regulariser(theta[i], starts[i])
            if velocity is not None:
                velocity[i] = gradient = np.float32(silo.plan.momentum) * velocity[i] + gradient
            gradient *= np.float32(silo.plan.lr)
            theta[i] -= gradient
            if not np.isfinite(theta[i]).all():
                raise EngineError.about("cohort", "the parameters are not finite: training diverged", "lower the rate")
    return list(theta - starts)


def _sums(
    twin: Twin,
    silos: Sequence[Silo],
    datas: Sequence[Data],
    rows: Sequence[NDArray[np.int64]],
    theta: Vector,
) -> Iterator[Clipped]:
    """Each silo's clipped sum at its own parameters."""
    # A public number of rows, so that no silo's draw has a part in how another's is computed.
    least = max(likely(silo.plan.expected_batch) for silo in silos)
    batch, plan = padded(datas, rows, twin.device, least), silos[0].plan
    shares = twin.shares(split(twin.layout, torch.from_numpy(theta).to(twin.device)), batch)
    return clipped_sums(shares, twin.layout.groups, batch.present, norm=plan.clip, rule=plan.clipping)
