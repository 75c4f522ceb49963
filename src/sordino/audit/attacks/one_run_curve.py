"""The claim test: one training, many canaries, against the whole curve that the accountant computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.attacks._trials import CAUSES, Trial, claim_of, delta_of, told, trials, verdict
from sordino.audit.findings import Figure, Finding, Grade
from sordino.audit.stats.curve_test import best_gdp_bound, claim_test, curve_lower_bound
from sordino.audit.subjects.canaries import Canaries
from sordino.core import checks


@attacks.register("one_run_curve")
@dataclass(frozen=True)
class OneRunCurve(Attack):
    """Test of the whole promised curve by one training with many canaries: sees half the noise, and double the rate.

    Args:
        canaries: Candidates of the training that is driven, each in by a fair coin. The test needs thousands.
        confidence: Of everything that is said, in (0, 1).

    Source:
        Mahloujifar, Melis and Chaudhuri (2024), arXiv:2410.22235.
    """

    example: ClassVar[dict[str, Any]] = {"canaries": 10000, "confidence": 0.95}
    kind: ClassVar[Kind] = Kind.CANARIES
    grade: ClassVar[Grade] = Grade.FALSIFICATION
    canaries: int = 10_000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("attack.one_run_curve", canaries=self.canaries)
        checks.fraction("attack.one_run_curve", confidence=self.confidence)

    def run(self, subject: Canaries, progress: Progress) -> Finding:
        tried = trials(subject, self.canaries, progress)
        each = 1 - (1 - self.confidence) / len(tried)
        read = [_read(trial, each) for trial in tried]
        refuted = any(reading.rejected for reading in read)
        shown = int(np.argmax([reading.rejected for reading in read]))  # the first that is refuted, or else the first
        figures = {}
        for trial, reading in zip(tried, read, strict=True):
            figures[f"epsilon at least, {trial.name}"] = Figure(reading.epsilon, low=reading.epsilon)
            if reading.p_value is not None:
                figures[f"p-value of the claimed curve, {trial.name}"] = Figure(reading.p_value)
        said = "; ".join(reading.says for reading in read)
        return Finding(
            attack="one_run_curve",
            grade=self.grade,
            verdict=verdict(refuted, max(reading.epsilon for reading in read), tried[shown].promise),
            says=f"{said}; with {self.confidence:.0%} confidence.",
            does_not_show="That the promise holds. The test of the curve assumes nothing; the lower bound is for a "
            "kind of mechanism, as said. Neither sees how real records influence each other.",
            promise=tried[shown].promise,
            lower_bound=read[shown].epsilon,
            confidence=self.confidence,
            figures=figures,
            causes=CAUSES if refuted else (),
        )


@dataclass(frozen=True)
class _Reading:
    """One trial's answer."""

    rejected: bool
    epsilon: float
    p_value: float | None
    says: str


def _read(trial: Trial, confidence: float) -> _Reading:
    """A promise's curve is tested, and its kind of mechanism bounded; without one, a Gaussian is fitted."""
    if trial.promise is None:
        epsilon, of = _bound(trial, refuted=False, confidence=confidence, guesses=trial.guesses)
        return _Reading(False, epsilon, None, f"{trial.what}: epsilon is at least {epsilon:.3g} for {of}")
    test = claim_test(trial.scores, trial.included, trial.promise, alpha=1 - confidence, guesses=trial.guesses)
    epsilon, of = _bound(trial, refuted=test.rejected, confidence=confidence, guesses=trial.guesses)
    answer = "refutes" if test.rejected else "does not refute"
    says = (
        f"{trial.what}: {told(test.tally)}, which {answer} the promised curve (p = {test.p_value:.2g}); epsilon is at "
        f"least {epsilon:.3g} for {of}, while {claim_of(trial)}"
    )
    return _Reading(test.rejected, epsilon, test.p_value, says)


def _bound(trial: Trial, *, refuted: bool, confidence: float, guesses: list[int]) -> tuple[float, str]:
    """A lower bound, and for what kind of mechanism.

    A refuted promise says nothing of the kind any more, and accountants are slow where noise is small: a Gaussian is
    fitted then.
    """
    if refuted or trial.promise is None:
        fit = best_gdp_bound(
            trial.scores, trial.included, delta=delta_of(trial.promise), confidence=confidence, guesses=guesses
        )
        return fit.epsilon, "whatever acts like Gaussian noise"
    family = curve_lower_bound(trial.scores, trial.included, trial.promise, confidence=confidence, guesses=guesses)
    return family.epsilon, "the promised kind of noise"
