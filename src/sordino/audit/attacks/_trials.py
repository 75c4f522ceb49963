"""What canary attacks share: trainings with canaries, their scores, and the words for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sordino.audit.attacks import Progress
from sordino.audit.findings import Verdict
from sordino.audit.promise import Promise
from sordino.audit.stats.one_run import Tally
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.canaries import Bools, Canaries, Floats, Step, Terms
from sordino.core.seeds import stream
from sordino.core.types import Adjacency
from sordino.privacy.calibration import calibrate_noise

OWN = "own model"
"""The name of the trial that a run carried itself."""

EPSILONS = (1.0, 4.0)
"""Claims against which one training has power: a single step's faults are the same at every epsilon."""

TARGET = 3.0
"""The claim that is tested in place of one outside of these."""

DELTA = 1e-5
"""Where nothing is promised."""

FEW = 2000
"""Canaries below which a quarter is guessed: with 500, bounds of sound steps are then up to twice as large."""

LONGEST, STEPS = 1000, 200
"""Releases of a run that is driven as it is, at most, and of another training in its place."""

CAUSES = (
    "noise below what is charged, or not drawn anew for every release",
    "the batch's mean is clipped instead of every record's gradient, or at a larger norm",
    "records join at a higher rate than is charged",
    "what is released is not the noised sum alone",
)
"""Likely causes of a refuted promise."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One training with canaries.

    Args:
        name: `step` or `own model`.
        what: The training, for a sentence.
        included: The coins, shape (m,).
        scores: Label-free, high means in; shape (m,) each.
        promise: What it claims for one canary, or None.
    """

    name: str
    what: str
    included: Bools
    scores: Mapping[str, Floats]
    promise: Promise | None

    @property
    def guesses(self) -> list[int]:
        """How many canaries are guessed: from the claim alone, so it is fixed before anything is seen.

        A large epsilon shows in the few most certain guesses, a small one in many that are a little certain; a run
        carries few canaries, and none of its losses is certain. Of few canaries a few guesses prove nothing.
        """
        if self.name == OWN:
            return [max(1, round(0.4 * len(self.included)))]
        if len(self.included) < FEW:
            return [max(1, round(0.25 * len(self.included)))]
        share = 0.03 if self.promise is None or self.promise.epsilon >= 2 else 0.15
        return [max(1, round(share * len(self.included)))]


def trials(subject: Canaries, canaries: int, progress: Progress) -> list[Trial]:
    """The training that is driven now, and the run's own if it carried canaries. The first is the stronger."""
    found = []
    if subject.step is not None:
        terms, promise, what = driven_at(subject.step, subject.promise)
        progress(f"{what}, {min(canaries, subject.step.most):,} canaries")
        found.append(_driven(subject.step, terms, promise, what, canaries, subject.seed))
    if (own := subject.carried) is not None:
        found.append(Trial(OWN, "the run's own final model", own.included, own.scores, own.promise))
    if not found:
        raise DoesNotFit("no training carried canaries, and there is no private step on records to drive.")
    return found


def driven_at(step: Step, promise: Promise | None) -> tuple[Terms, Promise, str]:
    """At which terms a step is driven, what they promise, and how to say so.

    The run's own where its claim lies in `EPSILONS` and is short enough; else the same code at another noise.
    """
    own, delta = step.terms, delta_of(promise)
    if promise is not None and EPSILONS[0] <= promise.epsilon <= EPSILONS[1] and own.steps <= LONGEST:
        told = own.promise(delta, step.unit, promise.source)
        if promise.adjacency is Adjacency.ADD_REMOVE and promise.events == told.events:
            return own, promise, "the run's own step at its own noise, rate and length"
    steps = min(own.steps, STEPS)

    def at(noise: float) -> Terms:
        return replace(own, noise_multiplier=noise, steps=steps)

    z = calibrate_noise(
        lambda noise: [(at(noise).event, steps)], TARGET, delta, adjacency=Adjacency.ADD_REMOVE, rough=True
    )
    terms = at(z)
    what = f"the run's own step, driven at noise multiplier {z:.3g} for {terms.steps} releases at rate {terms.rate:.3g}"
    return terms, terms.promise(delta, step.unit, by=what), what


def _driven(step: Step, terms: Terms, promise: Promise, what: str, canaries: int, seed: int) -> Trial:
    rng = stream(seed, "canary trial")
    included = rng.random(min(canaries, step.most)) < 0.5
    released = step.released(included[None], terms, int(rng.integers(2**31)))[0]
    return Trial("step", what, included, scores(released, terms), promise)


def scores(released: Floats, terms: Terms) -> dict[str, Floats]:
    """What tells a canary that is in, from its releases, shape (steps, m).

    The second sees nothing where noise is drawn anew for every release, and everything where it is not.
    """
    found = {"likelihood ratio": terms.log_ratios(released)}
    if terms.steps > 1:
        found["changes between releases"] = np.square(np.diff(released, axis=0)).sum(axis=0)
    return found


def delta_of(promise: Promise | None) -> float:
    """At which delta an epsilon is given."""
    return promise.delta if promise is not None else DELTA


def claim_of(trial: Trial) -> str:
    """What was promised, for a sentence."""
    if trial.promise is None:
        return "nothing is promised"
    return f"epsilon {trial.promise.epsilon:.3g} is promised at delta {trial.promise.delta:.2g}"


def told(tally: Tally) -> str:
    """How the guesses went, for a sentence."""
    return f"{tally.correct} of {tally.guesses} guesses about {tally.canaries:,} canaries are right"


def verdict(refuted: bool, bound: float, promise: Promise | None) -> Verdict:
    """What follows from a bound. A leak that contradicts no promise is still one."""
    if refuted:
        return Verdict.REFUTED
    return Verdict.LEAKS if promise is None and bound > 0 else Verdict.HOLDS
