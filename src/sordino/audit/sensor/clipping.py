"""How far does one canary move a released sum? Pure functions of a run with little noise.

`Quiet` takes a run apart: who joined, and how long each contribution was. Everything is over the declared bound, so a
contribution is at most the canary's share of it, which is 1 unless public groups differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.audit.sensor.report import Measured
from sordino.audit.sensor.world import Declared, Floats, World

SLACK = 1e-4
"""Of a contribution: what float32 models and sums lose, seen through T steps."""

JOINED = 0.15
"""A canary that counts more than this has joined: noise never does, at the quiet multiplier (10⁻¹³ a number)."""


@dataclass(frozen=True, eq=False)
class Quiet:
    """A run with little noise.

    Args:
        values: At the canaries' rows, over each canary's share. Shape (T, L, n).
        std: Noise of each canary's values, shape (n,).
        joined: Who joined which step, shape (T, n).
        loud: Canaries that must have been clipped, shape (n,).
        heavy: The noise is Laplace's, with heavier tails than the normal law.
    """

    values: Floats
    std: Floats
    joined: NDArray[np.bool_]
    loud: NDArray[np.bool_]
    heavy: bool = False

    @classmethod
    def of(cls, iterates: Floats, world: World, declared: Declared, noise_multiplier: float) -> Quiet:
        """Take iterates apart."""
        share = declared.share(world.canaries)
        values = iterates[:, :, world.canary_rows] / share
        std = declared.std(noise_multiplier) / share
        joined = values.sum(1) / values.shape[1] ** 0.5 > JOINED
        return cls(values, std, joined, world.loud, declared.noise == "laplace")

    def without(self, first: int) -> Quiet:
        """The run without its first canaries."""
        return replace(
            self,
            values=self.values[:, :, first:],
            std=self.std[first:],
            joined=self.joined[:, first:],
            loud=self.loud[first:],
        )

    @property
    def lengths(self) -> Floats:
        """Contributions along the direction in which all groups count alike. Shape (T, n)."""
        return np.asarray(self.values.sum(1) / self.values.shape[1] ** 0.5)

    def long(self, vectors: Floats, axis: int) -> Floats:
        """Lengths in the norm that the clip bounds: of vectors over groups, which lie along an axis."""
        return np.asarray(np.linalg.norm(vectors, ord=1 if self.heavy else 2, axis=axis))

    def too_long(self, lengths: Floats, std: Floats) -> Floats:
        """p-values of "longer than the bound" of vectors over groups, given their lengths.

        A contribution c with its noise n is at most |c| + |n| long. For normal noise |n|² over its variance is χ²; of
        Laplace noise the sum of absolute values is Γ.
        """
        beyond = np.maximum(lengths - (1 + SLACK), 0.0) / std
        groups = self.values.shape[1]
        return np.asarray(
            stats.gamma.sf(beyond * 2**0.5, groups) if self.heavy else stats.chi2.sf(np.square(beyond), groups)
        )

    def at_scale(self, total: Floats | float, free: NDArray[np.int64] | int) -> Floats:
        """A sum of `free` squares as χ² has it: squares of Laplace draws vary √2.5 times as much."""
        return np.asarray(free + (total - np.asarray(free)) / (2.5**0.5 if self.heavy else 1.0))

    def too_much(self, total: float, free: int, draws: int) -> float:
        """p-value of "more than noise" of a sum of `free` squares, each of so many releases' mean over its own std.

        Far out, a sum of Laplace's squares is as large as its largest one, beside what the others hardly exceed: their
        mean and two standard deviations, which are √5 each at most.
        """
        p = float(stats.chi2.sf(self.at_scale(total, free), free))
        if not self.heavy:
            return p
        others = (free - 1) + 2 * math.sqrt(5 * (free - 1))
        single = math.sqrt(max(0.0, total - others))
        return min(1.0, p + free * _laplace_tail(single, draws * self.values.shape[1]))


def bound(quiet: Quiet) -> Iterator[Measured]:
    """No contribution exceeds the bound: no single one, no canary's mean, and not the mean of all."""
    if not quiet.joined.any():
        yield Measured("clip bound", 0.0, "no canary ever contributes, so nothing can be said of the clip")
        return
    lengths, counts = quiet.long(quiet.values, 1), quiet.joined.sum(0)
    single = quiet.too_long(np.where(quiet.joined, lengths, 0.0), quiet.std[None])
    most = float(lengths[quiet.joined].max())
    yield Measured("clip bound", min(1.0, float(single.min()) * single.size), f"{most:.4f} of the bound at most")
    # Also where nobody was seen to join: a record that always counts a little shows over time.
    means = np.where(quiet.joined[:, None], quiet.values, 0).sum(0) / np.maximum(counts, 1)
    of_means = quiet.long(means, 0)
    own = quiet.too_long(of_means, quiet.std / np.sqrt(np.maximum(counts, 1)))
    own = np.where(counts > 0, own, 1.0)
    says = f"a canary counts {float(of_means.max()):.4f} of the bound"
    yield Measured("clip bound", min(1.0, float(own.min()) * own.size), says)
    of_loud = quiet.joined & quiet.loud
    n = int(of_loud.sum())
    if n:
        whole = quiet.values.transpose(0, 2, 1)[of_loud].mean(0)
        std = float(np.sqrt(np.square(np.broadcast_to(quiet.std, of_loud.shape)[of_loud]).mean() / n))
        length = float(quiet.long(whole, 0))
        p = float(quiet.too_long(np.array(length), np.array(std)))
        note = f"contributions are only {length:.3f} of the bound" if length < 0.97 else ""
        yield Measured("clip bound", p, f"{length:.4f} of the bound on average", note)


