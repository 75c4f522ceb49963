"""Read a record off the first linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.attacks._inversion import report, require_numbers
from sordino.audit.findings import Finding, Grade
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import Batch, Message, Protection
from sordino.core import checks


@attacks.register("linear_inversion")
@dataclass(frozen=True)
class LinearInversion:
    """A record exactly, from a linear layer's weights and biases: x = dW[i] / db[i] for every unit i.

    All units say the same x, each with noise of its own; the least-squares answer Σ db[i] dW[i] / Σ db[i]² weighs the
    loud ones most. Dividing cancels any clip. Only messages of a single record are read: of several, rows are mixtures.

    Args:
        messages: How many are attacked.

    Source: Phong et al. (2018), IEEE TIFS 13(5); Geiping et al. (2020), arXiv:2003.14053.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Kind] = Kind.MESSAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    messages: int = 16

    def __post_init__(self) -> None:
        checks.count("attack.linear_inversion", messages=self.messages)

    def run(self, subject: Message, progress: Progress) -> Finding:
        require_numbers(subject)
        from sordino.audit.attacks._layers import first_linear

        layer = first_linear(subject)
        batches = [batch for batch in subject.batches if len(batch.y) == 1][: self.messages]
        if not batches:
            raise DoesNotFit("every message is of several records, whose rows are mixtures.")
        rebuilt = {}
        for protection in subject.protections:
            progress(f"messages under {protection.label}")
            rebuilt[protection.name] = [_read(subject, batch, protection, layer) for batch in batches]
        return report("linear_inversion", subject, batches, rebuilt)


def _read(message: Message, batch: Batch, protection: Protection, layer: tuple[slice, slice]) -> NDArray[np.float64]:
    """The record behind one message, with a batch axis."""
    gradient = message.gradient(batch, protection)
    bias = gradient[layer[1]]
    weight = gradient[layer[0]].reshape(len(bias), -1)
    found: NDArray[np.float64] = bias @ weight / max(float(bias @ bias), 1e-300)
    return found.reshape(batch.x.shape)
