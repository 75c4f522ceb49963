"""A DP-SGD in numpy that is right, and ways to break it: the mutants that a sensor audit must kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sordino.audit.sensor.world import Declared, World
from sordino.core.seeds import stream
from sordino.core.types import Adjacency

Array = np.ndarray[Any, Any]


def flat_clip(gradients: Array, rng: np.random.Generator) -> Array:
    """Gradients of a batch, shape (b, L), each at most 1 long. A record that is not finite counts as zero."""
    finite = np.isfinite(gradients).all(1)
    gradients = np.where(finite[:, None], gradients, 0.0)
    largest = np.abs(gradients).max(1, keepdims=True, initial=0)
    shape = gradients / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(shape, axis=1, keepdims=True)
    return shape * np.minimum(largest, 1 / np.maximum(norms, 1e-300))


def poisson(t: int, n: int, q: float, rng: np.random.Generator, seed: int) -> Array:
    """Multiplicities of a batch, shape (n,)."""
    return (rng.random(n) < q).astype(float)


def fresh(t: int, shape: tuple[int, int], rng: np.random.Generator, batch: float, z: float) -> Array:
    """Noise over its declared std."""
    return rng.normal(size=shape)


@dataclass(frozen=True)
class Reference:
    """Every part may be replaced by a broken one."""

    clip: Callable[[Array, np.random.Generator], Array] = flat_clip
    draw: Callable[..., Array] = poisson
    noise: Callable[..., Array] = fresh
    weigh: Callable[..., Array] = lambda contributions, rng, batch, expected: contributions
    rate: float = 0.2
    declared: Declared = field(default_factory=Declared)
    noise_factor: float = 1.0
    silos_share: bool = False
    restart_repeats: bool = False

    def iterates(self, world: World, steps: int, noise_multiplier: float, seed: int) -> Array:
        return self._run(world, steps, noise_multiplier, seed, "noise")

    def _run(self, world: World, steps: int, z: float, seed: int, stream_name: str) -> Array:
        coins, noise = stream(seed, "coins"), stream(seed, stream_name)
        gradients = np.repeat((world.gains / world.groups**0.5)[:, None], world.groups, 1)
        result, n = np.zeros((steps, world.groups, world.rows)), world.canaries
        for t in range(steps):
            times = self.draw(t, n, self.rate, coins, seed)
            here = np.flatnonzero(times)
            clipped = self.clip(gradients[here], noise) * times[here, None]
            clipped = self.weigh(clipped, coins, times.sum(), n * self.rate)
            std = z * self.noise_factor
            drawn = self.noise(t, result[t].shape, noise, times.sum(), std)
            result[t] = drawn * std
            result[t][:, world.canary_rows[here]] += clipped.T
            result[t] *= self.after(times.sum(), n * self.rate)
        return result

    def after(self, batch: float, expected: float) -> float:
        return 1.0

    def relatives(self, world: World, steps: int, noise_multiplier: float, seed: int) -> dict[str, tuple[Array, Array]]:
        first = self._run(world, steps, noise_multiplier, seed, "noise")
        silo = self._run(world, steps, noise_multiplier, seed, "noise" if self.silos_share else "silo")
        again = self._run(world, steps, noise_multiplier, seed, "noise" if self.restart_repeats else "restart")
        return {"silos": (first, silo), "restart": (first, again)}


@dataclass(frozen=True)
class Realised(Reference):
    """Divides by who came, noise and all."""

    def after(self, batch: float, expected: float) -> float:
        return expected / max(batch, 1.0)


def scaled(factor: float) -> Reference:
    return Reference(noise_factor=factor)


def noisy(noise: Callable[..., Array]) -> Reference:
    return Reference(noise=noise)


def clipping(clip: Callable[[Array, np.random.Generator], Array]) -> Reference:
    return Reference(clip=clip)


def drawing(draw: Callable[..., Array]) -> Reference:
    return Reference(draw=draw)


# noise


def frozen(t, shape, rng, batch, z):
    return stream(7, "frozen", int(z * 1e6)).normal(size=shape)


def period_two(t, shape, rng, batch, z):
    return stream(7, "period", t % 2, int(z * 1e6)).normal(size=shape)


def one_scalar(t, shape, rng, batch, z):
    return np.full(shape, rng.normal())


def same_in_all_layers(t, shape, rng, batch, z):
    return np.tile(rng.normal(size=shape[1]), (shape[0], 1))


def every_tenth_skipped(t, shape, rng, batch, z):
    return rng.normal(size=shape) * (t % 10 != 9)


def uniform(t, shape, rng, batch, z):
    return rng.uniform(-(3**0.5), 3**0.5, size=shape)


def truncated(t, shape, rng, batch, z):
    draws = rng.normal(size=(6, *shape))
    first = np.abs(draws) < 2
    return np.take_along_axis(draws, first.argmax(0)[None], 0)[0]


def coarse(t, shape, rng, batch, z):
    return np.round(rng.normal(size=shape) * 256) / 256


def auto_regressive(t, shape, rng, batch, z):
    before = stream(3, "ar", t, int(z * 1e6)).normal(size=shape)
    now = stream(3, "ar", t + 1, int(z * 1e6)).normal(size=shape)
    return 0.8**0.5 * now + 0.2**0.5 * before


def antithetic(t, shape, rng, batch, z):
    return stream(5, "anti", t // 2, int(z * 1e6)).normal(size=shape) * (-1) ** t


def half_of_the_coordinates(t, shape, rng, batch, z):
    return rng.normal(size=shape) * (np.arange(shape[1]) % 2)


def one_group_without(t, shape, rng, batch, z):
    return rng.normal(size=shape) * (np.arange(shape[0]) != shape[0] - 1)[:, None]


def dropped_on_small_batches(t, shape, rng, batch, z):
    return rng.normal(size=shape) * (batch > 2)


def tiled(t, shape, rng, batch, z):
    half = rng.normal(size=(shape[0], -(-shape[1] // 2)))
    return np.concatenate([half, half], 1)[:, : shape[1]]


def laplace(t, shape, rng, batch, z):
    return rng.laplace(scale=2**-0.5, size=shape)


def shrinking(t, shape, rng, batch, z):
    return rng.normal(size=shape) * 0.98**t


# clipping


def batch_clip(gradients, rng):
    """The batch's mean is clipped, then taken times the batch."""
    gradients = np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)
    mean = gradients.sum(0) / max(1, len(gradients))
    whole = np.linalg.norm(gradients) / max(1, len(gradients))
    return gradients * min(1.0, 1 / max(whole, 1e-300)) if mean.size else gradients


