"""A small honest mechanism of somebody else, and twins of it that are broken in one way each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from sordino.audit.conformance import Declared, Refused
from sordino.audit.conformance.protocol import BUFFERS
from sordino.core.types import Adjacency
from sordino.privacy import accounting, events, gaussian

N = 10


@dataclass(frozen=True)
class Honest:
    """Clip by name in float64, sum, noise, divide by a public number."""

    name: str = "honest"
    z: float = 1.0
    clip: float = 1.0
    discloses: dict = field(default_factory=dict)

    def claim(self):
        return Declared(by=self.name, noise_multiplier=1.0, clip=self.clip, cohort=N, discloses=self.discloses)

    def generator(self, seed):
        return np.random.default_rng(seed)

    def parameters(self, tensors):
        return {name: value for name, value in tensors.items() if not name.endswith(BUFFERS)}

    def release(self, model, updates, weights, seed):
        model, updates = self.parameters(model), [self.parameters(update) for update in updates]
        for name, value in model.items():
            if np.asarray(value).dtype.kind != "f":
                raise Refused(f"{name} holds no real numbers")
        total = {name: np.zeros(np.shape(value)) for name, value in model.items()}
        for update, weight in zip(updates, weights, strict=True):
            for name, value in self.bounded(model, update, weight).items():
                total[name] = total[name] + value
        return self.noised(total, self.generator(seed), len(updates))

    def noised(self, total, rng, count):
        return {name: (value + rng.normal(0, self.z * self.clip, np.shape(value))) / N for name, value in total.items()}

    def bounded(self, model, update, weight):
        if {name: np.shape(v) for name, v in update.items()} != {name: np.shape(v) for name, v in model.items()}:
            raise Refused("another model")
        values = {name: np.asarray(update[name], np.float64) for name in model}
        if not all(np.isfinite(value).all() for value in values.values()):
            return {}
        largest = max(float(np.abs(value).max(initial=0)) for value in values.values())
        if largest == 0:
            return values
        norm = largest * math.sqrt(sum(float(np.sum((value / largest) ** 2)) for value in values.values()))
        return {name: value * min(1.0, self.clip / norm) for name, value in values.items()}


class HalfTheNoise(Honest):
    """C01"""

    def noised(self, total, rng, count):
        return super(HalfTheNoise, replace(self, z=0.5)).noised(total, rng, count)


class Weighted(Honest):
    """C02: weights after the clip."""

    def bounded(self, model, update, weight):
        return {name: weight * value for name, value in super().bounded(model, update, weight).items()}


class RealisedMean(Honest):
    """C03: the noise is for a mean over everybody, the mean is over who came."""

    def noised(self, total, rng, count):
        scaled = {name: value * N / count for name, value in total.items()}
        return super().noised(scaled, rng, count)


class NaNPasses(Honest):
    """C04"""

    def bounded(self, model, update, weight):
        values = {name: np.asarray(value, np.float64) for name, value in update.items()}
        norm = math.sqrt(sum(float(np.sum(value**2)) for value in values.values()))
        return {name: value * (self.clip / norm if norm > self.clip else 1.0) for name, value in values.items()}


class ZeroDivides(Honest):
    """C04: min(1, clip / norm) of an update of zeros."""

    def bounded(self, model, update, weight):
        norm = math.sqrt(sum(float(np.sum(np.asarray(value, np.float64) ** 2)) for value in update.values()))
        _ = self.clip / norm
        return super().bounded(model, update, weight)


class WaitsForNaN(Honest):
    """C04: repeats until the norm is small enough, which NaN never is."""

    def bounded(self, model, update, weight):
        while any(np.isnan(value).any() for value in map(np.asarray, update.values()) if value.dtype.kind == "f"):
            continue
        return super().bounded(model, update, weight)


class ScalarsEscape(Honest):
    """C05: what has no dimension is left as it is."""

    def bounded(self, model, update, weight):
        values = super().bounded(model, update, weight)
        return {name: np.asarray(update[name], float) if v.ndim == 0 else v for name, v in values.items()}


class ByPosition(Honest):
    """C05: tensors are paired in the order in which they came."""

    def bounded(self, model, update, weight):
        return super().bounded(model, dict(zip(model, update.values(), strict=False)), weight)


class OneBare(Honest):
    """C06: the last tensor is not noised."""

    def noised(self, total, rng, count):
        released = super().noised(total, rng, count)
        last = list(total)[-1]
        return {**released, last: total[last] / N}


class TellsTheLoss(Honest):
    """C06: a number beside the update."""

    def wire(self, model, updates, seed):
        return {"loss": float(sum(np.abs(value).sum() for value in updates[-1].values()))}


class Uniform(Honest):
    """C07: the right scale, another law."""

    def noised(self, total, rng, count):
        half = self.clip * 3**0.5
        return {name: (value + rng.uniform(-half, half, np.shape(value))) / N for name, value in total.items()}


class DrawnOnce(Honest):
    """C07: one draw for all rounds of a series."""

    def series(self, model, updates, count, seed):
        return [self.release(model, updates, [1.0] * len(updates), seed)] * count


class Seedable(Honest):
    """C08: noise from the generator that everybody seeds."""

    def generator(self, seed):
        if seed is None:
            return np.random
        return super().generator(seed)


_ONE_START = np.random.default_rng(7)


class OneStart(Honest):
    """C08: a generator of its own, the same at every start of a process."""

    def generator(self, seed):
        return _ONE_START if seed is None else super().generator(seed)


class OnGrid(Honest):
    """C18: sum and noise are multiples of one step; the honest one's are not."""

    def noised(self, total, rng, count):
        step = 2.0**-30
        parts = {name: (value, rng.normal(0, self.z * self.clip, np.shape(value))) for name, value in total.items()}
        return {
            n: np.float32((np.rint(v / step) + np.rint(noise / step)) * step) / N for n, (v, noise) in parts.items()
        }


