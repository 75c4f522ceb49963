"""Exposure: how far up its space of possible secrets a model ranks the one that it was trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skewnorm, t

from sordino.audit.attacks import Kind, Progress, _causes, attacks
from sordino.audit.attacks._secrets import (
    TEMPLATE,
    Secret,
    Space,
    allowed,
    by_chance,
    common,
    drawn,
    planted,
    protection,
)
from sordino.audit.findings import Figure, Finding, Grade, Verdict, graded
from sordino.audit.subjects.language import Language, total
from sordino.core import checks
from sordino.core.seeds import stream

CHANCE_BITS = 1 / math.log(2)
"""The mean exposure of a secret that was never seen: its rank is uniform."""


AFFORDABLE = 2e10
"""Candidates times parameters: about a quarter of a CPU minute per secret of ten to twenty tokens."""


@attacks.register("exposure")
@dataclass(frozen=True)
class Exposure:
    """Secrets planted in 1, 8, 32 copies: the rank of each among all that it could have been, in bits.

    Exposure is log2 |R| − log2 rank by log-perplexity: log2 |R| when the model holds no other secret likelier, 1.44 on
    average when it never saw it. Ranks are exact where the space is small enough for the model at hand; else a sample
    is scored, and a skew-normal law extrapolates from it.

    Args:
        copies: How often a secret is planted, ascending; each copy is a record of somebody else.
        secrets: Secrets for every number of copies, and as many that are never planted: the negative control.
        digits: Of a secret; the space holds 10 to this power.
        template: A text with {name} and {secret}.
        enumerated: The largest space that is scored as a whole; of a large network, a smaller one (`AFFORDABLE`).
        sample: How many of a larger space are scored.
        confidence: Of intervals and verdict.

    Source: Carlini et al. (2019), arXiv:1802.08232.
    """

    example: ClassVar[Mapping[str, Any]] = {"copies": [1, 8], "secrets": 3, "digits": 3}
    kind: ClassVar[Kind] = Kind.LANGUAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    trainings: ClassVar[int] = 1
    copies: tuple[int, ...] = (1, 8, 32)
    secrets: int = 5
    digits: int = 4
    template: str = TEMPLATE
    enumerated: int = 100_000
    sample: int = 1000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("exposure", secrets=self.secrets - 1, sample=self.sample)
        for copies in self.copies:
            checks.count("exposure", copies=copies)
        checks.fraction("exposure", confidence=self.confidence)
        Space(self.template, self.digits)

    def run(self, subject: Language, progress: Progress) -> Finding:
        space = Space(self.template, self.digits)
        secrets = drawn(subject, space, self.copies, self.secrets)
        rows = planted(subject, space, secrets)
        progress(f"training with {len(secrets) - self.secrets} secrets in up to {max(self.copies)} copies")
        model = subject.train(rows, 1)
        seen: dict[int, list[tuple[float, float]]] = {copies: [] for copies in (*self.copies, 0)}
        for number, secret in enumerate(secrets):
            progress(f"ranking secret {number + 1} of {len(secrets)}")
            seen[secret.copies].append(self._exposed(subject, model, space, secret, number))
        bits = {copies: np.array([each[0] for each in found]) for copies, found in seen.items()}
        p_values = {copies: np.array([each[1] for each in found]) for copies, found in seen.items()}
        return self._finding(subject, space, bits, p_values, subject.records_of(rows))

    def exact(self, subject: Language, space: Space) -> bool:
        """Whether all that a secret could be is scored."""
        return space.size <= min(self.enumerated, AFFORDABLE / subject.size)

    def _exposed(self, subject: Language, model: Any, space: Space, secret: Secret, index: int) -> tuple[float, float]:
        """Exposure in bits, and the chance of as good a rank if the secret was never seen."""
        exact = self.exact(subject, space)
        numbers = np.arange(space.size)
        if not exact:
            numbers = stream(subject.seed, "exposure", index).integers(space.size, size=self.sample)
        sequences = subject.encode(space.texts(secret.name, [secret.number, *numbers[numbers != secret.number]]))
        likelihoods = total(subject.log_likelihoods(model, sequences, since=max(1, common(sequences)[0])))
        own, others = float(likelihoods[0]), likelihoods[1:]
        rank = 1 + int(np.count_nonzero(others >= own))
        p_value = rank / (1 + len(others))
        return (exposure(rank, space.size) if exact else extrapolated(own, others)), p_value

    def _finding(
        self,
        subject: Language,
        space: Space,
        bits: dict[int, NDArray[np.float64]],
        p_values: dict[int, NDArray[np.float64]],
        per_copy: int,
    ) -> Finding:
        most, alpha, promise = math.log2(space.size), 1 - self.confidence, subject.promise
        figures = {f"exposure_{k}_{'copy' if k == 1 else 'copies'}": self._mean(bits[k]) for k in self.copies}
        figures |= {"exposure_never_planted": self._mean(bits[0]), "bits_of_the_space": Figure(most)}
        remembered = [k for k in self.copies if by_chance(p_values[k]) <= alpha / len(self.copies)]
        wrong = [
            k
            for k in self.copies
            if promise is not None
            and p_values[k].size * allowed(promise, k * per_copy, p_values[k].min()) <= alpha / len(self.copies)
        ]
        found = ", ".join(f"{k}×: {bits[k].mean():.1f}" for k in self.copies)
        says = (
            f"Of secrets worth {most:.1f} bits the model gives away, by how often each was planted, {found} bits on "
            f"average{'' if self.exact(subject, space) else ', extrapolated'}; {bits[0].mean():.1f} of secrets that it "
            f"never saw ({CHANCE_BITS:.1f} is chance). "
            f"{protection(promise, [k * per_copy for k in self.copies], self.copies)}"
        )
        if wrong:
            says += f" What it knows of secrets planted {wrong[0]}× is more than the promise allows."
        elif remembered:
            says += f" Those planted {' and '.join(f'{k}×' for k in remembered)} are remembered."
        means = [self._mean(bits[k]) for k in self.copies]
        ends = {end: [float(getattr(mean, end) or 0.0) for mean in means] for end in ("low", "value", "high")}
        verdict = Verdict.REFUTED if wrong else Verdict.LEAKS if remembered else Verdict.HOLDS
        return Finding(
            attack="exposure",
            grade=graded(verdict),
            verdict=verdict,
            says=says,
            does_not_show="that another text is safe: other attackers, prompts or more copies may bring out more",
            promise=promise,
            confidence=self.confidence,
            figures=figures,
            curves={"exposure": {"copies": [float(k) for k in self.copies], **ends}},
            causes=_causes.TRAINING if wrong else (),
            local=not subject.public,
        )

    def _mean(self, bits: NDArray[np.float64]) -> Figure:
        """The mean over secrets with Student's interval."""
        mean = float(bits.mean())
        half = float(t.ppf((1 + self.confidence) / 2, len(bits) - 1) * bits.std(ddof=1) / math.sqrt(len(bits)))
        return Figure(mean, max(0.0, mean - half), mean + half)


