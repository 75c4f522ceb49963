"""A training problem in which every released number tells what was done: sensor rows.

        row   0        1        2        3        4     …   m-1
group 0     canary   nobody   canary   canary   nobody        each canary's gradient lies on its own row of every
group 1     canary   nobody   canary   canary   nobody        group; where nobody is, a released sum is noise alone
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.core.seeds import stream
from sordino.core.types import Adjacency

Floats: TypeAlias = NDArray[np.float64]

Sampling: TypeAlias = Literal["poisson", "truncated", "fixed", "all", "turns", "arrivals", "each alone"]
"""Who joins a step: independent coins; the same, cut at a cap; a set of fixed size; everybody; a public order; so
many, as they arrive; or every canary's release is a message of its own."""

ORDINARY = 0.9
"""Gain of a record that is not clipped: its gradient is a little shorter than the bound."""

ODD = (float("nan"), float("inf"), 1e308, -float("inf"), 1e30)
"""Gains of records that a sound clip bounds or counts as zero."""


@dataclass(frozen=True, eq=False)
class World:
    """Canaries on the rows of equal parameter groups.

    Args:
        rows: Rows m of each group.
        groups: Groups L.
        canary_rows: The row of each canary, shape (n,), all different. The other rows belong to nobody.
        gains: Length of each canary's gradient over the bound, shape (n,); a large one is 10 to 1,000 times too long.
    """

    rows: int
    groups: int
    canary_rows: NDArray[np.int64]
    gains: Floats

    @classmethod
    def made(cls, rows: int, groups: int, seed: int, canaries: int | None = None) -> Self:
        """A world from the audit's own seed.

        Args:
            rows: Rows of each group.
            groups: Parameter groups.
            seed: Which rows have canaries, and their gains; fixed before anything runs.
            canaries: How many; left out, a fair coin per row.
        """
        rng = stream(seed, "sensor world")
        chosen = np.flatnonzero(rng.random(rows) < 0.5) if canaries is None else rng.permutation(rows)[:canaries]
        # Lengths differ widely: a clip of anything but one record's own gradient then treats records unequally.
        gains = 10 ** rng.uniform(1, 3, chosen.size)
        gains[9::10] = ORDINARY
        return cls(rows, groups, np.sort(chosen), gains)

    def with_odd(self, odd: tuple[float, ...] = ODD) -> Self:
        """The same world, in which the first canaries' gradients are not finite or far too long."""
        gains = self.gains.copy()
        gains[: len(odd)] = odd[: gains.size]
        return replace(self, gains=gains)

    @property
    def canaries(self) -> int:
        """Number n of canaries."""
        return self.canary_rows.size

    @property
    def loud(self) -> NDArray[np.bool_]:
        """Canaries that must be clipped: all but the ordinary ones. Shape (n,)."""
        return ~(np.abs(self.gains) < 1)

    @property
    def nobody(self) -> NDArray[np.int64]:
        """Rows without a canary."""
        return np.setdiff1d(np.arange(self.rows), self.canary_rows)

    def lengths(self, clip: float) -> Floats:
        """Length of each canary's gradient, shape (n,): never so short that automatic clipping would show."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.gains * np.where(self.loud, max(clip, 10.0), clip))


@dataclass(frozen=True)
class Declared:
    """What a training or an aggregation says of itself: the null hypothesis of every check.

    Args:
        sampling: Who joins a step.
        rates: At which rate a canary joins; several where public groups differ: canary i has the (i mod k)-th.
        shares: Length over the bound that a canary may reach, likewise.
        noise: The law of the noise.
        adjacency: How neighbours differ. A declared multiplier is noise over how far a unit moves the sum: twice the
            bound where one is replaced.
        size: Contributors of a step, where their number is fixed; the most of them, where it is cut.
        costly: Each canary is a pass of its own through the model: the audit takes fewer.
    """

    sampling: Sampling = "poisson"
    rates: tuple[float, ...] = (0.2,)
    shares: tuple[float, ...] = (1.0,)
    noise: Literal["gaussian", "laplace", "skellam", "discrete_gaussian"] = "gaussian"
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    size: int | None = None
    costly: bool = False

    def rate(self, canaries: int) -> Floats:
        """Each canary's rate, shape (n,): what a fixed size or a cap makes of it, where there is one."""
        if self.size is not None and self.sampling in {"fixed", "turns", "arrivals"}:
            return np.full(canaries, self.size / canaries)
        rates = np.resize(np.asarray(self.rates, np.float64), canaries)
        if self.size is None or self.sampling != "truncated":
            return rates
        # E[min(X, cap)] = Σ_{k < cap} P(X > k), shared alike.
        expected = float(stats.binom.sf(np.arange(min(self.size, canaries)), canaries, rates[0]).sum())
        return np.full(canaries, expected / canaries)

    def share(self, canaries: int) -> Floats:
        """Each canary's share of the bound, shape (n,)."""
        return np.resize(np.asarray(self.shares, np.float64), canaries)

    def std(self, noise_multiplier: float) -> float:
        """The noise that a multiplier promises, over the bound."""
        spread = 2**0.5 if self.noise == "laplace" else 1.0
        return noise_multiplier * spread * (2.0 if self.adjacency is Adjacency.REPLACE_ONE else 1.0)


class Step(Protocol):
    """A DP-SGD step or a federated aggregation as a black box."""

    @property
    def declared(self) -> Declared:
        """What it says of itself."""
        ...

    def iterates(self, world: World, steps: int, noise_multiplier: float, seed: int) -> Floats:
        """What an observer computes from the released models.

        Args:
            world: The canaries. A step must not know that they are any.
            steps: Releases T.
            noise_multiplier: As it would be declared.
            seed: For whatever is random besides noise.

        Returns:
            Shape (T, L, m): the released sums, that is parameter changes times the expected contributors over minus
            the learning rate, divided by the bound declared for their step. A canary then counts at most 1 and
            noise has the std `declared.std(noise_multiplier)`.
        """
        ...

    def relatives(
        self, world: World, steps: int, noise_multiplier: float, seed: int
    ) -> dict[str, tuple[Floats, Floats]]:
        """Pairs of iterates whose noises must have nothing in common, by name.

        `silos`: of two silos of one run. `restart`: of a run, and of the steps that follow after it was stopped and
        started again from what it left. Empty where there is neither.
        """
        ...
