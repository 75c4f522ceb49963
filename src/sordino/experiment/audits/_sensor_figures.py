"""The release of held-out figures as a black box: noise where nobody is held out, the bound where somebody is odd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import stats

from sordino.audit.sensor import noise
from sordino.audit.sensor.report import Measured
from sordino.audit.sensor.world import Declared, Floats, World
from sordino.core.types import Adjacency
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.experiment import released_metrics
from sordino.experiment.audits import _sensor_setup as scaled
from sordino.experiment.config import MetricRelease
from sordino.experiment.settings import Setup
from sordino.ledger.rehearsal import rehearsal
from sordino.privacy.relations import moves

SAID = "of released figures"
WHISPER = 1e-3
"""Of the noise, when the bound is looked at."""

SLACK = 1e-4
ODD = (float("nan"), float("inf"), -1e30)
"""The only entry of a record that is held out, each alone: its logit, and so its loss."""

ODD_TIMES = 4


def measured(setup: Setup, times: int) -> Iterator[Measured]:
    """What a run's own release of figures does on made-up records; nothing where it has none.

    Args:
        setup: The run's fixed parts.
        times: Releases whose noise is looked at.
    """
    asked = setup.experiment.evaluation.release
    if asked is None:
        return
    declared = Declared(noise="laplace" if asked.noise_multiplier is None else "gaussian")
    found = _released(setup, asked, None, times).reshape(times, 1, -1)
    over = found * declared.std(1.0) / _std(asked, setup.plan.adjacency)
    z = noise.over_std(over, np.arange(over.shape[2]), declared, 1.0)
    for each in (noise.scale(z), noise.every_coordinate(z), *noise.freshness(z), noise.lattice(z)):
        yield replace(each, says=f"{each.says}, {SAID}")
    quiet = _quiet(asked)
    std = _std(quiet, setup.plan.adjacency)
    for gain in ODD:
        yield _bounded(_released(setup, quiet, gain, ODD_TIMES), asked, std)


def _bounded(found: Floats, asked: MetricRelease, std: float) -> Measured:
    """Whether one unit moves its silo's figures further than their noise is for."""
    if not np.isfinite(found).all():
        return Measured("non-finite input", 0.0, f"not all are finite, {SAID}")
    l1, l2 = released_metrics.bounds(asked)
    order, bound, width = (1, l1, found.shape[2]) if asked.noise_multiplier is None else (2, l2, found.shape[2])
    lengths = np.linalg.norm(found, ord=order, axis=2)
    # A sum s with its noise n is at most |s| + |n| long.
    beyond = np.maximum(lengths - bound * (1 + SLACK), 0.0) / (std / 2**0.5 if order == 1 else std)
    p = float((stats.gamma(width) if order == 1 else stats.chi(width)).sf(beyond).min()) * beyond.size
    return Measured("clip bound", min(1.0, p), f"{float(lengths.max()) / bound:.3f} of the bound at most, {SAID}")


def _std(asked: MetricRelease, adjacency: Adjacency) -> float:
    """What the release promises of each number's noise. Not asked of the mechanisms: they are what is looked at."""
    l1, l2 = released_metrics.bounds(asked)
    if asked.noise_multiplier is not None:
        return asked.noise_multiplier * l2
    return 2**0.5 * moves(adjacency) * l1 / (asked.epsilon or 0.0)


def _quiet(asked: MetricRelease) -> MetricRelease:
    """The same release with hardly any noise."""
    if asked.noise_multiplier is not None:
        return replace(asked, noise_multiplier=asked.noise_multiplier * WHISPER)
    return replace(asked, epsilon=(asked.epsilon or 0.0) / WHISPER)


def _released(setup: Setup, asked: MetricRelease, gain: float | None, times: int) -> Floats:
    """What every silo releases, some times over. Shape (times, silos, figures).

    Args:
        setup: The run's fixed parts.
        asked: Which figures, with which noise.
        gain: Of the one record that each silo holds out; None where it holds out nobody.
        times: Releases.
    """
    experiment = replace(setup.experiment, evaluation=replace(setup.experiment.evaluation, release=asked))
    world = World(1, 1, np.arange(1), np.ones(1))
    made = scaled.setup_of(setup, experiment, world, np.ones(1), (1.0,))
    made = replace(made, population=replace(made.population, test=_held_out(made, gain)))
    lines = [replace(line, count=times) for line in released_metrics.lines(made)]
    charge = rehearsal(f"figures/{asked.epsilon}/{gain}", lines)
    model = np.ones(made.layout.size, np.float32)
    return np.array([released_metrics.drawn(made, asked, model, charge) for _ in range(times)], np.float64)


def _held_out(made: Setup, gain: float | None) -> FederatedData:
    """One made-up record of the rarer answer in every silo, or one in a silo that takes no part."""
    names = made.population.names if gain is not None else ("elsewhere",)
    n = len(names)
    x = np.full((n, 1), 0.0 if gain is None else gain, np.float32)
    examples = Examples(x, np.ones(n, np.int64), classes=2, user=np.arange(n), public=True, source="sensor rows")
    return FederatedData(examples, tuple(names), tuple(np.array([i]) for i in range(n)))
