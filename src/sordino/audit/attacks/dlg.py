"""Deep leakage from gradients: search records whose gradient is the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.attacks._inversion import report, require_numbers
from sordino.audit.findings import Finding, Grade
from sordino.audit.subjects.message import Message
from sordino.core import checks


@attacks.register("dlg")
@dataclass(frozen=True)
class Dlg:
    """Records by L-BFGS on the squared distance of gradients, labels known.

    It fits the gradient's length too, so clipping alone makes it fail although nothing is protected: never judge a
    run by this attack alone. Labels are given, as by `label_inference` (iDLG), which makes the attack stronger.

    Args:
        messages: How many are attacked.
        steps: L-BFGS iterations.

    Source: Zhu et al. (2019), arXiv:1906.08935; Zhao et al. (2020), arXiv:2001.02610.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Kind] = Kind.MESSAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    messages: int = 4
    steps: int = 100

    def __post_init__(self) -> None:
        checks.count("attack.dlg", messages=self.messages, steps=self.steps)

    def run(self, subject: Message, progress: Progress) -> Finding:
        require_numbers(subject)
        from sordino.audit.attacks._matching import by_distance

        batches = subject.batches[: self.messages]
        rebuilt = {}
        for protection in subject.protections:
            progress(f"messages under {protection.label}")
            rebuilt[protection.name] = [by_distance(subject, batch, protection, self.steps) for batch in batches]
        return report("dlg", subject, batches, rebuilt)