def exposure(rank: int, size: int) -> float:
    """log2 |R| − log2 rank, in bits.

    >>> exposure(1, 1024), exposure(1024, 1024)
    (10.0, 0.0)
    """
    return math.log2(size) - math.log2(rank)


def extrapolated(own: float, others: NDArray[np.float64]) -> float:
    """Exposure in bits from the log-likelihoods of a sample of other secrets.

    The share of secrets that are likelier follows from a skew-normal law with the sample's mean, variance and
    skewness. Far in its tail it is a guess: what was not sampled was not seen.

    Args:
        own: The secret's log-likelihood.
        others: Those of others, drawn from the space.

    Source: Carlini et al. (2019), arXiv:1802.08232, section 4.3; moments of Azzalini (1985).

    >>> round(extrapolated(0.0, np.linspace(-1, 1, 1001)), 1)
    1.0
    """
    mean, std = float(others.mean()), float(others.std())
    if std == 0:
        return 0.0 if own <= mean else math.inf
    # A skew-normal law reaches 0.995; a sample may be further off.
    skewness = float(np.clip(((others - mean) ** 3).mean() / std**3, -0.99, 0.99))
    power = abs(skewness) ** (2 / 3)
    slant = math.copysign(math.sqrt(math.pi / 2 * power / (power + ((4 - math.pi) / 2) ** (2 / 3))), skewness)
    scale = std / math.sqrt(1 - 2 * slant**2 / math.pi)
    place = mean - scale * slant * math.sqrt(2 / math.pi)
    shape = slant / math.sqrt(1 - slant**2)
    return float(-np.log2(max(skewnorm.sf(own, shape, place, scale), 1e-300)))