class OnlyNoiseOnGrid(Honest):
    """C18: the noise has no low bits, the sum has all of them."""

    def noised(self, total, rng, count):
        step = 2.0**-30
        draw = {name: np.rint(rng.normal(0, self.clip, np.shape(value)) / step) * step for name, value in total.items()}
        return {name: np.float32(value + draw[name]) / N for name, value in total.items()}


class NoisesStatistics(Honest):
    """C19: all floats of a model are weights."""

    def parameters(self, tensors):
        return tensors


class HalfNorm(Honest):
    """C19: the norm is of the update's own type."""

    def bounded(self, model, update, weight):
        with np.errstate(over="ignore"):
            squares = [np.sum(np.square(value), dtype=value.dtype) for value in update.values()]
            norm = np.sqrt(np.sum(squares, dtype=squares[0].dtype))
        return {name: value * min(1.0, self.clip / float(norm)) for name, value in update.items()}


@dataclass(frozen=True)
class Follows(Honest):
    """A clip norm that follows; sound for `sign` 1, the norm before the step, and a count with noise.

    It refuses less than `least` units by an error.
    """

    sign: int = 1
    late: bool = False
    count_noise: float = 5.0
    lr: float = 0.2
    cohort: int = N
    least: int = 1

    def claim(self):
        joint = (self.z**-2 + (1 / self.count_noise) ** 2) ** -0.5 if self.count_noise else self.z
        return replace(super().claim(), noise_multiplier=joint, cohort=self.cohort)

    def with_cohort(self, count):
        return replace(self, cohort=count)

    def release(self, model, updates, weights, seed):
        if self.cohort < self.least:
            raise ValueError(f"{self.cohort} units are too few")
        if not self.late:
            return super().release(model, updates, weights, seed)
        clipped = super().release(model, updates, weights, seed)
        after = self.norms(model, updates, 1, seed or 0)[-1]
        quiet = super().release(model, [], [], seed)
        # The noise is drawn for the norm of the next round.
        return {name: clipped[name] + quiet[name] * (after / self.clip - 1) for name in clipped}

    def norms(self, model, updates, rounds, seed):
        rng, norms = np.random.default_rng(seed), [self.clip]
        for _ in range(rounds):
            kept = sum(float(np.sqrt(sum(np.sum(np.square(v)) for v in u.values()))) <= norms[-1] for u in updates)
            clipped = len(updates) - kept
            counted = (kept - clipped) / 2 if self.sign > 0 else (clipped - kept) / 2
            share = 0.5 + (counted + self.count_noise / 2 * rng.normal()) / N
            norms.append(norms[-1] * math.exp(-self.lr * (share - 0.5)))
        return norms


