"""The sensor audit: a step or an aggregation is driven as a black box, and what it releases is compared with its word.

multiplier 0.7, 1.3   is the noise what it says, everywhere and always?        (σ² for σ is too little at only one)
hardly any noise      who joined, and how far did each move the sum?
two canaries          is there noise when nobody comes?
odd canaries          do records that are not finite change more than their own share?
two silos, a restart  have their noises nothing in common?

Guarantee: at most `alpha` of the audits of a sound step fail; each check has an equal share. What a step does only to
records that look otherwise than canaries is not seen, nor are faults of a probability like δ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.audit.sensor import clipping, noise, sampling
from sordino.audit.sensor.clipping import Quiet
from sordino.audit.sensor.report import Measured, Report
from sordino.audit.sensor.world import ODD, Declared, Floats, Step, World

LOUD = (0.7, 1.3)
"""Multipliers at which the noise is looked at."""

QUIET = 0.02
"""Standard deviation of normal noise under which canaries are looked at, over the smallest share of the bound."""

HEAVY = 1 / 3
"""What is left of it where the noise is Laplace's, so that its heavier tails end as early."""

NOT_FINITE = "released sums are not finite"

RELATIVES = ("silos", "restart")
"""Pairs of series that are asked for."""


def audit(
    step: Step,
    *,
    alpha: float = 1e-3,
    seed: int = 0,
    rows: int = 400,
    groups: int = 2,
    steps: int = 60,
    others: Sequence[Step] = (),
    more: Iterable[Measured] = (),
) -> Report:
    """Drive a step and check everything.

    Args:
        step: What is audited, with what it declares of itself.
        alpha: Chance that a sound step fails any check, at most, in (0, 1).
        seed: Of the world and of the step's own ordinary randomness; never of its noise.
        rows: Rows of each parameter group; half have a canary, a fifth where one is costly, an eighth where canaries
            join most steps. Fewer canaries see the noise better and a rate worse: half see 1.1 q in seven audits of
            eight, a fifth in four; 1.2 q and a clip of 1.005 C both see always.
        groups: Parameter groups.
        steps: Releases of each of the three runs.
        others: Steps whose noise is looked at as well: of silos with noise of their own.
        more: What was measured beside the step.
    """
    start = time.process_time()
    declared = step.declared
    often = min(declared.rates) > 0.5 and declared.size is None
    world = World.made(rows, groups, seed, rows // 8 if often else rows // 5 if declared.costly else None)
    quiet = quiet_multiplier(declared)
    measured = list(more)
    for each in others:
        measured += of_loud(each.iterates(world, steps, LOUD[0], seed), world, declared, LOUD[0])
    pooled = []
    for i, multiplier in enumerate((*LOUD, quiet)):
        iterates = step.iterates(world, steps, multiplier, seed + i)
        measured += (of_quiet if multiplier == quiet else of_loud)(iterates, world, declared, multiplier)
        pooled.append(noise.over_std(iterates, world.nobody, declared, multiplier))
    measured.append(noise.scale(np.stack(pooled)))
    few = World.made(max(40, rows // 5), groups, seed + 3, canaries=2)
    measured += of_few(step.iterates(few, steps // 2, quiet, seed + 3), few, declared, quiet)
    odd = World.made(max(40, rows // 5), groups, seed + 4).with_odd()
    measured += of_odd(step, odd, steps // 3, quiet, seed + 4)
    relatives = step.relatives(few, max(4, steps // 6), LOUD[1], seed + 5)
    for name, pair in relatives.items():
        measured += of_relatives(name, pair, few, declared, LOUD[1])
    lacking = tuple(f"{name}: the subject has no such pair" for name in RELATIVES if name not in relatives)
    return Report.of(measured, alpha, lacking).took(time.process_time() - start)


def quiet_multiplier(declared: Declared) -> float:
    """The multiplier at which canaries are looked at: so small that noise is never taken for a canary that joined."""
    heavy = HEAVY if declared.noise == "laplace" else 1.0
    return heavy * QUIET * min(declared.shares) / declared.std(1.0)


def of_loud(iterates: Floats, world: World, declared: Declared, multiplier: float) -> Iterator[Measured]:
    """Checks of a run with much noise."""
    if not np.isfinite(iterates).all():
        yield Measured("finite", 0.0, NOT_FINITE)
        return
    yield from noise.all_checks(noise.over_std(iterates, world.nobody, declared, multiplier))
    yield clipping.under_noise(iterates, world, declared, multiplier)


def of_quiet(iterates: Floats, world: World, declared: Declared, multiplier: float) -> Iterator[Measured]:
    """Checks of a run with little noise."""
    if not np.isfinite(iterates).all():
        yield Measured("finite", 0.0, NOT_FINITE)
        return
    quiet = Quiet.of(iterates, world, declared, multiplier)
    yield from clipping.all_checks(quiet)
    yield from sampling.all_checks(quiet.joined, declared)
    z = noise.over_std(iterates, world.nobody, declared, multiplier)
    yield noise.scale(z)
    yield noise.every_release(z)


def of_few(iterates: Floats, world: World, declared: Declared, multiplier: float) -> Iterator[Measured]:
    """Checks of a run in which hardly anybody joins: noise is released whoever comes."""
    if not np.isfinite(iterates).all():
        yield Measured("empty batch", 0.0, NOT_FINITE)
        return
    quiet = Quiet.of(iterates, world, declared, multiplier)
    z = noise.over_std(iterates, world.nobody, declared, multiplier)
    sizes = quiet.joined.sum(1)
    for size in np.unique(sizes):
        p = noise.too_small(z[sizes == size])
        least = math.sqrt(float(np.square(z[sizes == size]).mean(-1).min()))
        says = f"when {size} join: {least:.3f} of the declared noise at least"
        yield Measured("empty batch", min(1.0, float(p.min()) * p.size), says)
    yield from clipping.bound(quiet) if quiet.joined.any() else ()


def of_odd(step: Step, world: World, steps: int, multiplier: float, seed: int) -> Iterator[Measured]:
    """Checks of a run in which some records are not finite or overflow: they change their own bounded share at most."""
    name, declared = "non-finite input", step.declared
    iterates = with_odd(step, world, steps, multiplier, seed)
    if isinstance(iterates, Measured):
        yield iterates
        return
    quiet = Quiet.of(iterates, world, declared, multiplier)
    with np.errstate(over="ignore"):
        lengths = quiet.long(quiet.values, 1)
    single = quiet.too_long(lengths, quiet.std[None])
    says = f"{float(lengths.max()):.3f} of the bound at most"
    yield Measured(name, min(1.0, float(single.min()) * single.size), says)
    others, rates = quiet.joined[:, len(ODD) :], declared.rate(world.canaries)[len(ODD) :]
    if declared.sampling != "each alone":
        says = f"others join {others.sum() / max(1e-9, len(others) * rates.sum()):.3f} times as declared"
        yield Measured(name, missing(others, rates), says)
    least = noise.every_release(noise.over_std(iterates, world.nobody, declared, multiplier))
    yield Measured(name, least.p, f"beside odd records, {least.says}")


def with_odd(step: Step, world: World, steps: int, multiplier: float, seed: int) -> Floats | Measured:
    """The iterates of a world with odd records, or the failure that they lead to."""
    try:
        with np.errstate(all="ignore"):
            iterates = step.iterates(world, steps, multiplier, seed)
    except Exception as error:  # noqa: BLE001 - that one record can stop the whole step is what is looked for
        return Measured("non-finite input", 0.0, f"a record stops the step: {type(error).__name__}: {error}")
    return iterates if np.isfinite(iterates).all() else Measured("non-finite input", 0.0, NOT_FINITE)


def of_relatives(
    name: str, pair: tuple[Floats, Floats], world: World, declared: Declared, multiplier: float
) -> Iterator[Measured]:
    """Checks of two series whose noises must have nothing in common."""
    said = {"silos": "independent silos", "restart": "noise after a restart"}[name]
    first, second = (noise.over_std(each, world.nobody, declared, multiplier) for each in pair)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        yield Measured(said, 0.0, NOT_FINITE)
        return
    yield from noise.unrelated(said, first, second)


def missing(joined: NDArray[np.bool_], rates: Floats) -> float:
    """p-value of "fewer joined than coins would let": exact where rates are equal, else bounded by the smallest."""
    if rates.min(initial=1.0) == 1:
        return float(bool(joined.all()))
    return float(stats.binom.cdf(int(joined.sum()), joined.size, rates.min(initial=1.0)))
