"""How the settings of `examples/heart.toml` were chosen: on synthetic patients, so that the real ones paid nothing.

    python benchmarks/heart_recipe.py --truths 80 --json

A truth says what makes people ill and how four hospitals differ in case mix, base rate and missing values: all of it
random. Its patients come in the public columns of the heart data and are trained on as in the example. A score is the
mean of the pooled AUC and the hospitals' own. All settings see the same patients and noise: differences are paired.

The recipe lies on a plateau: no changed setting is better by more than about 0.001. The study says which ones to
stay away from.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import rankdata

from sordino.core.seeds import stream
from sordino.data.datasets.heart import ALWAYS_KNOWN, CATEGORIES, FLAGS, RANGES, YES_NO_WEIGHT
from sordino.data.encoding import Block, categorical, joined, measured
from sordino.federation.averaging import TailAverage
from sordino.privacy import gaussian

Array: TypeAlias = NDArray[Any]

EPSILONS, DELTA = (8.0, 4.0, 2.0, 1.0), 1e-5
DRAWS = 3  # of the noise, for every truth and epsilon
SIZES = np.array([242, 235, 99, 160])  # four fifths of each hospital's public number of patients
HOSPITAL = np.repeat(np.arange(4), SIZES)
TRAITS = (*RANGES, "sex=Male", *FLAGS, *CATEGORIES)
NEVER_MISSING = (*ALWAYS_KNOWN, "sex=Male")


@dataclass(frozen=True)
class Setting:
    """What the example's author is free to choose; the defaults are the recipe."""

    columns: float = YES_NO_WEIGHT  # what columns that are no measurements are multiplied by
    constant: float = 1.0  # input of the intercept; fixed at 1 by the model
    rounds: int = 50
    clip: float = 0.3
    noise_walk: float = 0.9
    momentum: float = 0.0  # share of the last step's direction that the server keeps
    average: float = 0.4  # share of the last rounds whose models are averaged
    weights: float = 1.0  # a hospital counts by its size to this power: 1 is "size", 0 is "equal"


CHANGES: Mapping[str, Sequence[float]] = {
    "columns": (1.0, 0.7, 0.35),
    "constant": (0.5,),
    "rounds": (20, 30, 100),
    "clip": (0.1, 0.2, 0.5, 0.8, 1.2),
    "noise_walk": (0.3, 0.6, 1.2, 1.6, 2.5),
    "momentum": (0.5, 0.8, 0.9),
    "average": (0.1, 0.2, 0.6, 0.8),
    "weights": (0.0, 1.5, 2.0),
}


class Patients(NamedTuple):
    """Of one truth, hospital by hospital, or of several, stacked along a first axis."""

    names: tuple[str, ...]
    x: Array  # (736, 30): 29 features and a constant
    ill: Array  # (736,)