def equal_weights(quiet: Quiet) -> Iterator[Measured]:
    """Canaries that are too long all count alike, and each alike whenever it joins."""
    joined = quiet.joined & quiet.loud
    lengths, counts = quiet.lengths, joined.sum(0)
    means = np.where(joined, lengths, 0).sum(0) / np.maximum(counts, 1)
    weight = np.where(counts > 0, counts / np.square(quiet.std), 0.0)
    if (counts > 0).sum() < 2:
        return
    centre = (weight * means).sum() / weight.sum()
    between = float((weight * np.square(means - centre)).sum() / _slack(quiet, int(counts.max())))
    n = int((counts > 0).sum()) - 1
    spread = float(np.std(means[counts > 0]))
    p = quiet.too_much(between, n, int(counts[counts > 0].min()))
    yield Measured("equal weights", p, f"canaries' weights differ by {spread:.4f}")
    within = np.where(joined, np.square((lengths - means) / quiet.std), 0).sum()
    free = int(joined.sum()) - int((counts > 0).sum())
    if free > 0:
        ratio = float(within) / free
        p = quiet.too_much(float(within) / _slack(quiet, 1), free, 1)
        yield Measured("equal weights", p, f"a canary's weight varies {ratio:.2f} times as noise lets it")


def denominators(quiet: Quiet) -> Iterator[Measured]:
    """What a contribution counts does not depend on how many others there are: the divisor is public."""
    joined = quiet.joined & quiet.loud
    counts = joined.sum(1)
    if (counts > 0).sum() < 2:
        return
    std = float(np.sqrt(np.square(quiet.std).mean()))
    means = np.where(joined, quiet.lengths, 0).sum(1) / np.maximum(counts, 1)
    centre = (counts * means).sum() / counts.sum()
    total = float((counts * np.square(means - centre)).sum() / std**2 / _slack(quiet, int(counts.max())))
    seen = means[counts > 0]
    says = f"a contribution counts from {seen.min():.4f} to {seen.max():.4f}, step by step"
    free = int((counts > 0).sum()) - 1
    yield Measured("denominators", quiet.too_much(total, free, int(counts[counts > 0].min())), says)


def noise_beside(quiet: Quiet) -> Iterator[Measured]:
    """The rows that have a canary are noised as well: what is left when each one's mean is taken off."""
    total, free = np.zeros(quiet.values.shape[1:]), np.zeros(quiet.values.shape[2], np.int64)
    for who in (quiet.joined, ~quiet.joined):
        counts = who.sum(0)
        masked = np.where(who[:, None], quiet.values, 0.0)
        total += np.square(masked).sum(0) - np.square(masked.sum(0)) / np.maximum(counts, 1)
        free += np.maximum(counts - 1, 0)
    known = free > 0
    total = np.maximum(total[:, known], 0.0) / np.square(quiet.std[known])
    p = stats.chi2.cdf(quiet.at_scale(total, free[known]), free[known])
    if p.size:
        worst = float(np.sqrt((total / free[known]).min()))
        says = f"beside a canary {worst:.3f} of the declared noise"
        yield Measured("every coordinate noised", min(1.0, float(p.min()) * p.size), says)
        n = int(free[known].sum()) * len(total)
        found = math.sqrt(float(total.sum()) / n)
        yield Measured(
            "noise scale",
            float(stats.chi2.cdf(quiet.at_scale(float(total.sum()), n), n)),
            f"{found:.4f} beside canaries",
        )


def under_noise(iterates: Floats, world: World, declared: Declared, noise_multiplier: float) -> Measured:
    """With much noise, canaries count no more than with little: on average at most rate times share."""
    values = iterates[:, :, world.canary_rows]
    if not values.size:
        return Measured("clip bound", 1.0, "nobody is there")
    rate, share = declared.rate(world.canaries), declared.share(world.canaries)
    if declared.noise == "laplace":  # of a bounded sum of absolute values, this much lies along all groups alike
        share = share / values.shape[1] ** 0.5
    expected = float((rate * share).mean())
    variance = float((rate * (1 - rate) * share**2).mean()) + declared.std(noise_multiplier) ** 2
    lengths = values.sum(1) / values.shape[1] ** 0.5
    z = (float(lengths.mean()) - expected * (1 + SLACK)) / math.sqrt(variance / lengths.size)
    says = f"under noise canaries count {float(lengths.mean()) / expected:.3f} of what they may"
    return Measured("clip bound", float(stats.norm.sf(z)), says)


def all_checks(quiet: Quiet) -> Iterator[Measured]:
    """Every check of what one canary contributes."""
    yield from bound(quiet)
    yield from equal_weights(quiet)
    yield from denominators(quiet)
    yield from noise_beside(quiet)


def _laplace_tail(z: float, draws: int) -> float:
    """At most the chance that a sum of Laplace draws lies z of its standard deviations away, by Chernoff's bound.

    The moment generating function of n draws of scale 1 is (1 − s²)⁻ⁿ, and s = (√(n² + t²) − n)/t is best.
    """
    if z == 0:
        return 1.0
    t = z * math.sqrt(2 * draws)
    s = (math.hypot(draws, t) - draws) / t
    return min(1.0, 2 * math.exp(-s * t - draws * math.log1p(-s * s)))


def _slack(quiet: Quiet, count: int) -> float:
    """How much more than noise means of so many contributions may vary, because models are float32."""
    return 1 + count * (SLACK / float(quiet.std.min())) ** 2
