"""The membership game, and what its scores say: figures, intervals, curve and verdict of every attack on records.

K models are trained on random halves of a pool: every record is in by a fair coin of its own, in every model anew. The
first T models are the targets; the rest are references, whose coins the attacker threw.

A refutation is the one-run test of the whole curve (`claim_test`) on the T·N coins of the targets. It needs no
independence of scores: given the references, the T trainings together are one mechanism with T·N fair coins, each of
which moves one record of one training, and the scores use no coin of a target. The certified rates treat scores as
independent draws, and records of one model share its noise; so they are figures, and refute nothing.

Source: Carlini et al. (2022), arXiv:2112.03570: the game. Mahloujifar et al. (2024), arXiv:2410.22235: the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Progress, _causes
from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.promise import Promise
from sordino.audit.stats.ceiling import bounds, ceiling
from sordino.audit.stats.curve_test import claim_test
from sordino.audit.stats.one_run import best_bound
from sordino.audit.stats.proportions import auc, bootstrap
from sordino.audit.stats.roc import certified_tpr, roc_curve
from sordino.audit.subjects.records import Records
from sordino.core.seeds import stream
from sordino.privacy.renyi import Floats

RATES = (0.001, 0.01)
"""False positive rates that are reported."""

RESAMPLES = 300
"""For the intervals of figures."""

Coins = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Game:
    """K trained models, and how well each knows every record.

    Args:
        targets: T; the models after them are references.
        models: Shape (K, d).
        included: Who was in, shape (K, N).
        log_p: Log-probability of each record's label, shape (K, N).
        log_odds: The same, less the log-probability of all other labels, shape (K, N).
        outside: Log-probability of the label of records that nobody trained on, shape (K, Z).
    """

    targets: int
    models: NDArray[np.float32]
    included: Coins
    log_p: Floats
    log_odds: Floats
    outside: Floats

    @property
    def coins(self) -> Coins:
        """The targets' coins, shape (T, N): the secret."""
        return self.included[: self.targets]

    @property
    def known(self) -> Coins:
        """The references' coins, shape (K − T, N)."""
        return self.included[self.targets :]


def play(subject: Records, targets: int, references: int, progress: Progress) -> Game:
    """Throw the coins, train the models, and ask them about every record."""
    count = targets + references
    included = stream(subject.seed, "membership").random((count, len(subject.y))) < 0.5
    models = subject.train(included, subject.seed, progress)
    progress(f"scoring {len(subject.y)} records by {count} models")
    log_p, log_odds = of_label(subject.log_probabilities(models, subject.x), subject.y)
    x, y = subject.population
    outside = of_label(subject.log_probabilities(models, x), y)[0] if len(y) else np.empty((count, 0))
    return Game(targets, models, included, log_p, log_odds, outside)


