"""Can this plan learn? The signal-to-noise ratio of a run, from public numbers alone.

One step moves the model by at most the clip norm; the noise in the same step has length std·√d. Over a run of
T steps signal adds up like T and noise like √T, so the run's ratio is √T times a step's.

Zeroth-order steps have the same ratio: K slopes of norm at most C are those of a gradient of norm C/√K, and the noise
of std·C on each moves the model by std·C·√d/√K, so K cancels. Their random directions scatter besides: `zeroth_order`.

Measured on the digits benchmark (BENCHMARKS.md): a run's ratio below 0.5 stays near chance, 1 to 2 gives half
of what is possible, above 4 costs a few points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sordino.core.errors import PrivacyError
from sordino.core.types import NoiseAt, Unit
from sordino.experiment import accounts as paying
from sordino.experiment import zeroth_order
from sordino.experiment.config import Experiment
from sordino.experiment.people import contributors
from sordino.experiment.population import Population
from sordino.privacy.forecast import signal_to_noise
from sordino.privacy.weights import noise_aware

HOPELESS = 0.5
"""Below this ratio a run cannot be told from noise; the planner refuses it."""

WEAK = 2.0
"""Below this ratio expect to lose much of the accuracy; the planner says so."""


@dataclass(frozen=True)
class Forecast:
    """The run's outlook.

    Args:
        step: Signal over noise of one averaged step; inf without noise.
        run: The same over the whole run.
        steps: Noised steps of the run.
        noise_multiplier: The largest of the accounts'.
        search: Signal of the whole run over the scatter of random directions; inf where gradients are known.
    """

    step: float
    run: float
    steps: int
    noise_multiplier: float = 0.0
    search: float = math.inf

    @property
    def verdict(self) -> str:
        """One word for people. Scatter alone makes no run hopeless: it shrinks with the signal, and noise does not."""
        if self.run < HOPELESS:
            return "hopeless"
        return "weak" if self.run < WEAK or self.search < 1 else "good"  # below 1: fewer directions than parameters

    def refuse_if_hopeless(self, experiment: Experiment, epsilon_at: Callable[[float], float]) -> None:
        """Stop a plan that would spend privacy for nothing, naming the nearest one that can learn.

        Args:
            experiment: The plan's experiment.
            epsilon_at: What the run would cost at another noise multiplier.

        Raises:
            PrivacyError: The run's ratio is below `HOPELESS`.
        """
        if self.run >= HOPELESS:
            return
        factor = HOPELESS / self.run
        raise PrivacyError.about(
            "plan",
            f"drowns in its noise: signal-to-noise over the run is {self.run:.2g}, "
            f"and {HOPELESS} is the least that learns",
            f"the nearest plans that can: epsilon={epsilon_at(self.noise_multiplier / factor):.3g}, "
            f"or {factor:.3g} times as many contributors, or a model with {factor**2:.3g} times fewer parameters"
            + ("; with few silos, protect records: unit = 'record'" if experiment.privacy.unit is Unit.CLIENT else ""),
            epsilon=experiment.privacy.epsilon,
        )


def forecast(
    experiment: Experiment, population: Population, multipliers: Sequence[float], parameters: int
) -> tuple[tuple[float, ...], Forecast]:
    """Public weights of the clients, and the outlook.

    Args:
        experiment: With rounds and rate known.
        population: For the public sizes.
        multipliers: Noise multiplier per account; empty without privacy.
        parameters: Length d of the flat vector.

    Returns:
        Weights that sum to 1 over all clients, and the forecast.
    """
    n = len(population)
    inside = experiment.privacy.unit is not Unit.CLIENT
    sizes = [float(contributors(experiment, population, i)) for i in range(n)] if inside else [1.0] * n
    stds = _noise_stds(experiment, sizes, multipliers)
    zeroth = experiment.local.method == "zeroth_order"
    weights = _weights(experiment, population, sizes, stds, experiment.local.directions if zeroth else parameters)
    share = paying.sampler_of(experiment).expected(n) / n
    if not multipliers:
        return weights, Forecast(math.inf, math.inf, experiment.count)
    std = _step_std(experiment, sizes, stds, weights, share)
    each = experiment.local.steps if experiment.privacy.unit is not Unit.CLIENT else 1
    steps = experiment.count * each
    step, run = (
        signal_to_noise(clip=1.0, noise_multiplier=std, dimension=parameters, expected=1.0, releases=n)
        for n in (1, steps)
    )
    search = zeroth_order.search(experiment.local.directions, parameters, steps) if zeroth else math.inf
    return weights, Forecast(step, run, steps, noise_multiplier=max(multipliers), search=search)


def _noise_stds(experiment: Experiment, sizes: list[float], multipliers: Sequence[float]) -> list[float]:
    """Per client: noise on its mean gradient or update, in units of the clip norm."""
    if not multipliers:
        return [0.0] * len(sizes)
    per_client = list(multipliers) if len(multipliers) == len(sizes) else [multipliers[0]] * len(sizes)
    if experiment.privacy.unit is Unit.CLIENT:
        return per_client
    return [z / (size * experiment.local.rate) for z, size in zip(per_client, sizes, strict=True)]


def _weights(
    experiment: Experiment, population: Population, sizes: list[float], stds: list[float], dimension: int
) -> tuple[float, ...]:
    if experiment.privacy.unit is Unit.CLIENT or experiment.weights == "uniform":
        return tuple([1.0 / len(sizes)] * len(sizes))
    if experiment.weights == "noise_aware" and any(stds):
        # A clipped gradient varies by at most its clip norm: a public bound on the spread.
        return tuple(float(w) for w in noise_aware(stds, dimension, sizes, 1.0))
    public = [size + population.surplus(i) for i, size in enumerate(population.train.sizes)]
    counts = public if experiment.privacy.non_private else sizes
    return tuple(float(c) / float(sum(counts)) for c in counts)


def _step_std(
    experiment: Experiment, sizes: list[float], stds: list[float], weights: tuple[float, ...], share: float
) -> float:
    """Noise per coordinate of one averaged step, in units of the clip norm."""
    if experiment.privacy.noise_at is NoiseAt.COORDINATOR:
        return stds[0] / (share * len(sizes))
    if experiment.privacy.noise_at is NoiseAt.SUM:
        summed = share * sum(sizes) * experiment.local.rate
        return stds[0] * sizes[0] * experiment.local.rate / summed
    total = sum((w * s) ** 2 for w, s in zip(weights, stds, strict=True))
    return math.sqrt(total * share) / share
