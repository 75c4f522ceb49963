"""One training, read by order statistics: twice as tight as the other one-run bounds, under more assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.attacks._trials import CAUSES, OWN, claim_of, delta_of, trials, verdict
from sordino.audit.findings import Figure, Finding, Grade
from sordino.audit.stats.one_run import tallies
from sordino.audit.stats.order_statistic import conformance_bound
from sordino.audit.subjects.canaries import Canaries
from sordino.core import checks


@attacks.register("order_statistic")
@dataclass(frozen=True)
class OrderStatistic(Attack):
    """Does one training with canaries look like the declared Gaussian mechanism? The most confident guesses tell.

    Args:
        canaries: Candidates of the training that is driven, each in by a fair coin.
        confidence: Of the statement about the declared mechanism, in (0, 1).

    Source:
        Xiang et al. (2025), arXiv:2509.08704.
    """

    example: ClassVar[dict[str, Any]] = {"canaries": 10000, "confidence": 0.95}
    kind: ClassVar[Kind] = Kind.CANARIES
    grade: ClassVar[Grade] = Grade.CONFORMANCE
    canaries: int = 10_000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("attack.order_statistic", canaries=self.canaries)
        checks.fraction("attack.order_statistic", confidence=self.confidence)

    def run(self, subject: Canaries, progress: Progress) -> Finding:
        tried = trials(subject, self.canaries, progress)
        first = tried[0]
        delta = delta_of(first.promise)
        guessed = [(trial, tally) for trial in tried for tally in tallies(trial.scores, trial.included, trial.guesses)]
        each = 1 - (1 - self.confidence) / len(guessed)
        bounds = {trial.name: 0.0 for trial in tried}
        refuted = False
        for trial, tally in guessed:
            _, epsilon = conformance_bound(tally.correct, tally.guesses, tally.canaries, delta=delta, confidence=each)
            bounds[trial.name] = max(bounds[trial.name], epsilon)
            # A run's own losses are no independent outputs: they are a figure, and refute nothing.
            refuted |= trial.name != OWN and trial.promise is not None and epsilon > trial.promise.epsilon
        said = "; ".join(
            f"{trial.what}: the right guesses fit no Gaussian mechanism with epsilon below {bounds[trial.name]:.3g}, "
            f"while {claim_of(trial)}"
            for trial in tried
        )
        return Finding(
            attack="order_statistic",
            grade=self.grade,
            verdict=verdict(refuted, bounds[first.name], first.promise),
            says=f"{said}; with {self.confidence:.0%} confidence.",
            does_not_show="Anything about another mechanism than Gaussian noise with outputs that are independent from "
            "canary to canary: it is a test of what is declared, and no bound on the epsilon of what is not.",
            promise=first.promise,
            lower_bound=bounds[first.name],
            confidence=self.confidence,
            figures={f"epsilon at least, {name}": Figure(value, low=value) for name, value in bounds.items()},
            causes=CAUSES if refuted else (),
        )