def of_label(log_probabilities: Floats, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Each record's log p and log p − log (1 − p) of its label, where 1 − p is summed over the other classes.

    Args:
        log_probabilities: Shape (K, n, classes).
        y: Shape (n,).

    >>> log_p, odds = of_label(np.log([[[0.25, 0.75]]]), np.array([1]))
    >>> round(float(np.exp(log_p[0, 0])), 2), round(float(np.exp(odds[0, 0])), 2)
    (0.75, 3.0)
    """
    at = np.broadcast_to(y[None, :, None], (*log_probabilities.shape[:2], 1))
    own = np.take_along_axis(log_probabilities, at, axis=2)
    others = np.array(log_probabilities)
    np.put_along_axis(others, at, -np.inf, axis=2)
    odds = own[..., 0] - np.logaddexp.reduce(others, axis=2)
    return own[..., 0], odds


@dataclass(frozen=True)
class Words:
    """What is particular to an attack in its finding.

    Args:
        attack: Its registered name.
        how: Who does what, as the beginning of a sentence: "An attacker who …".
        does_not_show: What must not be concluded.
    """

    attack: str
    how: str
    does_not_show: str


def judged(
    words: Words,
    subject: Records,
    coins: Coins,
    scores: Floats,
    confidence: float,
    more: Mapping[str, Figure] | None = None,
) -> Finding:
    """The finding that scores give.

    Args:
        words: Of the attack.
        subject: What was attacked.
        coins: The targets' coins, shape (T, N).
        scores: High means member; computed without these coins. Shape (T, N).
        confidence: Of intervals and verdict.
        more: Figures of the attack itself.
    """
    promise, members, others = subject.promise, scores[coins], scores[~coins]
    figures = _figures(subject, coins, scores, confidence)
    fpr, tpr = roc_curve(members, others)
    curve = {"fpr": fpr.tolist(), "tpr": tpr.tolist()}
    verdict, bound = _verdict(promise, coins, scores, figures, confidence)
    if promise is not None:
        curve["ceiling"], most = _allowed(promise, fpr)
        figures |= most
    return Finding(
        attack=words.attack,
        grade=Grade.LEAKAGE,
        verdict=verdict,
        says=f"{words.how} {_result(promise, figures)} {_conclusion(promise, verdict, confidence)}"
        f"{_few(len(others), confidence)}",
        does_not_show=words.does_not_show,
        promise=promise,
        lower_bound=bound,
        confidence=confidence,
        figures=figures | dict(more or {}),
        curves={"roc": curve},
        causes=_causes.TRAINING if verdict is Verdict.REFUTED else (),
        local=not subject.public,
    )


def _figures(subject: Records, coins: Coins, scores: Floats, confidence: float) -> dict[str, Figure]:
    """Area and rates with intervals over records: a record's scores in several models are one draw."""
    rows = np.concatenate([scores.T, coins.T], axis=1)
    interval = partial(bootstrap, confidence=confidence, repeats=RESAMPLES, seed=subject.seed)
    figures = {"auc": interval(_split(auc), rows)}
    for rate in RATES:
        figures[f"tpr_at_fpr_{rate:g}"] = interval(_split(partial(tpr_at, rate=rate)), rows)
        sure = certified_tpr(scores[coins], scores[~coins], fpr=rate, confidence=confidence)
        if sure.certifiable:
            figures[f"tpr_at_fpr_{rate:g}_certified"] = Figure(sure.value, sure.low, sure.high)
    shuffled = stream(subject.seed, "permuted coins").permuted(coins, axis=1)
    figures["auc_of_permuted_coins"] = Figure(auc(scores[shuffled], scores[~shuffled]))
    if subject.flagged is not None and subject.flagged.any():
        figures["auc_of_flagged_records"] = interval(_split(auc), rows[subject.flagged])
    return figures


def _split(statistic: Callable[[Floats, Floats], float]) -> Callable[[Floats], float]:
    """A statistic of members and others, as one of records with their scores and coins side by side."""

    def of_rows(rows: Floats) -> float:
        scores, coins = np.split(rows, 2, axis=1)
        return statistic(scores[coins > 0], scores[coins == 0])

    return of_rows


def tpr_at(members: Floats, others: Floats, rate: float) -> float:
    """The share of members above the lowest threshold that at most `rate` of the others exceed.

    >>> tpr_at(np.array([3.0, 1.0]), np.array([0.0, 2.0]), 0.5), tpr_at(np.array([3.0, 1.0]), np.array([0.0, 2.0]), 0.1)
    (1.0, 0.5)
    """
    if len(members) == 0 or len(others) == 0:
        return 0.0
    place = len(others) - 1 - int(rate * len(others))
    return float(np.mean(members > np.partition(others, place)[place]))


def _allowed(promise: Promise, fpr: Floats) -> tuple[list[float], dict[str, Figure]]:
    """The ceiling over a curve, and that of the figures."""
    most = ceiling(promise, np.concatenate([fpr, RATES])).tolist()
    figures = {f"tpr_at_fpr_{rate:g}_allowed": Figure(one) for rate, one in zip(RATES, most[len(fpr) :], strict=True)}
    return most[: len(fpr)], {"auc_allowed": Figure(_bounds(promise).auc), **figures}


_bounds = lru_cache(maxsize=8)(bounds)  # several attacks look at one promise, and accountants take seconds


def _verdict(
    promise: Promise | None, coins: Coins, scores: Floats, figures: Mapping[str, Figure], confidence: float
) -> tuple[Verdict, float | None]:
    """What follows, and a lower bound on epsilon where the promise is refuted."""
    if promise is None:
        low = figures["auc"].low
        return (Verdict.LEAKS if low is not None and low > 0.5 else Verdict.HOLDS), None
    # Attacks tell members better than non-members, so one way of guessing names members only.
    flat, middle = scores.ravel(), float(np.median(scores))
    ways = {"members and others": flat, "members only": np.maximum(flat, middle)}
    if not claim_test(ways, coins.ravel(), promise, alpha=1 - confidence).rejected:
        return Verdict.HOLDS, None
    return Verdict.REFUTED, best_bound(ways, coins.ravel(), delta=promise.delta, confidence=confidence).epsilon


def _result(promise: Promise | None, figures: Mapping[str, Figure]) -> str:
    """What was measured, beside what is allowed."""
    found, rate = figures["auc"], figures["tpr_at_fpr_0.01"]
    result = f"finds {rate.value:.1%} of the members at 1 % false alarms"
    if promise is not None:
        result += f", where at most {figures['tpr_at_fpr_0.01_allowed'].value:.1%} are allowed"
    return f"{result}; the area under the curve is {found.value:.3f} (0.5 is chance)."


def _conclusion(promise: Promise | None, verdict: Verdict, confidence: float) -> str:
    if verdict is Verdict.REFUTED and promise is not None:
        return f"With {confidence:.0%} confidence epsilon = {promise.epsilon:.3g} does not hold."
    if verdict is Verdict.LEAKS:
        return "The model tells who was trained on, and nothing was promised."
    return "Nothing contradicts the promise." if promise is not None else "The attack does no better than chance."


def _few(others: int, confidence: float) -> str:
    """Rates that so few non-members cannot certify."""
    least = {rate: int(np.ceil(np.log((1 - confidence) / 2) / np.log1p(-rate))) for rate in RATES}
    missing = " and ".join(f"{rate:.1%} ({needed:,})" for rate, needed in least.items() if others < needed)
    if not missing:
        return ""
    return f" {others:,} scores of non-members are too few to certify a rate at false alarms of {missing}."
