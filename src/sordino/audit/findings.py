"""What an attack found, with its grade, its confidence, and what it does not show. Written as `findings.json`.

Three kinds of statement are never mixed (`Grade`); every number that an audit prints stands in a `Finding`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sordino.audit.promise import Promise
from sordino.core.errors import VerificationError


class Grade(enum.StrEnum):
    """What kind of statement a number makes."""

    FALSIFICATION = "falsification"
    """The claimed curve is false, whatever the mechanism, with the stated confidence."""
    CONFORMANCE = "conformance"
    """This is not the mechanism that it says it is; valid if it were exactly the declared one."""
    LEAKAGE = "leakage"
    """How well an attack does. Says nothing about epsilon: low success proves nothing."""


class Verdict(enum.StrEnum):
    """What follows from a finding."""

    HOLDS = "holds"
    """Nothing found against the promise. Not a proof of it."""
    LEAKS = "leaks"
    """The attack succeeds; no promise is contradicted, or none was made."""
    REFUTED = "refuted"
    """The promise, or the declared mechanism, does not hold."""
    SKIPPED = "skipped"
    """The attack does not fit this run; `says` tells why."""
    WITHHELD = "withheld"
    """It depends on private records, so not even what follows is told where everybody may read it."""


@dataclass(frozen=True)
class Figure:
    """One measured number, with a confidence interval where it has one.

    Args:
        value: The number.
        low: Lower end of its interval, or None.
        high: Upper end of its interval, or None.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Picture:
    """An image that a report can show.

    Args:
        name: File name without folder, e.g. `cosine-tv-z1.png`.
        caption: What is to be seen, in a sentence.
        png: The file's bytes.
    """

    name: str
    caption: str
    png: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer of one attack.

    Args:
        attack: Its registered name, or the sensor's or check's.
        grade: What kind of statement this is.
        verdict: What follows.
        says: The result in one plain sentence.
        does_not_show: What must not be concluded from it, in one sentence.
        promise: What was attacked, or None where nothing was promised.
        lower_bound: On epsilon at the promise's delta, where the attack gives one.
        confidence: Of the bound or the verdict, in (0, 1), e.g. 0.95.
        figures: Measured numbers by name.
        curves: Series to draw by name, each a mapping of equally long lists, such as fpr, tpr and ceiling.
        pictures: Images to show.
        causes: Likely causes, most likely first, when refuted.
        local: The figures depend on private records otherwise than through what the run released: they may not leave
            the silo. Canaries do not, neither alone nor asked of the released model.
        cpu_seconds: What the attack cost.
    """

    attack: str
    grade: Grade
    verdict: Verdict
    says: str
    does_not_show: str
    promise: Promise | None = None
    lower_bound: float | None = None
    confidence: float | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, list[float]]] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    causes: tuple[str, ...] = ()
    local: bool = False
    cpu_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.says or not self.does_not_show:
            raise VerificationError.about("finding", "must say what it shows and what it does not", attack=self.attack)
        if self.lower_bound is not None and self.confidence is None:
            raise VerificationError.about("finding", "gives a bound without its confidence", attack=self.attack)
        if self.grade is Grade.LEAKAGE and (self.verdict is Verdict.REFUTED or self.lower_bound is not None):
            rule = "speaks of epsilon, which leakage says nothing about"
            raise VerificationError.about("finding", rule, "grade it by `graded`", attack=self.attack)

    @property
    def shows_not(self) -> str:
        """`does_not_show` as the end of a sentence that begins "Does not show"."""
        return self.does_not_show[:1].lower() + self.does_not_show[1:].rstrip(".")

    @property
    def above_claim(self) -> bool:
        """The lower bound exceeds what was promised."""
        return self.lower_bound is not None and self.promise is not None and self.lower_bound > self.promise.epsilon


def graded(verdict: Verdict) -> Grade:
    """Of an attack that measures leakage: if it refutes a promise, that is another kind of statement.

    >>> graded(Verdict.LEAKS), graded(Verdict.REFUTED)
    (<Grade.LEAKAGE: 'leakage'>, <Grade.FALSIFICATION: 'falsification'>)
    """
    return Grade.FALSIFICATION if verdict is Verdict.REFUTED else Grade.LEAKAGE


def withheld(finding: Finding) -> Finding:
    """What may be said of a local finding where everybody may read it: that it was made, and nothing else.

    Its verdict is computed from private records too, and went through no door; a grade and causes would tell it.
    """
    return Finding(
        attack=finding.attack,
        grade=Grade.LEAKAGE,
        verdict=Verdict.WITHHELD,
        says="What it found depends on private records; it is kept in findings/local/, which may not leave the silo.",
        does_not_show="anything: it is not told here",
        promise=finding.promise,
        local=True,
    )


def by_chance(found: Sequence[Finding]) -> tuple[int, float]:
    """How many findings could have refuted a promise, and how likely one of them would by chance alone, at most.

    Each is right with its own confidence, and whoever runs many looks many times. Therefore a refutation stands only if
    a second attempt with fresh randomness repeats it. What asks the run's own model cannot be fresh.
    """
    asked = [f.confidence for f in found if f.promise is not None and f.confidence and f.verdict is not Verdict.SKIPPED]
    return len(asked), min(1.0, sum((1 - confidence) ** 2 for confidence in asked))


def skipped(attack: str, grade: Grade, reason: str) -> Finding:
    """The finding of an attack that does not fit."""
    return Finding(
        attack=attack,
        grade=grade,
        verdict=Verdict.SKIPPED,
        says=reason,
        does_not_show="anything: it was not run",
    )


def file_of(finding: Finding, picture: Picture) -> str:
    """Where a picture lies in the run folder: those that may not leave the silo apart from the others."""
    return f"findings/{'local/' if finding.local else ''}{picture.name}"


def to_plain(finding: Finding) -> dict[str, Any]:
    """A finding as JSON-able values; pictures by name."""
    promise = finding.promise
    return {
        "attack": finding.attack,
        "grade": finding.grade.value,
        "verdict": finding.verdict.value,
        "says": finding.says,
        "does_not_show": finding.does_not_show,
        "promise": promise.to_plain() if promise is not None else None,
        "lower_bound": _finite(finding.lower_bound),
        "confidence": finding.confidence,
        "figures": {
            name: {"value": _finite(f.value), "low": _finite(f.low), "high": _finite(f.high)}
            for name, f in finding.figures.items()
        },
        "curves": {name: {k: [_finite(v) for v in vs] for k, vs in c.items()} for name, c in finding.curves.items()},
        "pictures": [{"file": file_of(finding, p), "caption": p.caption} for p in finding.pictures],
        "causes": list(finding.causes),
        "local": finding.local,
        "cpu_seconds": round(finding.cpu_seconds, 3),
    }


def _finite(value: float | None) -> float | None:
    """JSON knows no infinity: what is not finite is left out."""
    return None if value is None or not math.isfinite(value) else float(value)
