"""The plainest attack: a record with a small loss was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.attacks._judged import Words, judged
from sordino.audit.attacks._membership import play
from sordino.audit.findings import Finding, Grade
from sordino.audit.subjects.records import Records
from sordino.core import checks


@attacks.register("loss_threshold")
@dataclass(frozen=True)
class LossThreshold:
    """Records whose loss lies below a threshold are said to be members. Needs no reference models.

    Only a baseline: it takes records that are easy for members, and misses those that a model had to learn by heart.

    Args:
        targets: Models under attack, each trained on a random half of the records.
        confidence: Of intervals and verdict.

    Source: Yeom et al. (2018), arXiv:1709.01604.
    """

    example: ClassVar[Mapping[str, Any]] = {"targets": 8}
    kind: ClassVar[Kind] = Kind.RECORDS
    grade: ClassVar[Grade] = Grade.LEAKAGE
    targets: int = 8
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("loss_threshold", targets=self.targets)
        checks.fraction("loss_threshold", confidence=self.confidence)

    @property
    def trainings(self) -> int:
        """Models that are trained."""
        return self.targets

    def run(self, subject: Records, progress: Progress) -> Finding:
        game = play(subject, self.targets, 0, progress)
        words = Words(
            "loss_threshold",
            "An attacker who takes small losses for members",
            "what an attacker with reference models finds: where this one finds nothing at 1 % false alarms, LiRA was "
            "seen to find 13 % of the members; never judge by it alone",
        )
        return judged(words, subject, game.coins, game.log_p[: self.targets], self.confidence)
