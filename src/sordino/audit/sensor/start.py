"""The short form: every run drives its own step twice, on made-up records, before anything is charged.

the run's multiplier     the noise: scale, freshness, independence, every release and group, lattice
a small multiplier       the clip, weights and sampling, beside records that are not finite

It sees gross faults, such as noise halved or missing in one group, noise used twice, a clip doubled, or taken of the
batch. The full form (`sordino audit RUN`) sees 3 % of noise, and laws. It is repeated for every run, never remembered:
what was right an hour ago may have been patched since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from scipy import stats

from sordino.audit.sensor import clipping, noise, sampling
from sordino.audit.sensor.clipping import Quiet
from sordino.audit.sensor.full import NOT_FINITE, QUIET, missing, quiet_multiplier, with_odd
from sordino.audit.sensor.report import Measured, Report
from sordino.audit.sensor.world import Declared, Floats, Step, World
from sordino.core.errors import BreakerOpen

ALPHA = 1e-6
"""Chance that a sound run is stopped."""

ODD = (float("nan"), float("inf"), 1e30)
"""Gains of the first canaries of the second drive."""


class Slopes(Protocol):
    """A zeroth-order step as a black box."""

    @property
    def declared(self) -> Declared:
        """What it says of itself."""
        ...

    @property
    def directions(self) -> int:
        """Numbers K that a step releases."""
        ...

    def slopes(self, gains: tuple[float, ...], steps: int, noise_multiplier: float) -> Floats:
        """Released sums over the declared bound, shape (at least T, 1, K).

        Args:
            gains: Length of each record's slopes over the bound, about; 0 for none.
            steps: Releases T.
            noise_multiplier: As it would be declared.
        """
        ...


GROUPS, ROWS, STEPS = 3, 64, 16

SLOPES = 256
"""Slopes whose noise is looked at: half the noise is then told from all of it beyond any doubt."""

JOINING = 6
"""Canaries that join a step, about."""


def start(
    step: Step, noise_multiplier: float, seed: int = 0, *, others: Sequence[Step] = (), more: Iterable[Measured] = ()
) -> Report:
    """Drive a run's step in short.

    Args:
        step: The run's own.
        noise_multiplier: The run's own, at which the noise is looked at.
        seed: Of the world.
        others: Steps whose noise is looked at in place of the run's: of silos with noise of their own.
        more: What was measured beside the step.

    Guarantee:
        A sound step fails with probability `ALPHA` at most.
    """
    begun = time.process_time()
    declared = step.declared
    world = World.made(ROWS, GROUPS, seed, canaries_for(declared))
    measured = list(more)
    for each in others or (step,):
        released = each.iterates(world, STEPS, noise_multiplier, seed)
        measured += _loud(released, world, declared, noise_multiplier)
    quiet = quiet_multiplier(declared)
    odd = world.with_odd(ODD)
    iterates = with_odd(step, odd, STEPS, quiet, seed + 1)
    measured += [iterates] if isinstance(iterates, Measured) else _quiet(iterates, odd, declared, quiet)
    return Report.of(measured, ALPHA).took(time.process_time() - begun)


def canaries_for(declared: Declared) -> int:
    """How many canaries: so many that some join every step, and few where each costs a client's training."""
    rate = 0.2 if declared.size is not None or declared.sampling == "each alone" else min(declared.rates)
    return int(min(30, max(8, JOINING / rate)))


def start_slopes(step: Slopes, noise_multipliers: Sequence[float], *, more: Iterable[Measured] = ()) -> Report:
    """The short form for steps that release a few slopes instead of a gradient: no rows can be told apart in them.

    Noise is looked at where no record has a slope, and the bound where one record's are far too long and another's are
    not finite.

    Args:
        step: The run's own.
        noise_multipliers: The run's own, of which silos may have several.
        more: What was measured beside the step.

    Guarantee:
        As `start`.
    """
    begun = time.process_time()
    declared, steps = step.declared, max(STEPS, SLOPES // step.directions)
    measured = list(more)
    for multiplier in noise_multipliers:
        z = noise.over_std(step.slopes((0.0,), steps, multiplier), np.arange(step.directions), declared, multiplier)
        measured += [noise.scale(z), noise.law(z), noise.every_coordinate(z), noise.lattice(z)]
    found = step.slopes((1e3, float("nan")), STEPS, QUIET)
    if np.isfinite(found).all():
        order = 1 if declared.noise == "laplace" else 2
        beyond = np.maximum(np.linalg.norm(found[:, 0], ord=order, axis=1) - 1 - clipping.SLACK, 0) / QUIET
        law = stats.gamma(step.directions) if order == 1 else stats.chi(step.directions)
        p = float(law.sf(beyond).min()) * len(beyond)
        says = f"{float(np.linalg.norm(found[:, 0], ord=order, axis=1).max()):.3f} of the bound at most"
        measured.append(Measured("clip bound", min(1.0, p), says))
    measured.append(Measured("non-finite input", float(np.isfinite(found).all()), "slopes beside a record of NaN"))
    return Report.of(measured, ALPHA).took(time.process_time() - begun)


def require(report: Report) -> None:
    """Let a run go on, unless a check failed.

    Raises:
        BreakerOpen: A check failed; nothing was charged or released.
    """
    if report.failed:
        found = "; ".join(f"{check.name}: {check.says} (p = {check.p:.1g})" for check in report.failed[:3])
        raise BreakerOpen.about(
            "sensor",
            f"what would run is not what would be accounted. {found}. Nothing was charged or released",
            "find out what changed in this installation; `sordino audit conformance` tells more",
            failed=[check.name for check in report.failed],
        )


def _loud(iterates: Floats, world: World, declared: Declared, multiplier: float) -> Iterator[Measured]:
    if not np.isfinite(iterates).all():
        yield Measured("finite", 0.0, NOT_FINITE)
        return
    z = noise.over_std(iterates, world.nobody, declared, multiplier)
    yield noise.scale(z)
    yield from noise.freshness(z)
    yield from noise.coordinates(z)
    yield noise.groups(z)
    yield noise.every_release(z)
    yield noise.every_group(z)
    yield noise.every_coordinate(z)
    yield noise.lattice(z)
    yield clipping.under_noise(iterates, world, declared, multiplier)


def _quiet(iterates: Floats, world: World, declared: Declared, multiplier: float) -> Iterator[Measured]:
    everyone = Quiet.of(iterates, world, declared, multiplier)
    yield from clipping.bound(everyone)
    sound, rates = everyone.without(len(ODD)), declared.rate(world.canaries)[len(ODD) :]
    yield from clipping.equal_weights(sound)
    yield from clipping.denominators(sound)
    if declared.sampling == "all":
        yield from sampling.all_checks(sound.joined, declared)
    elif declared.sampling != "each alone":
        yield from sampling.rate(sound.joined, rates)
        yield Measured("non-finite input", missing(sound.joined, rates), "others join beside odd records")
    if declared.size is not None:
        most = int(everyone.joined.sum(1).max())
        yield Measured("batch-size law", float(most <= declared.size), f"{most} of {declared.size} join at most")
