"""Steinke, Nasr and Jagielski's audit: one training, many canaries, a lower bound on ε whatever the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.attacks._trials import CAUSES, claim_of, delta_of, told, trials, verdict
from sordino.audit.findings import Figure, Finding, Grade
from sordino.audit.stats.one_run import best_bound
from sordino.audit.subjects.canaries import Canaries
from sordino.core import checks


@attacks.register("one_run")
@dataclass(frozen=True)
class OneRun(Attack):
    """Lower bound on epsilon for any mechanism: guess from one training which of many canaries were in.

    Each canary's gradient has a direction of its own, and what is released along it tells whether it was in. A run
    that carried canaries is attacked by their losses on its final model too. Weak against faults: half the noise
    passes.

    Args:
        canaries: Candidates of the training that is driven, each in by a fair coin.
        confidence: Of everything that is said, in (0, 1).

    Source:
        Steinke, Nasr and Jagielski (2023), arXiv:2305.08846.
    """

    example: ClassVar[dict[str, Any]] = {"canaries": 10000, "confidence": 0.95}
    kind: ClassVar[Kind] = Kind.CANARIES
    grade: ClassVar[Grade] = Grade.FALSIFICATION
    canaries: int = 10_000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("attack.one_run", canaries=self.canaries)
        checks.fraction("attack.one_run", confidence=self.confidence)

    def run(self, subject: Canaries, progress: Progress) -> Finding:
        tried = trials(subject, self.canaries, progress)
        each = 1 - (1 - self.confidence) / len(tried)
        said, figures, refuted, bounds = [], {}, [], []
        for trial in tried:
            delta = delta_of(trial.promise)
            bound = best_bound(trial.scores, trial.included, delta=delta, confidence=each)
            bounds.append(bound.epsilon)
            refuted.append(trial.promise is not None and bound.epsilon > trial.promise.epsilon)
            tally = bound.tally
            figures[f"epsilon at least, {trial.name}"] = Figure(bound.epsilon, low=bound.epsilon)
            figures[f"share of right guesses, {trial.name}"] = Figure(tally.correct / tally.guesses)
            said.append(
                f"{trial.what}: {told(tally)}, so epsilon is at least {bound.epsilon:.3g}, while {claim_of(trial)}"
            )
        shown = int(np.argmax(refuted))  # the first that is refuted, or else the first
        return Finding(
            attack="one_run",
            grade=self.grade,
            verdict=verdict(any(refuted), max(bounds), tried[shown].promise),
            says=f"{'; '.join(said)}; with {self.confidence:.0%} confidence.",
            does_not_show="That the promise holds: this test often misses even half the noise. Canaries in "
            "directions of their own do not see how real records influence each other.",
            promise=tried[shown].promise,
            lower_bound=bounds[shown],
            confidence=self.confidence,
            figures=figures,
            causes=CAUSES if any(refuted) else (),
        )
