"""Which labels a batch had, from the last layer's gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Batch, Message
from sordino.core import checks
from sordino.core.seeds import stream

FALSE_ALARM = 1e-3
"""Chance that labels which a message does not tell are called leaked."""

DOES_NOT_SHOW = (
    "More than labels, which an attacker often knows anyway. Attack failure is not evidence of DP, and success "
    "contradicts no promise by itself: a guarantee bounds the odds, and single messages of a good run may still tell "
    "labels better than chance"
)


@attacks.register("label_inference")
@dataclass(frozen=True)
class LabelInference:
    """Labels from the gradient of the logits: only a class that is there pulls its own logit up.

    The gradient of the bias (or, without one, the size of a weight's rows) is the mean of probability minus presence.
    A class that is not there shows the probability alone, which gives the unknown factor of a clip; then classes are
    taken one by one, the most present first.

    Args:
        messages: How many are attacked.

    Source: Zhao et al. (2020), arXiv:2001.02610 (iDLG), for one record; row sums as in Wainakh et al. (2021),
        arXiv:2105.09369, for several.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Kind] = Kind.MESSAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    messages: int = 32

    def __post_init__(self) -> None:
        checks.count("attack.label_inference", messages=self.messages)

    def run(self, subject: Message, progress: Progress) -> Finding:
        batches = subject.batches[: self.messages]
        if batches[0].y.ndim > 1:
            raise DoesNotFit("every place of a text has a label of its own: token_span attacks texts.")
        figures, chances = {}, {}
        for protection in subject.protections:
            progress(f"messages under {protection.label}")
            said = [labels(subject, subject.gradient(batch, protection), len(batch.y)) for batch in batches]
            figures[f"accuracy {protection.name}"] = _accuracy(said, batches)
            chances[protection.name] = _by_chance(said, batches)
        figures["accuracy by chance"] = Figure(chances[subject.audited][0])
        beaten = {name: chance[1] <= FALSE_ALARM for name, chance in chances.items()}
        verdict = Verdict.LEAKS if beaten[subject.audited] else Verdict.HOLDS if beaten[NOTHING] else Verdict.SKIPPED
        return Finding(
            attack="label_inference",
            grade=Grade.LEAKAGE,
            verdict=verdict,
            says=_says(subject, verdict, figures),
            does_not_show=DOES_NOT_SHOW,
            promise=subject.promise,
            confidence=1 - FALSE_ALARM,
            figures=figures,
            local=not subject.public,
        )


def labels(message: Message, gradient: NDArray[np.float64], records: int) -> list[int]:
    """As many labels as there are records, most certain first.

    Args:
        message: For the model.
        gradient: The attacker's estimate of the batch's mean gradient, shape (d,), up to a factor > 0.
        records: How many there are.
    """
    from sordino.audit.attacks._layers import last_layer

    bias, weight, outputs = last_layer(message)
    if bias is not None:
        pull = gradient[bias.start : bias.stop]
    else:  # of one record, the true class has the longest row: its pull outweighs all others together
        pull = -np.linalg.norm(gradient[weight.start : weight.stop].reshape(outputs, -1), axis=1)
    if outputs == 1:
        pull = np.array([-pull[0], pull[0]])
    absent = max(float(pull.max()), 1e-300) if bias is not None else 1.0
    present = records * (1 - pull / absent) / len(pull)
    found = []
    for _ in range(records):
        found.append(int(np.argmax(present)))
        present[found[-1]] -= 1
    return found


def _hits(said: Sequence[int], truth: NDArray[np.int64]) -> int:
    """How many labels agree, in whatever order."""
    return (Counter(said) & Counter(truth.tolist())).total()


def _accuracy(said: Sequence[Sequence[int]], batches: Sequence[Batch]) -> Figure:
    """Share of right labels, with a 95 % Clopper-Pearson interval."""
    hits = sum(_hits(each, batch.y) for each, batch in zip(said, batches, strict=True))
    tried = sum(len(batch.y) for batch in batches)
    interval = stats.binomtest(hits, tried).proportion_ci(0.95)
    return Figure(hits / tried, float(interval.low), float(interval.high))


def _by_chance(said: Sequence[Sequence[int]], batches: Sequence[Batch], tries: int = 4000) -> tuple[float, float]:
    """Accuracy when answers are dealt to messages at random, and how often that is as good as what was seen."""
    table = np.array([[_hits(each, batch.y) for batch in batches] for each in said])
    rng, places = stream(0, "label_inference"), np.arange(len(batches))
    dealt = np.array([table[places, rng.permutation(len(batches))].sum() for _ in range(tries)])
    as_good = int((dealt >= np.trace(table)).sum())
    return float(dealt.mean() / sum(len(batch.y) for batch in batches)), (1 + as_good) / (1 + tries)


def _says(message: Message, verdict: Verdict, figures: Mapping[str, Figure]) -> str:
    label = message.protection(message.audited).label
    reached, chance = figures[f"accuracy {message.audited}"].value, figures["accuracy by chance"].value
    control = figures[f"accuracy {NOTHING}"].value
    if verdict is Verdict.SKIPPED:
        return "Labels are not found even without any protection, or too few messages differ in them: it says nothing."
    if verdict is Verdict.LEAKS:
        return f"Messages under {label} tell {reached:.0%} of the labels; chance is {chance:.0%}."
    return (
        f"Messages under {label} tell {reached:.0%} of the labels, not significantly more than chance ({chance:.0%}); "
        f"without any protection they tell {control:.0%}."
    )
