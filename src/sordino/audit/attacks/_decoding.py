"""What a model says after a prefix: the likeliest continuations, or draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.audit.subjects.language import Language, Tokens


def beam(subject: Language, model: Any, prefix: Tokens, length: int, width: int) -> Tokens:
    """The likeliest continuations that a beam of some width finds, best first; width 1 is greedy.

    Args:
        subject: Whose model it is.
        model: As `train` returned it.
        prefix: Shape (t,).
        length: Tokens to add.
        width: Continuations that are followed.

    Returns:
        Shape (at most `width`, length).
    """
    found, scores = np.asarray(prefix)[None, :], np.zeros(1)
    for _ in range(length):
        every = scores[:, None] + subject.next_token(model, found)
        kept = np.argsort(-every, axis=None, kind="stable")[:width]
        parents, tokens = np.unravel_index(kept, every.shape)
        found, scores = np.column_stack([found[parents], tokens]), every.reshape(-1)[kept]
    return found[:, len(prefix) :]


def sampled(subject: Language, model: Any, prefix: Tokens, length: int, count: int, rng: np.random.Generator) -> Tokens:
    """Independent continuations from the model's own distribution. Shape (count, length)."""
    found = np.repeat(np.asarray(prefix)[None, :], count, axis=0)
    for _ in range(length):
        # The largest of log p + Gumbel noise is a draw from p.
        draws = subject.next_token(model, found) + rng.gumbel(size=(count, subject.vocabulary))
        found = np.column_stack([found, draws.argmax(axis=1)])
    return found[:, len(prefix) :]
