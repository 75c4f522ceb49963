"""Membership of whole sequences: which of a silo's own texts the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from sordino.audit.attacks import Kind, Progress, _causes, attacks
from sordino.audit.attacks._owners import in_words, of_one_text
from sordino.audit.findings import Figure, Finding, Grade, Verdict, graded
from sordino.audit.promise import Promise
from sordino.audit.stats.ceiling import bounds, ceiling
from sordino.audit.stats.curve_test import claim_test
from sordino.audit.stats.proportions import auc, bootstrap
from sordino.audit.stats.roc import certified_tpr, roc_curve
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Language, Sequences
from sordino.core import checks
from sordino.core.seeds import stream
from sordino.core.types import Unit

FEWEST = 20
RATES = (0.01, 0.1)
"""False positive rates that are reported."""


@attacks.register("sequence_membership")
@dataclass(frozen=True)
class SequenceMembership:
    """Trains again, each of the silo's own sequences in by a fair coin, and tells by the model alone which were in.

    Three scores of a sequence: `loss`, its mean log-likelihood per token; `ratio`, the same less what reference models
    say that never saw it, so that what is easy for every model counts for nothing; `least_likely`, the mean over its
    least likely tokens only.

    Args:
        pairs: Pairs of reference models: one is trained on a half of its own, drawn without regard to the target's, the
            other on the rest.
        least: Share of a sequence's tokens that `least_likely` looks at.
        most: Sequences whose membership is asked for; of a larger silo, the others are in every training.
        confidence: Of intervals and verdict.

    Source: Carlini et al. (2022), arXiv:2112.03570, for the calibration by references; Shi et al. (2024),
    arXiv:2310.16789, for the least likely tokens.
    """

    example: ClassVar[Mapping[str, Any]] = {"pairs": 1, "most": 500}
    kind: ClassVar[Kind] = Kind.LANGUAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    pairs: int = 1
    least: float = 0.2
    most: int = 2000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("sequence_membership", pairs=self.pairs, most=self.most)
        checks.rate("sequence_membership", least=self.least)
        checks.fraction("sequence_membership", confidence=self.confidence)

    @property
    def trainings(self) -> int:
        """The target and its references."""
        return 1 + 2 * self.pairs

    def run(self, subject: Language, progress: Progress) -> Finding:
        own = subject.own()
        if len(own) < FEWEST:
            raise DoesNotFit(f"the silo has {len(own)} sequences: too few to tell members from others.")
        tested = of_one_text(subject.promise, (Unit.CLIENT, Unit.USER))
        rng = stream(subject.seed, "sequence membership")
        pool = np.sort(rng.permutation(len(own))[: self.most])
        asked, nobody, said = own.take(pool), Sequences.of([]), []
        target, *halves = rng.random((1 + self.pairs, len(pool))) < 0.5
        coins = [target, *(half for pair in halves for half in (pair, ~pair))]
        for number, included in enumerate(coins):
            progress(f"training {number + 1} of {self.trainings}")
            keep = np.ones(len(own), dtype=bool)
            keep[pool] = included
            said.append(subject.log_likelihoods(subject.train(nobody, number + 1, keep=keep), asked))
        found = self._finding(tested, self._scores(said, np.array(coins[1:])), target)
        return replace(found, says=found.says + in_words(subject.promise, tested), local=not subject.public)

    def _scores(self, said: list[NDArray[np.float64]], seen: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
        """High means in. None depends on the target's coins; a sequence is new to one reference of every pair."""
        target, *references = [_mean(each) for each in said]
        return {
            "ratio": target - np.where(seen, 0.0, references).sum(axis=0) / self.pairs,
            "loss": target,
            "least_likely": _mean(_smallest(said[0], self.least)),
        }

    def _finding(
        self, promise: Promise | None, scores: dict[str, NDArray[np.float64]], coins: NDArray[np.bool_]
    ) -> Finding:
        alpha, figures = 1 - self.confidence, {}
        for name, score in scores.items():
            members, others = score[coins], score[~coins]
            figures[f"auc_{name}"] = bootstrap(auc, members, others, confidence=self.confidence, repeats=300)
            for rate in RATES:
                found = certified_tpr(members, others, fpr=rate, confidence=self.confidence)
                figures[f"tpr_{name}_at_fpr_{rate:g}"] = Figure(found.value, found.low, found.high)
        chances = [mannwhitneyu(s[coins], s[~coins], alternative="greater").pvalue for s in scores.values()]
        leaks = bool(min(chances) * len(scores) <= alpha)
        # The coins are fair and independent, so the promise can be tested as a whole curve.
        wrong = promise is not None and claim_test(scores, coins, promise, alpha=alpha).rejected
        best = max(scores, key=lambda name: figures[f"auc_{name}"].value)
        area = figures[f"auc_{best}"]
        says = (
            f"Of {len(coins)} sequences, each in or out by a coin, a model's members are told from others with an AUC "
            f"of {area.value:.2f} (between {area.low:.2f} and {area.high:.2f}; 0.50 is chance) by {best}."
        )
        if promise is not None:
            most = bounds(promise).auc
            figures["auc_allowed"] = Figure(most)
            says += f" The promise allows {most:.2f} at most."
        if wrong:
            says += " So many right answers contradict it."
        verdict = Verdict.REFUTED if wrong else Verdict.LEAKS if leaks else Verdict.HOLDS
        return Finding(
            attack="sequence_membership",
            grade=graded(verdict),
            verdict=verdict,
            says=says,
            does_not_show="that stronger attacks, with more reference models or chosen sequences, would do no better",
            promise=promise,
            confidence=self.confidence,
            figures=figures,
            curves={name: _drawn(promise, score, coins) for name, score in scores.items()},
            causes=_causes.TRAINING if wrong else (),
        )


def _mean(log_likelihoods: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per counted token. A sequence without any scores 0: nothing is known of it."""
    counted = (~np.isnan(log_likelihoods)).sum(axis=1)
    return np.asarray(np.nansum(log_likelihoods, axis=1) / np.maximum(counted, 1))


def _smallest(log_likelihoods: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """The least likely counted tokens of each sequence, at least one; NaN for the others.

    >>> _smallest(np.array([[-1.0, -3.0, np.nan, -2.0]]), 0.5)
    array([[-3., -2., nan, nan]])
    """
    ranked = np.sort(log_likelihoods, axis=1)  # NaN goes last
    counted = (~np.isnan(ranked)).sum(axis=1, keepdims=True)
    kept = np.arange(ranked.shape[1]) < np.maximum(1, np.ceil(share * counted))
    return np.where(kept, ranked, np.nan)


def _drawn(promise: Promise | None, score: NDArray[np.float64], coins: NDArray[np.bool_]) -> dict[str, list[float]]:
    """A score's curve, under what the promise allows."""
    fpr, tpr = roc_curve(score[coins], score[~coins])
    curve = {"fpr": fpr.tolist(), "tpr": tpr.tolist()}
    return curve if promise is None else curve | {"ceiling": ceiling(promise, fpr).tolist()}
