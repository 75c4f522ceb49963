"""Inverting gradients: search smooth records whose gradient points where the message points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.attacks._inversion import report, require_numbers
from sordino.audit.findings import Finding, Grade
from sordino.audit.subjects.message import Message
from sordino.core import checks


@attacks.register("cosine_tv")
@dataclass(frozen=True)
class CosineTv:
    """Records by signed Adam on 1 − cosine of gradients + total variation, within the box of possible values.

    Clipping keeps a gradient's direction, so it does not hinder this attack. Labels are given. All messages are
    inverted side by side, since none influences another.

    Args:
        messages: How many are attacked.
        steps: Of Adam.
        lr: First step size; a tenth of it after 3/8, 5/8 and 7/8 of the steps each.
        smoothness: Weight of the total variation of images; rows of tables have none.

    Source: Geiping et al. (2020), arXiv:2003.14053.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Kind] = Kind.MESSAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    messages: int = 4
    steps: int = 300
    lr: float = 0.1
    smoothness: float = 0.01

    def __post_init__(self) -> None:
        checks.count("attack.cosine_tv", messages=self.messages, steps=self.steps)
        checks.positive("attack.cosine_tv", lr=self.lr)
        checks.non_negative("attack.cosine_tv", smoothness=self.smoothness)

    def run(self, subject: Message, progress: Progress) -> Finding:
        require_numbers(subject)
        from sordino.audit.attacks._matching import by_direction

        batches = [batch for batch in subject.batches if batch.x.shape == subject.batches[0].x.shape][: self.messages]
        pairs = [(batch, protection) for protection in subject.protections for batch in batches]
        progress(f"{len(pairs)} messages, {self.steps} steps")
        found = iter(by_direction(subject, pairs, self.steps, self.lr, self.smoothness))
        rebuilt = {protection.name: [next(found) for _ in batches] for protection in subject.protections}
        return report("cosine_tv", subject, batches, rebuilt)