@dataclass(frozen=True)
class Calibrated(Honest):
    """One client's own noise, from ε and δ."""

    epsilon: float = 1.0
    delta: float = 1e-5
    classic: bool = False

    def claim(self):
        exact = gaussian.sigma_exact(self.epsilon, self.delta) if self.epsilon * self.delta > 0 else None
        return Declared(by=self.name, noise_multiplier=exact, clip=1.0, cohort=1, adjacency=Adjacency.REPLACE_ONE)

    def with_budget(self, epsilon, delta):
        if not self.classic:
            gaussian.sigma_exact(epsilon, delta)
            if epsilon <= 0:
                raise Refused("no budget")
        return replace(self, epsilon=epsilon, delta=delta)

    def noised(self, total, rng, count):
        if self.classic:
            std = math.sqrt(2 * math.log(1.25 / self.delta)) / (self.epsilon or 1e-9)
        else:
            std = 2 * gaussian.sigma_exact(self.epsilon, self.delta)
        return {name: value + rng.normal(0, std, np.shape(value)) for name, value in total.items()}


@dataclass(frozen=True)
class Accountant(Honest):
    """Prices by a sound accountant; `share` of it, or forgetful, or a step late."""

    share: float = 1.0
    forgets: bool = False
    late: bool = False
    careless: bool = False
    last_round: bool = False

    def price(self, noise_multiplier, rate, steps, delta):
        if self.careless and not (0 < rate <= 1):
            return 1.0
        event = events.gaussian(noise_multiplier)
        event = event if rate == 1 else events.poisson(rate, event)
        return self.share * accounting.best_epsilon([(event, steps)], delta, adjacency=Adjacency.ADD_REMOVE).epsilon

    def restored(self, noise_multiplier, before, after, delta):
        return self.price(noise_multiplier, 1.0, after + (0 if self.forgets else before), delta)

    def spent_by(self, folder, noise_multiplier, releases, delta):
        kept = folder / "spent"
        before = int(kept.read_text()) if kept.exists() and not self.forgets else 0
        kept.write_text(str(before + releases))
        return self.price(noise_multiplier, 1.0, before + releases, delta)

    def over_rounds(self, noise_multiplier, rate, rounds, steps, delta):
        return self.price(noise_multiplier, rate, steps if self.last_round else rounds * steps, delta)

    def releases_within(self, noise_multiplier, epsilon, delta, most):
        fits = [n for n in range(1, most) if self.price(noise_multiplier, 1.0, n, delta) <= epsilon]
        return max(fits) + self.late


@dataclass(frozen=True)
class Trainer(Honest):
    """DP-SGD on constant gradients; Poisson, or shuffled; `real` noise over the declared."""

    shuffled: bool = False
    real: float = 1.0
    bounded_: bool = True

    def claim(self):
        return replace(super().claim(), rate=0.1, sampling="poisson")

    def train(self, updates, steps, noise_multiplier, seed):
        rng = np.random.default_rng(seed)
        rows = np.asarray(updates, np.float64)
        if self.bounded_:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / self.clip, 1.0)
        seen = []
        for t in range(steps):
            if self.shuffled:
                if t % 10 == 0:
                    order = rng.permutation(len(rows))
                joined = np.isin(np.arange(len(rows)), order[t % 10 :: 10])
            else:
                joined = rng.random(len(rows)) < 0.1
            seen.append(rows[joined].sum(0) + self.real * noise_multiplier * self.clip * rng.normal(size=rows.shape[1]))
        return np.array(seen)


@dataclass(frozen=True)
class SecureSum(Honest):
    """A secure sum; `lossy` forgets whoever comes first; masks from the whole key or its folded words."""

    lossy: bool = False
    folded: bool = False

    def secure_sum(self, updates, missing, seed):
        there = [update for i, update in enumerate(updates) if i not in missing]
        return np.sum(there[1:] if self.lossy else there, axis=0, dtype=np.float64)

    def mask(self, key, size):
        words = np.frombuffer(key, np.uint32)
        seed = int(np.bitwise_xor.reduce(words)) if self.folded else [int(word) for word in words]
        return np.random.default_rng(seed).integers(1 << 32, size=size)


def noiseless():
    """C14: a release of the update itself."""
    return replace(Honest("noiseless"), z=0.0)


def targets():
    """An honest one and a broken one, for the command line and the plugin."""
    return [Honest(), HalfTheNoise("half the noise")]


def one_start():
    """One whose restarts repeat."""
    return OneStart("one start")


def honest():
    """One target alone."""
    return Honest()