class Truth:
    """Thirteen normal traits, one behind each public column; what they do to people, and how hospitals differ."""

    def __init__(self, rng: np.random.Generator) -> None:
        k = len(TRAITS)
        sign = rng.choice([-1.0, 1.0], k)
        severity = sign * rng.uniform(0.1, 0.7, k)
        self.loadings = np.stack([severity, *rng.normal(0, 0.35, (2, k))])
        self.own = np.sqrt(np.maximum(1 - (self.loadings**2).sum(0), 0.2))
        effect = 2 * sign * rng.normal(0.5, 0.7, k) * rng.uniform(0.25, 0.6)
        self.effect = effect + rng.normal(0, 0.1, (4, k))
        self.mix = rng.normal(0, 0.3, (4, k))
        rate = rng.uniform(0.3, 0.93, 4)
        variance = np.square(self.loadings @ effect).sum() + np.square(self.own * effect).sum()
        # A logistic with a normal logit has about the mean of one with its logit shrunk by √(1 + variance / 1.7²).
        self.bias = np.log(rate / (1 - rate)) * np.sqrt(1 + variance / 1.7**2)
        kind = rng.choice(3, (4, k), p=[0.65, 0.175, 0.175])  # values are missing hardly, at times, or mostly
        share = rng.uniform(np.choose(kind, [0, 0, 0.5]), np.choose(kind, [0.03, 0.4, 1]))
        self.missing = np.where([name in NEVER_MISSING for name in TRAITS], 0, share)
        self.centre, self.spread = rng.normal(0, 0.25, k), rng.uniform(0.25, 0.45, k)
        self.cuts = {name: np.sort(rng.normal(0, 0.8, len(known) - 1)) for name, known in CATEGORIES.items()}
        # A category's place in the list need not go with severity.
        self.order = {name: rng.permutation(c) if rng.random() < 0.5 else c for name, c in CATEGORIES.items()}

    def patients(self, rng: np.random.Generator) -> Patients:
        """One table, in the columns of the heart data."""
        shape = len(HOSPITAL), len(TRAITS)
        traits = rng.standard_normal((shape[0], 3)) @ self.loadings + rng.standard_normal(shape) * self.own
        logit = (traits * self.effect[HOSPITAL]).sum(1) + self.bias[HOSPITAL]
        ill = rng.random(shape[0]) < expit(logit)
        traits += self.mix[HOSPITAL]
        missing = rng.random(shape) < self.missing[HOSPITAL]
        blocks = [self._block(j, traits[:, j], missing[:, j]) for j in range(shape[1])]
        return Patients(*joined([*blocks, (("constant",), np.ones((shape[0], 1), np.float32))]), ill)

    def _block(self, j: int, trait: Array, missing: Array) -> Block:
        name = TRAITS[j]
        if name in CATEGORIES:
            values = np.take(self.order[name], np.searchsorted(self.cuts[name], trait))
            return categorical("heart_recipe", name, np.where(missing, None, values).tolist(), CATEGORIES[name])
        if name in RANGES:
            low, high = RANGES[name]
            values = low + (high - low) * (1 + self.centre[j] + self.spread[j] * trait) / 2
        else:
            values = np.where(trait > 2 * self.centre[j], 1.0, -1.0)
        return measured(name, np.where(missing, np.nan, values), RANGES.get(name), indicator=name not in NEVER_MISSING)


def tables(truths: int, seed: int) -> list[Patients]:
    """Patients to train on and as many to judge by."""
    halves: tuple[list[Patients], list[Patients]] = [], []
    for i in range(truths):
        rng = stream(seed, "heart_recipe.truth", i)
        truth = Truth(rng)
        for half in halves:
            half.append(truth.patients(rng))
    return [Patients(h[0].names, np.stack([p.x for p in h]), np.stack([p.ill for p in h])) for h in halves]


def weighted(data: Patients, setting: Setting) -> Patients:
    """The patients with the columns that are no measurements made smaller."""
    factors = {"constant": setting.constant} | dict.fromkeys(RANGES, 1.0)
    return data._replace(x=data.x * np.array([factors.get(name, setting.columns) for name in data.names], np.float32))


def trained(data: Patients, setting: Setting, seed: int) -> Array:
    """The models, shape (truths, 30, 4 · DRAWS): every round each hospital releases its noised sum of gradients."""
    mu = np.repeat([gaussian.mu_of(epsilon, DELTA) for epsilon in EPSILONS], DRAWS)
    sigma = (setting.clip * math.sqrt(setting.rounds) / mu).astype(np.float32)
    share = SIZES**setting.weights / (SIZES**setting.weights).sum()
    per_patient = (share / SIZES).astype(np.float32)
    rate = setting.noise_walk / (sigma * math.sqrt(setting.rounds) * np.linalg.norm(per_patient))
    start = TailAverage(setting.average).start(setting.rounds)
    rng = stream(seed, "heart_recipe.noise")
    model = np.zeros((*data.x.shape[::2], len(mu)), np.float32)
    direction, average = np.zeros_like(model), np.zeros_like(model)
    for number in range(setting.rounds):
        step = np.zeros_like(model)
        for weight, total in zip(per_patient, _sums(data, model, setting.clip), strict=True):
            step += weight * (total + sigma * rng.standard_normal(model.shape, np.float32))
        direction = setting.momentum * direction + (1 - setting.momentum) * step
        model = model - rate * direction
        if number >= start:
            average += model / (setting.rounds - start)
    return average


