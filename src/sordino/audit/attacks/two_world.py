"""Two worlds: one release again and again, with and without one record. What can be told apart bounds ε from below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.attacks._trials import CAUSES, delta_of, verdict
from sordino.audit.findings import Figure, Finding, Grade
from sordino.audit.stats.two_world import epsilon_bound, mu_bound
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.canaries import Canaries, Terms
from sordino.core import checks
from sordino.core.seeds import stream
from sordino.privacy import gaussian

TARGET = 2.0
"""The claim under test: of so few runs no more than about 4 could ever be shown."""


@attacks.register("two_world")
@dataclass(frozen=True)
class TwoWorld(Attack):
    """Lower bound on one release's epsilon from many independent runs with and without one crafted record.

    The training's own step is run once per trial, with everything drawn anew, at full participation. A quarter of the
    runs fixes the threshold, the others are counted.

    Args:
        runs: Runs of each world.
        confidence: Of everything that is said, in (0, 1).

    Source:
        Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020), arXiv:2006.07709.
    """

    example: ClassVar[dict[str, Any]] = {"runs": 600, "confidence": 0.95}
    kind: ClassVar[Kind] = Kind.CANARIES
    grade: ClassVar[Grade] = Grade.FALSIFICATION
    runs: int = 600
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("attack.two_world", runs=self.runs)
        checks.fraction("attack.two_world", confidence=self.confidence)

    def run(self, subject: Canaries, progress: Progress) -> Finding:
        step = subject.step
        if step is None:
            raise DoesNotFit("the run has no private step on records that can be run again.")
        delta = delta_of(subject.promise)
        # K records of a unit, all of which join, move a release K clip norms.
        noise = step.terms.records / gaussian.mu_of(TARGET, delta)
        terms = Terms(1.0, noise, 1, step.terms.records)
        what = f"one release of the run's own step, at noise multiplier {noise:.3g} and full participation"
        promise = terms.promise(delta, step.unit, by=what)
        progress(f"{2 * self.runs} runs of one release")
        rng, each = stream(subject.seed, "two worlds"), (1 + self.confidence) / 2
        included = rng.permutation(np.arange(2 * self.runs) % 2 == 0)
        scores = step.released(included[:, None], terms, int(rng.integers(2**31)))[:, 0, 0]
        worlds = scores[~included], scores[included]
        bound = epsilon_bound(*worlds, delta=delta, confidence=each, seed=subject.seed)
        mu = mu_bound(*worlds, confidence=each, seed=subject.seed)
        fitted = gaussian.epsilon_of(mu, delta) if mu > 0 else 0.0
        refuted = max(bound, fitted) > promise.epsilon
        return Finding(
            attack="two_world",
            grade=self.grade,
            verdict=verdict(refuted, bound, promise),
            says=f"{what}: {self.runs} runs with and {self.runs} without one record show an epsilon of at least "
            f"{bound:.3g} whatever the mechanism, and {fitted:.3g} if it is Gaussian, while epsilon "
            f"{promise.epsilon:.3g} is promised at delta {delta:.2g}; with {self.confidence:.0%} confidence.",
            does_not_show="Anything about many releases together, sampling, or what real records do to each other. The "
            "larger bound is for Gaussian noise, as promised; so few runs never show more than about 4 for another.",
            promise=promise,
            lower_bound=max(bound, fitted),
            confidence=self.confidence,
            figures={
                "epsilon at least": Figure(bound, low=bound),
                "epsilon at least, if Gaussian": Figure(fitted, low=fitted),
            },
            causes=CAUSES if refuted else (),
        )
