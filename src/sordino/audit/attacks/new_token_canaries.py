"""Canaries that end in a token which nobody else uses, each in by a fair coin: a test of the whole promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Kind, Progress, _causes, attacks
from sordino.audit.attacks._owners import in_words, of_one_text
from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.promise import Promise
from sordino.audit.stats.curve_test import ClaimTest, claim_test
from sordino.audit.stats.one_run import best_bound
from sordino.audit.stats.proportions import auc, bootstrap
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Language, Sequences, total
from sordino.core import checks
from sordino.core.seeds import stream
from sordino.core.types import Unit

DELTA = 1e-5
"""Where nothing is promised, the bound is on epsilon at this delta."""


@attacks.register("new_token_canaries")
@dataclass(frozen=True)
class NewTokenCanaries:
    """Random sequences that end in a token of the vocabulary which no record holds; half of them join the training.

    A token without other uses keeps what a canary wrote: no record of anybody else overwrites it, so these canaries
    are remembered better than random sentences. Where embeddings are not trained, that is all that is new about it.
    A model that gives texts labels reads the token last, and a random label is learnt.

    Args:
        canaries: How many there are; about half are planted, each once.
        length: Tokens before the new ones.
        tokens: New tokens per canary; a canary's own, as far as the vocabulary goes.
        confidence: Of the bound and of the verdict.

    Guarantee:
        The bound holds for any training, as each canary is in by a fair coin of its own.

    Source: Panda et al. (2025), ICLR, "Privacy auditing of large language models"; Steinke, Nasr and Jagielski
    (2023), arXiv:2305.08846; Mahloujifar, Melis and Chaudhuri (2024), arXiv:2410.22235.
    """

    example: ClassVar[Mapping[str, Any]] = {"canaries": 200, "length": 6}
    kind: ClassVar[Kind] = Kind.LANGUAGE
    grade: ClassVar[Grade] = Grade.FALSIFICATION
    trainings: ClassVar[int] = 1
    canaries: int = 1000
    length: int = 8
    tokens: int = 1
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("new_token_canaries", canaries=self.canaries, length=self.length, tokens=self.tokens)
        checks.fraction("new_token_canaries", confidence=self.confidence)

    def run(self, subject: Language, progress: Progress) -> Finding:
        crafted = self.crafted(subject)
        tested = of_one_text(subject.promise, (Unit.CLIENT,))  # each has a person of its own, within one client
        coins = stream(subject.seed, "canary coins").random(self.canaries) < 0.5
        progress(f"training with about {self.canaries // 2} of {self.canaries} canaries")
        model = subject.train(crafted.take(coins), 1)
        gain = total(subject.log_likelihoods(model, crafted)) - total(subject.log_likelihoods(subject.start, crafted))
        found = self._finding(tested, {"gain": gain, "apart": _apart(gain, crafted)}, coins)
        return replace(found, says=found.says + in_words(subject.promise, tested), local=not subject.public)

    def crafted(self, subject: Language) -> Sequences:
        """All candidates, whether they join or not.

        Raises:
            DoesNotFit: Every token is in use, or the sequences would be too long.
        """
        unused = subject.unused()
        if len(unused) < self.tokens:
            raise DoesNotFit("every token of the vocabulary is in use: no canary can end in a new one.")
        if self.length + self.tokens > subject.longest:
            raise DoesNotFit(f"canaries of {self.length + self.tokens} tokens are longer than the model reads.")
        rng = stream(subject.seed, "new tokens")
        before = rng.choice(subject.used(), size=(self.canaries, self.length))
        sets = len(unused) // self.tokens
        new = rng.permutation(unused)[: sets * self.tokens].reshape(sets, self.tokens)[np.arange(self.canaries) % sets]
        if subject.labels is None:
            return Sequences.of(np.hstack([before, new]), last=self.tokens)
        labels = subject.vocabulary + rng.integers(subject.labels, size=(self.canaries, 1))
        return Sequences.of(np.hstack([before, new, labels]), last=1)

    def _finding(
        self, promise: Promise | None, scores: dict[str, NDArray[np.float64]], coins: NDArray[np.bool_]
    ) -> Finding:
        delta = DELTA if promise is None else promise.delta
        # A bound above the claim refutes it, and so does the test of its curve: each has half of the error.
        alpha = (1 - self.confidence) / 2
        bound = best_bound(scores, coins, delta=delta, confidence=1 - alpha)
        test = None if promise is None else claim_test(scores, coins, promise, alpha=alpha)
        above = promise is not None and bound.epsilon > promise.epsilon
        wrong = above or (test is not None and test.rejected)
        figures = {
            f"auc_{name}": bootstrap(auc, score[coins], score[~coins], confidence=self.confidence, repeats=300)
            for name, score in scores.items()
        }
        figures |= {
            "canaries": Figure(self.canaries),
            "guesses": Figure(bound.tally.guesses),
            "right_guesses": Figure(bound.tally.correct),
        }
        if test is not None:
            figures["p_value_of_the_promise"] = Figure(test.p_value)
        leaks = promise is None and bound.epsilon > 0
        return Finding(
            attack="new_token_canaries",
            grade=self.grade,
            verdict=Verdict.REFUTED if wrong else Verdict.LEAKS if leaks else Verdict.HOLDS,
            says=self._says(promise, bound.epsilon, test),
            does_not_show="that epsilon is as small as the bound: a better attack, or more canaries, may raise it",
            promise=promise,
            lower_bound=bound.epsilon,
            confidence=self.confidence,
            figures=figures,
            causes=_causes.TRAINING if wrong else (),
        )

    def _says(self, promise: Promise | None, bound: float, test: ClaimTest | None) -> str:
        found = (
            f"From one training with {self.canaries} canaries that end in a token of their own, ε is at least "
            f"{bound:.2f} with {self.confidence:.0%} confidence"
        )
        if promise is None or test is None:
            return f"{found}; nothing was promised."
        verdict = "contradict" if test.rejected or bound > promise.epsilon else "do not contradict"
        return f"{found}; the guesses {verdict} the promise of {promise.epsilon:.3g} as a whole curve."


def _apart(gain: NDArray[np.float64], crafted: Sequences) -> NDArray[np.float64]:
    """A canary's gain less the median of those that end alike: what it has learnt that its token alone has not."""
    ends = crafted.tokens[np.arange(len(crafted)), crafted.lengths - 1]
    result = gain.copy()
    for end in np.unique(ends):
        result[ends == end] -= np.median(gain[ends == end])
    return result