def sum_clip(gradients, rng):
    """The batch's sum is clipped as a whole."""
    gradients = np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)
    return gradients * min(1.0, 1 / max(np.linalg.norm(gradients), 1e-300))


def microbatch_clip(gradients, rng):
    """Four records share one clip."""
    parts = [sum_clip(gradients[i : i + 4], rng) for i in range(0, len(gradients), 4)]
    return np.concatenate(parts) if parts else gradients


def per_layer_clip(gradients, rng):
    """Every layer is clipped to the whole bound."""
    return np.clip(np.nan_to_num(gradients, nan=0, posinf=0, neginf=0), -1, 1)


def l_inf_clip(gradients, rng):
    return per_layer_clip(gradients, rng) * 0.9


def l1_clip(gradients, rng):
    """Shorter than need be: conservative."""
    clipped = flat_clip(gradients, rng)
    return clipped / np.maximum(1, np.abs(clipped).sum(1, keepdims=True))


def no_clip(gradients, rng):
    return np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)


def longer(factor: float):
    def clip(gradients, rng):
        norms = np.linalg.norm(flat_clip(gradients, rng), axis=1, keepdims=True)
        return flat_clip(gradients, rng) * np.where(norms > 0.999, factor, 1)

    return clip


def by_the_longest(gradients, rng):
    """All records are scaled by the longest one's factor."""
    gradients = np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)
    return gradients / max(1.0, np.linalg.norm(gradients, axis=1).max(initial=0))


def poisoned(gradients, rng):
    """A record that is not finite makes everything so."""
    clipped = flat_clip(gradients, rng)
    return clipped if np.isfinite(gradients).all() else clipped * np.nan


def batch_dropped(gradients, rng):
    """A record that is not finite drops its batch."""
    return flat_clip(gradients, rng) * np.isfinite(gradients).all()


def raises(gradients, rng):
    if not np.isfinite(gradients).all():
        raise FloatingPointError
    return flat_clip(gradients, rng)


def odd_unclipped(gradients, rng):
    """An overflowing norm is taken for a short one."""
    clipped = flat_clip(gradients, rng)
    big = (np.abs(gradients).max(1, initial=0) > 1e20) & np.isfinite(gradients).all(1)
    return np.where(big[:, None], gradients, clipped)


# sampling


