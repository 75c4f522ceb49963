"""Which tokens a text had, from the span of the first layer's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from scipy import stats

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Batch, Content, Message
from sordino.core import checks

if TYPE_CHECKING:
    from sordino.audit.attacks._prefix import Text
    from sordino.audit.attacks._span import Answer, Spans

FALSE_ALARM = 1e-3
"""Chance that a ranking which knows nothing is called a leak."""

DOES_NOT_SHOW = (
    "That a run is safe where the attack fails: the span check dies at a noise multiplier of 0.1, where epsilon is "
    "284, and attacks with a language model's prior could do better. Success contradicts no promise by itself"
)


@attacks.register("token_span")
@dataclass(frozen=True)
class TokenSpan:
    """Tokens whose input to the first layer lies in the span of that layer's gradient; for embeddings, changed rows.

    The gradient of a linear map is a sum over places of (error) × (input), so its rows span the inputs that occurred.
    In the first layer an input depends on token and place alone, and every token of the vocabulary can be tried.
    For LoRA that holds of A (nothing in round 1, where B is 0) and of B (whose inputs are A·x): a smaller rank gives
    a smaller span. How many directions are signal follows from the known noise and rounding, not from the truth.

    Args:
        messages: How many are attacked.
        places: Most places of a text that are tried.

    Where the next layer is trained too, texts grow token by token by the same test on its inputs, which depend on all
    tokens before: then their order comes out as well.

    Source: Petrov et al. (2024), arXiv:2405.15586 (DAGER).
    """

    example: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Kind] = Kind.MESSAGE
    grade: ClassVar[Grade] = Grade.LEAKAGE
    messages: int = 4
    places: int = 128

    def __post_init__(self) -> None:
        checks.count("attack.token_span", messages=self.messages, places=self.places)

    def run(self, subject: Message, progress: Progress) -> Finding:
        if subject.content is not Content.TEXT:
            raise DoesNotFit("the records are no texts, so they have no tokens.")
        from sordino.audit.attacks._prefix import Orders
        from sordino.audit.attacks._span import Spans

        batches = subject.batches[: self.messages]
        progress("inputs of the first layer for every token")
        spans = Spans.of(subject, self.places)
        orders, scores = Orders.of(subject, spans), {}
        for protection in subject.protections:
            progress(f"messages under {protection.label}")
            answers = [spans.answer(subject, batch, protection) for batch in batches]
            texts = [
                orders.texts(subject, spans, batch, protection, answer)
                for batch, answer in zip(batches, answers, strict=True)
            ]
            scores[protection.name] = Score.of(answers, texts, batches, spans)
        leaks = {name: score.leaks for name, score in scores.items()}
        verdict = Verdict.LEAKS if leaks[subject.audited] else Verdict.HOLDS if leaks[NOTHING] else Verdict.SKIPPED
        chance = scores[NOTHING].chance
        return Finding(
            attack="token_span",
            grade=Grade.LEAKAGE,
            verdict=verdict,
            says=_says(subject, verdict, scores),
            does_not_show=DOES_NOT_SHOW,
            promise=subject.promise,
            confidence=1 - FALSE_ALARM,
            figures={key: f for name, s in scores.items() for key, f in s.figures(name).items()}
            | {"top-k recall by chance": Figure(chance)},
            local=not subject.public,
        )


@dataclass(frozen=True)
class Score:
    """How much of the texts came out, over all batches.

    Args:
        recall: Share of the distinct tokens that the exact check found.
        precision: Share of what it found that is right; None where it found nothing.
        top: Share of the tokens among as many best-ranked ones as there are.
        chance: The same for a random ranking.
        ordered: Share of all tokens that were put at their right place of a text.
        leaks: Top-k hits are more than a random ranking gives, with a false alarm rate of `FALSE_ALARM`.
    """

    recall: float
    precision: float | None
    top: float
    chance: float
    ordered: float
    leaks: bool

    @classmethod
    def of(
        cls, answers: Sequence[Answer], texts: Sequence[list[Text]], batches: Sequence[Batch], spans: Spans
    ) -> Score:
        """The score of some answers."""
        from sordino.audit.attacks._prefix import in_place

        truths = [spans.tokens(batch.x) for batch in batches]
        true = sum(map(len, truths))
        found = sum(len(answer.found) for answer in answers)
        right = sum(len(answer.found & truth) for answer, truth in zip(answers, truths, strict=True))
        top = sum(len(answer.best(len(truth)) & truth) for answer, truth in zip(answers, truths, strict=True))
        chance = sum(len(truth) ** 2 for truth in truths) / (true * spans.vocabulary)
        # Without replacement hits vary less than a binomial count, so the test errs on the side of silence.
        luck = float(stats.binom.sf(top - 1, true, chance))
        placed = [in_place(batch.x, each, spans.padding) for batch, each in zip(batches, texts, strict=True)]
        return cls(
            recall=right / true,
            precision=right / found if found else None,
            top=top / true,
            chance=chance,
            ordered=sum(hits for hits, _ in placed) / sum(counted for _, counted in placed),
            leaks=luck < FALSE_ALARM,
        )

    def figures(self, name: str) -> dict[str, Figure]:
        """The figures under a protection's name."""
        named = {
            "recall": self.recall,
            "precision": self.precision,
            "top-k recall": self.top,
            "in place": self.ordered,
        }
        return {f"{key} {name}": Figure(value) for key, value in named.items() if value is not None}


def _says(message: Message, verdict: Verdict, scores: Mapping[str, Score]) -> str:
    label, own, plain = message.protection(message.audited).label, scores[message.audited], scores[NOTHING]
    if verdict is Verdict.SKIPPED:
        return "No token is found even without any protection, so the attack says nothing about this run."
    if verdict is Verdict.LEAKS:
        return (
            f"Messages under {label} tell which tokens a text has: {own.recall:.0%} of them for "
            f"certain, {own.top:.0%} among the likeliest (chance: {own.chance:.1%}), {own.ordered:.0%} at their place."
        )
    return (
        f"Messages under {label} do not tell a text's tokens: {own.top:.1%} among the likeliest, "
        f"chance is {own.chance:.1%}. Without any protection it is {plain.top:.0%}."
    )
