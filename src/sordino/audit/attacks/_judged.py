"""What the scores of a membership game say: figures, intervals, curve and verdict, the same for every attack.

A refutation is the one-run test of the whole curve (`claim_test`) on the T·N coins of the targets. It needs no
independence of scores: given the references, the T trainings together are one mechanism with T·N fair coins, each of
which moves one record of one training, and the scores use no coin of a target. The certified rates treat scores as
independent draws, and records of one model share its noise; so they are figures, and refute nothing.

Source: Mahloujifar, Melis and Chaudhuri (2024), arXiv:2410.22235, for the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from sordino.audit.attacks import _causes
from sordino.audit.attacks._membership import Coins
from sordino.audit.findings import Figure, Finding, Verdict, graded
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
    verdict, bound = _verdict(promise, coins, scores, figures["auc"], confidence)
    curve, allowed = drawn(promise, members, others)
    figures |= allowed
    return Finding(
        attack=words.attack,
        grade=graded(verdict),
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


def drawn(promise: Promise | None, members: Floats, others: Floats) -> tuple[dict[str, list[float]], dict[str, Figure]]:
    """The curve of measured rates, under the promise's ceiling where there is one, and the ceiling's own figures.

    Thresholds that no drawn non-member exceeds are left out: how far below one over their number the rate lies cannot
    be told, nor which ceiling would be theirs.
    """
    fpr, tpr = roc_curve(members, others)
    told = (fpr > 0) | (tpr == 0)
    fpr, tpr = fpr[told], tpr[told]
    curve = {"fpr": fpr.tolist(), "tpr": tpr.tolist()}
    if promise is None:
        return curve, {}
    most = ceiling(promise, np.concatenate([fpr, RATES])).tolist()
    figures = {f"tpr_at_fpr_{rate:g}_allowed": Figure(one) for rate, one in zip(RATES, most[len(fpr) :], strict=True)}
    return curve | {"ceiling": most[: len(fpr)]}, {"auc_allowed": Figure(bounds_of(promise).auc), **figures}


bounds_of = lru_cache(maxsize=8)(bounds)  # several attacks look at one promise, and accountants take seconds


def _verdict(
    promise: Promise | None, coins: Coins, scores: Floats, area: Figure, confidence: float
) -> tuple[Verdict, float | None]:
    """What follows, and a lower bound on epsilon where the promise is refuted."""
    if promise is None:
        return (Verdict.LEAKS if area.low is not None and area.low > 0.5 else Verdict.HOLDS), None
    bound = refutation(promise, coins, scores, confidence)
    return (Verdict.HOLDS if bound is None else Verdict.REFUTED), bound


def refutation(promise: Promise, coins: Coins, scores: Floats, confidence: float) -> float | None:
    """A lower bound on epsilon if the scores refute the promise, else None.

    Args:
        promise: Of one record.
        coins: The targets' coins, shape (T, N).
        scores: High means member; computed without these coins. Shape (T, N).
        confidence: One less the chance of refuting a true promise, at most.
    """
    # Attacks tell members better than non-members, so one way of guessing names members only.
    flat, middle = scores.ravel(), float(np.median(scores))
    ways = {"members and others": flat, "members only": np.maximum(flat, middle)}
    if not claim_test(ways, coins.ravel(), promise, alpha=1 - confidence).rejected:
        return None
    return best_bound(ways, coins.ravel(), delta=promise.delta, confidence=confidence).epsilon


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
