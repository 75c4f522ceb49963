"""A language model's training that can be repeated with planted sequences, and what can be asked of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise

Tokens = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of tokens, one a row. What comes after a row's last counted token means nothing.

    Args:
        tokens: Shape (n, time). Of a classifier, the last token of a text is its label: `vocabulary` + class.
        counted: Which tokens are to be learnt, shape (n, time); the first of a row never is.

    >>> Sequences.of([[5, 6, 7], [5, 6]]).counted.tolist()
    [[False, True, True], [False, True, False]]
    """

    tokens: Tokens
    counted: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]] | NDArray[Any], last: int | None = None) -> Self:
        """Rows of tokens, of which all but the first are counted, or the `last` few."""
        width = max((len(row) for row in rows), default=0)
        tokens, counted = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), bool)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = row
            counted[i, 1 if last is None else len(row) - last : len(row)] = True
        return cls(tokens, counted)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Tokens:
        """One more than the place of each row's last counted token; 0 for a row without any."""
        places = np.arange(1, self.counted.shape[1] + 1)
        return np.asarray((places * self.counted).max(axis=1, initial=0))

    def take(self, rows: NDArray[Any]) -> Self:
        """The sequences at some rows, or where a mask is true; a row may come several times."""
        return type(self)(self.tokens[rows], self.counted[rows])


class Language(Protocol):
    """What is attacked. Everything but `own` and what is computed from it is about planted sequences alone.

    A trained model is whatever `train` returns: attacks hand it back and look no closer.
    """

    @property
    def promise(self) -> Promise | None:
        """What is promised to whoever owns a record, or None."""
        ...

    @property
    def seed(self) -> int:
        """Of the attack's own choices."""
        ...

    @property
    def public(self) -> bool:
        """Published texts: figures on trainings with them may leave the silo."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        ...

    @property
    def labels(self) -> int | None:
        """Number of classes, of a model that gives texts a label; None for one that continues them."""
        ...

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have at most, without a label."""
        ...

    @property
    def size(self) -> int:
        """Parameters of the whole network, also those that are not trained: what a question costs."""
        ...

    @property
    def start(self) -> Any:
        """The model before it was trained."""
        ...

    def used(self) -> Tokens:
        """Tokens that records hold, sorted, without the one that fills them up."""
        ...

    def unused(self) -> Tokens:
        """Tokens that no record holds, sorted, without the one that fills them up."""
        ...

    def encode(self, texts: Sequence[str]) -> Sequences:
        """Texts as the training would read them.

        Raises:
            DoesNotFit: A text is too long, or the model gives labels.
        """
        ...

    def own(self) -> Sequences:
        """The records that the model was trained on. Private."""
        ...

    def train(self, planted: Sequences, seed: int, *, keep: NDArray[np.bool_] | None = None) -> Any:
        """A model trained as the attacked one was, on other data.

        Args:
            planted: Joins the own records; each row is somebody else's, whom nothing else belongs to.
            seed: Another seed is another training: other noise, other batches.
            keep: Which of the own records take part, shape (len(own()),); left out, all.
        """
        ...

    def log_likelihoods(self, model: Any, sequences: Sequences, since: int = 1) -> NDArray[np.float64]:
        """The logarithm of each counted token's probability given those before it, NaN for other tokens.

        Args:
            model: From `train`, or `start`.
            sequences: Of n rows.
            since: The first place that is asked for, >= 1.

        Returns:
            Shape (n, time - since).
        """
        ...

    def next_token(self, model: Any, prefixes: Tokens) -> NDArray[np.float64]:
        """The logarithm of every next token's probability, shape (n, vocabulary), after prefixes of shape (n, t)."""
        ...

    def records_of(self, sequences: Sequences) -> int:
        """How many records of the training one of these sequences becomes: the largest number of them."""
        ...


def total(log_likelihoods: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each sequence as a whole: the sum over its counted tokens. Shape (n,)."""
    return np.asarray(np.nansum(log_likelihoods, axis=1))