def _sums(data: Patients, model: Array, clip: float) -> Iterator[Array]:
    """Each hospital's sum of logistic gradients, none longer than `clip`."""
    ends = np.cumsum(SIZES)[:-1]
    for x, ill in zip(np.split(data.x, ends, axis=1), np.split(data.ill, ends, axis=1), strict=True):
        residual = expit(x @ model) - ill[..., None]
        norm = np.abs(residual) * np.linalg.norm(x, axis=2, keepdims=True)
        yield x.transpose(0, 2, 1) @ (residual * np.minimum(1, clip / (norm + 1e-9)))


def auc(ill: Array, score: Array) -> Array:
    """Probability that an ill patient scores above a healthy one, for every column; NaN if all are alike."""
    count = ill.sum()
    above = rankdata(score, axis=0)[ill].sum(0) - count * (count + 1) / 2
    return above / (count * (len(ill) - count)) if 0 < count < len(ill) else np.full(score.shape[1], np.nan)


def scores(data: Patients, models: Array) -> Array:
    """Mean of the pooled AUC and the hospitals' own, shape (truths, 4)."""
    result = []
    for ill, score in zip(data.ill, data.x @ models, strict=True):
        within = [auc(ill[own], score[own]) for own in np.arange(4)[:, None] == HOSPITAL]
        result.append((auc(ill, score) + np.nanmean(within, axis=0)) / 2)
    return np.reshape(result, (len(result), len(EPSILONS), DRAWS)).mean(2)


def study(truths: int, seed: int, changes: Mapping[str, Sequence[float]] = CHANGES) -> Iterator[dict[str, Any]]:
    """A row for the recipe, then one for each changed setting with its difference from the recipe."""
    train, test = tables(truths, seed)
    changed = [(name, value) for name, values in changes.items() for value in values]
    settings = {f"{name} {value:g}": replace(Setting(), **{name: value}) for name, value in changed}
    recipe: Array | None = None
    for name, setting in ({"recipe": Setting()} | settings).items():
        score = scores(weighted(test, setting), trained(weighted(train, setting), setting, seed))
        recipe = score if recipe is None else recipe
        auc_at = {f"{epsilon:g}": float(mean) for epsilon, mean in zip(EPSILONS, score.mean(0), strict=True)}
        yield {"setting": name, "auc": auc_at, "mean": _summary(score), "difference": _summary(score - recipe)}


def _summary(score: Array) -> dict[str, float]:
    """Mean, and its standard error over the truths."""
    each = score.mean(1)
    return {"mean": float(each.mean()), "standard_error": float(each.std(ddof=1) / math.sqrt(len(each)))}


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truths", type=int, default=80, help="2 or more")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    start = time.process_time()
    rows = list(study(options.truths, options.seed))
    cpu_s = time.process_time() - start
    if options.json:
        result = {"task": "heart_recipe", "truths": options.truths, "seed": options.seed, "cpu_s": cpu_s, "rows": rows}
        print(json.dumps(result, indent=2))
        return
    print(f"{'AUC at epsilon':<16}{''.join(f'{epsilon:<8g}' for epsilon in EPSILONS)}mean    against the recipe")
    for row in rows:
        figures = "  ".join(f"{value:.4f}" for value in (*row["auc"].values(), row["mean"]["mean"]))
        difference = "{mean:+.4f} ± {standard_error:.4f}".format_map(row["difference"])
        print(f"{row['setting']:<16}{figures}  {difference}")
    level = rows[0]["mean"]["standard_error"]
    print(f"{options.truths} truths, seed {options.seed}, all rows together ± {level:.4f}; {cpu_s:.0f} s of CPU")


if __name__ == "__main__":
    main()