def shuffled(t, n, q, rng, seed):
    per = max(1, round(1 / q))
    order = stream(seed, "epoch", t // per).permutation(n)
    return np.isin(np.arange(n), order[t % per :: per]).astype(float)


def fixed_size(t, n, q, rng, seed):
    return np.isin(np.arange(n), rng.permutation(n)[: round(n * q)]).astype(float)


def at_rate(factor: float):
    return lambda t, n, q, rng, seed: poisson(t, n, factor * q, rng, seed)


def cyclic(t, n, q, rng, seed):
    per = max(1, round(1 / q))
    return (np.arange(n) % per == t % per).astype(float)


def some_always(t, n, q, rng, seed):
    return np.maximum(poisson(t, n, q, rng, seed), np.arange(n) < 0.05 * n)


def duplicated(t, n, q, rng, seed):
    return poisson(t, n, q, rng, seed) * np.where(np.arange(n) % 20 == 0, 2, 1)


def in_company(t, n, q, rng, seed):
    """Records join two by two."""
    return np.repeat(rng.random(-(-n // 2)) < q, 2)[:n].astype(float)


def sticky(t, n, q, rng, seed):
    """Who joined is likely to join the next step too."""
    block = stream(seed, "sticky", t // 2).random(n)
    return (block < q).astype(float)


def random_weights(contributions, rng, batch, expected):
    return contributions * rng.uniform(0.5, 1.0, size=(len(contributions), 1))


def heavy_client(contributions, rng, batch, expected):
    """Weights after the clip: the first one who comes counts five times."""
    return contributions * np.where(np.arange(len(contributions)) == 0, 5.0, 1.0)[:, None]


def realised_denominator(contributions, rng, batch, expected):
    """The sum is divided by who came; the noise is not."""
    return contributions * expected / max(batch, 1.0)


def noise_before_clip(gradients, rng):
    return flat_clip(gradients + rng.normal(size=gradients.shape), rng)


NAMED: dict[str, Reference] = {
    "noise x0.5": scaled(0.5),
    "noise x0.97": scaled(0.97),
    "noise /sqrt(L)": scaled(2**-0.5),
    "noise frozen": noisy(frozen),
    "noise period 2": noisy(period_two),
    "noise one scalar": noisy(one_scalar),
    "noise same in all layers": noisy(same_in_all_layers),
    "noise skipped every 10th step": noisy(every_tenth_skipped),
    "noise uniform": noisy(uniform),
    "noise truncated at 2 sigma": noisy(truncated),
    "batch clip": clipping(batch_clip),
    "microbatch clip": clipping(microbatch_clip),
    "per-layer clip": clipping(per_layer_clip),
    "no clip": clipping(no_clip),
    "clip 1.1C": clipping(longer(1.1)),
    "clip L-inf": clipping(l_inf_clip),
    "shuffled": drawing(shuffled),
    "fixed size": drawing(fixed_size),
    "rate 1.2q": drawing(at_rate(1.2)),
    "rate 2q": drawing(at_rate(2.0)),
    "realised denominator": Realised(),
}
"""The first list of the design, all but σ² for σ, which needs the multiplier."""


@dataclass(frozen=True)
class Squared(Reference):
    def iterates(self, world, steps, noise_multiplier, seed):
        return super().iterates(world, steps, noise_multiplier**2, seed)


NAMED["noise sigma^2"] = Squared()

SECOND: dict[str, Reference] = {
    "coarse grid": noisy(coarse),
    "AR(1) noise": noisy(auto_regressive),
    "antithetic noise": noisy(antithetic),
    "half the coordinates un-noised": noisy(half_of_the_coordinates),
    "one group un-noised": noisy(one_group_without),
    "noise x0.985": scaled(0.985),
    "noise dropped on small batches": noisy(dropped_on_small_batches),
    "cyclic order": drawing(cyclic),
    "5 % always sampled": drawing(some_always),
    "duplicated records": drawing(duplicated),
    "random weights": Reference(weigh=random_weights),
    "noise before clipping": replace(clipping(noise_before_clip), noise_factor=1e-6),
}

NEW: dict[str, Reference] = {
    "seed reuse between silos": Reference(silos_share=True),
    "noise not re-drawn after a restart": Reference(restart_repeats=True),
    "wrong adjacency": Reference(declared=Declared(adjacency=Adjacency.REPLACE_ONE)),
    "clip before weight": Reference(weigh=heavy_client),
    "sum / realised, noise / expected": Reference(weigh=realised_denominator),
    "clip 2C": clipping(longer(2.0)),
    "the sum is clipped": clipping(sum_clip),
    "scaled by the longest": clipping(by_the_longest),
    "noise tiled over coordinates": noisy(tiled),
    "Laplace for Gaussian": noisy(laplace),
    "noise shrinks over time": noisy(shrinking),
    "not finite: poisons all": clipping(poisoned),
    "not finite: drops the batch": clipping(batch_dropped),
    "not finite: raises": clipping(raises),
    "overflow passes unclipped": clipping(odd_unclipped),
    "records join in pairs": drawing(in_company),
    "batches drawn for two steps": drawing(sticky),
}

CONSERVATIVE: dict[str, Reference] = {"L1 clipping": clipping(l1_clip), "noise x1.05": scaled(1.05)}
"""These protect more than declared, and must pass."""
