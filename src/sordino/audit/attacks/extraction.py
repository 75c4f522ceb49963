"""Extraction: let the model go on from a secret's prefix, and see whether the secret comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.stats import binom

from sordino.audit.attacks import Kind, Progress, _causes, attacks
from sordino.audit.attacks._decoding import beam, sampled
from sordino.audit.attacks._secrets import TEMPLATE, Secret, Space, allowed, common, drawn, planted, protection
from sordino.audit.findings import Figure, Finding, Grade, Verdict, graded
from sordino.audit.stats.proportions import clopper_pearson
from sordino.audit.subjects.language import Language
from sordino.core import checks
from sordino.core.seeds import stream


@attacks.register("extraction")
@dataclass(frozen=True)
class Extraction:
    """Secrets planted in some copies: how many come out when the model goes on from what stands before them.

    A secret is extracted if it is among the continuations. Secrets with other names, which the model never saw, are
    the negative control.

    Args:
        copies: How often a secret is planted, ascending; each copy is a record of somebody else.
        secrets: Secrets for every number of copies, and for the control.
        digits: Of a secret; the space holds 10 to this power.
        template: A text with {name} and, behind it, {secret}.
        decode: `greedy` takes the likeliest token each time, `beam` follows `width` continuations, `sample` draws
            `width` of them.
        width: Continuations per secret; `greedy` has one.
        confidence: Of intervals and verdict.

    Source: Carlini et al. (2019), arXiv:1802.08232, section 6; Clopper and Pearson (1934).
    """

    example: ClassVar[Mapping[str, Any]] = {"copies": [8], "secrets": 5, "digits": 3}
    kind: ClassVar[Kind] = Kind.LANGUAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    trainings: ClassVar[int] = 1
    copies: tuple[int, ...] = (1, 8, 32)
    secrets: int = 10
    digits: int = 4
    template: str = TEMPLATE
    decode: Literal["greedy", "beam", "sample"] = "beam"
    width: int = 8
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("extraction", secrets=self.secrets, width=self.width)
        for copies in self.copies:
            checks.count("extraction", copies=copies)
        checks.fraction("extraction", confidence=self.confidence)
        Space(self.template, self.digits)

    @property
    def guesses(self) -> int:
        """Continuations per secret."""
        return 1 if self.decode == "greedy" else self.width

    def run(self, subject: Language, progress: Progress) -> Finding:
        space = Space(self.template, self.digits)
        secrets = drawn(subject, space, self.copies, self.secrets)
        rows = planted(subject, space, secrets)
        progress(f"training with {len(secrets) - self.secrets} secrets in up to {max(self.copies)} copies")
        model = subject.train(rows, 1)
        out = dict.fromkeys((*self.copies, 0), 0)
        for number, secret in enumerate(secrets):
            progress(f"asking for secret {number + 1} of {len(secrets)}")
            out[secret.copies] += self._extracted(subject, model, space, secret, number)
        return self._finding(subject, space, out, subject.records_of(rows))

    def _extracted(self, subject: Language, model: Any, space: Space, secret: Secret, index: int) -> bool:
        """Whether the secret is among the continuations of what comes before it."""
        others = np.linspace(0, space.size - 1, min(space.size, 100)).astype(int)
        sequences = subject.encode(space.texts(secret.name, [secret.number, *others]))
        before, after = common(sequences)
        if not before:
            return False
        tokens = sequences.tokens[0, : sequences.lengths[0] - after]
        prefix, wanted = tokens[:before], tokens[before:]
        if self.decode == "sample":
            rng = stream(subject.seed, "extraction", index)
            found = sampled(subject, model, prefix, len(wanted), self.width, rng)
        else:
            found = beam(subject, model, prefix, len(wanted), self.guesses)
        return bool((found == wanted).all(axis=1).any())

    def _finding(self, subject: Language, space: Space, out: dict[int, int], per_copy: int) -> Finding:
        promise, alpha, chance = subject.promise, 1 - self.confidence, self.guesses / space.size
        each = alpha / len(self.copies)
        figures = {f"extracted_{k}_{'copy' if k == 1 else 'copies'}": self._share(out[k]) for k in self.copies}
        figures |= {"extracted_never_planted": self._share(out[0]), "chance": Figure(chance)}
        remembered = [k for k in self.copies if binom.sf(out[k] - 1, self.secrets, chance) <= each]
        # Markov: v successes or more have probability at most their expected number over v, dependent or not.
        wrong = [
            k
            for k in self.copies
            if promise is not None and self.secrets * allowed(promise, k * per_copy, chance) <= each * out[k]
        ]
        found = ", ".join(f"{out[k]} of {self.secrets} planted {k}×" for k in self.copies)
        says = (
            f"Of secrets of {space.digits} digits {found} come out by {self.decode} decoding, and {out[0]} of "
            f"{self.secrets} that the model never saw; {self.secrets * chance:.2g} of each would by chance. "
            f"{protection(promise, [k * per_copy for k in self.copies], self.copies)}"
        )
        if wrong:
            says += f" That secrets planted {wrong[0]}× come out is more than the promise allows."
        verdict = Verdict.REFUTED if wrong else Verdict.LEAKS if remembered else Verdict.HOLDS
        return Finding(
            attack="extraction",
            grade=graded(verdict),
            verdict=verdict,
            says=says,
            does_not_show="that what did not come out is unknown to the model: exposure sees far less",
            promise=promise,
            confidence=self.confidence,
            figures=figures,
            causes=_causes.TRAINING if wrong else (),
            local=not subject.public,
        )

    def _share(self, successes: int) -> Figure:
        low, high = clopper_pearson(successes, self.secrets, confidence=self.confidence)
        return Figure(successes / self.secrets, low, high)
