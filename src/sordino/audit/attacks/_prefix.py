"""Whole texts from their tokens: prefixes grow by the token that keeps the next layer's input in its gradient's span.

tokens found ──► "a", "b", … ──next layer's input near its span?──► kept ──► "ab", "ac", … ──► texts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from sordino.audit.attacks._span import SURE, Answer, Spans, directions, distances, nearness, seen
from sordino.audit.subjects.message import Batch, Message, Protection
from sordino.core.seeds import stream

SAME = 1e-5
"""Cosines this near to 1 are those of the same input."""

Text: TypeAlias = tuple[int, ...]

MOST = 64
"""Tokens that are tried at each place."""

KEPT = 4
"""Prefixes that are kept for each text of a batch."""

RANDOM = 64
"""Random texts that show what the next layer's inputs usually look like."""


@dataclass(frozen=True, eq=False)
class Orders:
    """The next layer's maps of a model, and what they are usually given.

    Args:
        parts: By name, trained maps that see a token and those before it.
        usual: By name, inputs of unit length for random texts, shape (RANDOM, length, width).
        length: Places of a text.
    """

    parts: dict[str, nn.Module]
    usual: dict[str, Tensor]
    length: int

    @classmethod
    def of(cls, message: Message, spans: Spans) -> Orders:
        """Those of a message's model; there may be none."""
        # The first maps are the nearest to the tokens: A and B of queries and of values, or the next two layers' maps.
        names = list(spans.deep)[:4]
        parts = {name: message.module.get_submodule(name) for name in names}
        length = message.batches[0].x.shape[1]
        drawn = stream(0, "usual texts").integers(spans.vocabulary, size=(RANDOM, length))
        usual = _given(message.module, parts, torch.from_numpy(drawn)) if parts else {}
        return cls(parts, usual, length)

    def texts(self, message: Message, spans: Spans, batch: Batch, protection: Protection, answer: Answer) -> list[Text]:
        """As many texts as a batch has, or the beginnings that are sure; none where tokens or spans are not."""
        bases = self._bases(message, spans, batch, protection)
        tokens = [token for token in np.argsort(answer.luck, kind="stable")[:MOST].tolist() if token in answer.found]
        beam: list[Text] = [()]
        while bases and tokens and len(beam[0]) < self.length:
            longer = [(*prefix, token) for prefix in beam for token in tokens]
            luck = self._luck(message.module, bases, longer)
            sure = [i for i in np.argsort(luck, kind="stable") if luck[i] < np.log(SURE / len(longer))]
            if not sure:
                break
            beam = [longer[i] for i in sure[: KEPT * len(batch.x)]]
        return beam[: len(batch.x)] if beam[0] else []

    def _bases(self, message: Message, spans: Spans, batch: Batch, protection: Protection) -> dict[str, Tensor]:
        """By a map's name, the span of its gradient where that is signal and leaves room."""
        gradient, bases = message.gradient(batch, protection), {}
        for name in self.parts:
            each = spans.deep[name]
            rows, rank = directions(each.matrix(gradient), spans.floor(each, protection))
            if rank:
                bases[name] = torch.from_numpy(rows[:rank])
        return bases

    def _luck(self, module: nn.Module, bases: dict[str, Tensor], prefixes: Sequence[Text]) -> NDArray[np.float64]:
        """The log of how rarely a prefix that did not occur looks as present, shape (prefixes,)."""
        place = len(prefixes[0]) - 1
        given = _given(module, {name: self.parts[name] for name in bases}, torch.tensor(prefixes))
        luck, still = [], np.zeros(len(prefixes), dtype=bool)
        for name, basis in bases.items():
            usual = float(np.median(distances(self.usual[name][:, place], basis)))
            last, earlier = given[name][:, -1], given[name][:, :-1]
            luck.append(nearness(distances(last, basis), usual, basis))
            # Of a repeated first token attention makes the same input again: near the span, and nothing new.
            still |= ((earlier @ last[:, :, None]).squeeze(-1) > 1 - SAME).any(dim=1).numpy()
        return np.where(still, 0.0, np.min(luck, axis=0))


def in_place(truth: NDArray[np.int64], found: Sequence[Text], padding: int | None) -> tuple[int, int]:
    """How many tokens stand at their right place, the texts matched as well as can be; and how many there are."""
    counted = int((truth != padding).sum())
    if not found:
        return 0, counted
    right = np.zeros((len(truth), len(found)), dtype=np.int64)
    for j, text in enumerate(found):
        right[:, j] = (truth[:, : len(text)] == np.array(text)).sum(axis=1)
    return int(right[linear_sum_assignment(right, maximize=True)].sum()), counted


def _given(module: nn.Module, parts: dict[str, nn.Module], tokens: Tensor) -> dict[str, Tensor]:
    return {name: nn.functional.normalize(x, dim=-1) for name, x in seen(module, parts, tokens).items()}
