"""Sequences as a model's records, and what it says of them: one form per kind of model.

form         sequence                 record(s)
Continued    to be or not             x = to be or   y = be or not          one record, every token foretold
Labelled     a fine film | good       x = a fine film   y = good            one record, the label foretold
Windowed     to be                    x = …to   y = ␣ ; x = …to␣   y = b    one record per token that is foretold
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Sequences, Tokens
from sordino.data import characters
from sordino.data.examples import IGNORE
from sordino.data.texts import Texts
from sordino.data.tokenise import encode
from sordino.local.models import InputSpec

if TYPE_CHECKING:
    from torch import nn

Records: TypeAlias = tuple[Tokens, Tokens]
"""Inputs and targets, one row per record."""

BLANK = 0
"""Fills windows up on the left, where nothing was written yet: the alphabet's line break."""


class Form(Protocol):
    """How a model's records hold sequences."""

    @property
    def spec(self) -> InputSpec:
        """Of one record."""
        ...

    @property
    def labels(self) -> int | None:
        """Number of classes, where texts are given a label."""
        ...

    @property
    def longest(self) -> int:
        """Tokens of a sequence at most, without a label."""
        ...

    def encoded(self, texts: Sequence[str]) -> Sequences:
        """Texts as sequences."""
        ...

    def sequences(self, x: Tokens, y: Tokens) -> Sequences:
        """Records as sequences, one each."""
        ...

    def records(self, sequences: Sequences) -> Records:
        """Sequences as records."""
        ...

    def records_of(self, sequences: Sequences) -> int:
        """How many records one of the sequences becomes, at most."""
        ...

    def log_likelihoods(self, module: nn.Module, sequences: Sequences, since: int) -> NDArray[np.float64]:
        """As `Language.log_likelihoods`, by a module that is at the model."""
        ...

    def next_token(self, module: nn.Module, prefixes: Tokens) -> NDArray[np.float64]:
        """As `Language.next_token`, by a module that is at the model."""
        ...


def form_of(spec: InputSpec) -> Form:
    """The form of a model's records.

    Raises:
        DoesNotFit: They are not sequences of tokens.
    """
    if spec.vocabulary is None or len(spec.shape) != 1:
        raise DoesNotFit("the records are not texts.")
    if spec.per_position:
        return Continued(spec)
    if spec.folder is not None:
        return Labelled(spec)
    if spec.classes == spec.vocabulary == len(characters.ALPHABET):
        return Windowed(spec)
    raise DoesNotFit("the model neither continues texts nor reads them by a pretrained network.")


class _OneEach:
    """A sequence is one record."""

    def records_of(self, sequences: Sequences) -> int:  # noqa: ARG002 - the protocol's
        return 1


@dataclass(frozen=True)
class Continued(_OneEach):
    """Every token is foretold from those before it."""

    spec: InputSpec

    @property
    def labels(self) -> int | None:
        return None

    @property
    def longest(self) -> int:
        return self.spec.shape[0] + 1

    def encoded(self, texts: Sequence[str]) -> Sequences:
        folder = Path(str(self.spec.folder))
        if not texts:
            return Sequences.of([])
        read = encode(Texts(tuple(texts)), folder, length=self.spec.shape[0], task="continue")
        if (read.y[:, -1] != IGNORE).any():  # perhaps it was cut
            raise DoesNotFit(f"a planted text fills the {self.spec.shape[0]} tokens that the model reads.")
        return self.sequences(read.x, read.y)

    def sequences(self, x: Tokens, y: Tokens) -> Sequences:
        after = np.column_stack([x[:, 1:], np.zeros(len(x), np.int64)])
        nothing = np.zeros((len(x), 1), dtype=bool)
        tokens = np.column_stack([x[:, :1], np.where(y == IGNORE, after, y)])
        return Sequences(tokens, np.column_stack([nothing, y != IGNORE]))

    def records(self, sequences: Sequences) -> Records:
        length = self.spec.shape[0]
        x = np.full((len(sequences), length), self.spec.padding or 0, np.int64)
        y = np.full(x.shape, IGNORE, np.int64)
        for row, end in enumerate(_ends(sequences, self.longest)):
            tokens, counted = sequences.tokens[row, :end], sequences.counted[row, 1:end]
            x[row, : max(end - 1, 0)] = tokens[:-1]
            y[row, : max(end - 1, 0)] = np.where(counted, tokens[1:], IGNORE)
        return x, y

    def log_likelihoods(self, module: nn.Module, sequences: Sequences, since: int) -> NDArray[np.float64]:
        import torch

        from sordino.local.evaluate import evaluating
        from sordino.local.passes import records_per_pass
        from sordino.local.trainers._data import tensor

        width = sequences.tokens.shape[1]
        result = np.full((len(sequences), max(0, width - since)), np.nan)
        if not result.size:
            return result
        x, y = (tensor(module, part[:, : width - 1]) for part in self.records(sequences))
        with torch.no_grad(), evaluating(module):
            for rows in torch.split(torch.arange(len(x)), records_per_pass(module, x, _RECORDS)):
                said = module(x[rows])[:, since - 1 :].double().log_softmax(dim=-1)
                wanted = y[rows, since - 1 :]
                each = said.gather(2, wanted.clamp(min=0)[:, :, None]).squeeze(2)
                result[rows, : each.shape[1]] = torch.where(wanted == IGNORE, torch.nan, each).cpu().numpy()
        return result

    def next_token(self, module: nn.Module, prefixes: Tokens) -> NDArray[np.float64]:
        import torch

        from sordino.local.evaluate import evaluating
        from sordino.local.passes import records_per_pass
        from sordino.local.trainers._data import tensor

        x = tensor(module, prefixes[:, -self.spec.shape[0] :])
        with torch.no_grad(), evaluating(module):
            parts = torch.split(x, records_per_pass(module, x, _RECORDS))
            said = torch.cat([module(part)[:, -1] for part in parts])
            return np.asarray(said.double().log_softmax(dim=-1).cpu().numpy())


_RECORDS = 256
"""Sequences in one pass of a model that does not say how many it can take."""


@dataclass(frozen=True)
class Labelled(_OneEach):
    """A text's label is foretold: class c is the token `vocabulary` + c behind it."""

    spec: InputSpec

    @property
    def labels(self) -> int | None:
        return self.spec.classes

    @property
    def longest(self) -> int:
        return self.spec.shape[0]

    def _refuse(self, *_: object) -> NoReturn:
        raise DoesNotFit("the model gives texts a label, and does not continue them.")

    encoded = next_token = _refuse

    def sequences(self, x: Tokens, y: Tokens) -> Sequences:
        tokens = np.column_stack([x, _vocabulary(self.spec) + y])
        counted = np.zeros(tokens.shape, dtype=bool)
        counted[:, -1] = True
        return Sequences(tokens, counted)

    def records(self, sequences: Sequences) -> Records:
        x = np.full((len(sequences), self.longest), self.spec.padding or 0, np.int64)
        y = np.zeros(len(sequences), np.int64)
        for row, end in enumerate(_ends(sequences, self.longest + 1)):
            x[row, : end - 1] = sequences.tokens[row, : end - 1]
            y[row] = sequences.tokens[row, end - 1] - _vocabulary(self.spec)
        return x, y

    def log_likelihoods(self, module: nn.Module, sequences: Sequences, since: int) -> NDArray[np.float64]:
        x, y = self.records(sequences)
        result = np.full(sequences.tokens.shape, np.nan)
        result[np.arange(len(y)), sequences.lengths - 1] = _log_scores(module, x)[np.arange(len(y)), y]
        return result[:, since:]


@dataclass(frozen=True)
class Windowed:
    """The character after a window is foretold: a text becomes as many records as it has characters to foretell."""

    spec: InputSpec

    @property
    def labels(self) -> int | None:
        return None

    @property
    def longest(self) -> int:
        return self.spec.shape[0] + 1

    def encoded(self, texts: Sequence[str]) -> Sequences:
        rows = [characters.tokens(text) for text in texts]
        if any((row < 0).any() for row in rows):
            raise DoesNotFit("a planted text has a character that is not in the model's alphabet.")
        return Sequences.of([row.tolist() for row in rows])

    def sequences(self, x: Tokens, y: Tokens) -> Sequences:
        tokens = np.column_stack([x, y])
        counted = np.zeros(tokens.shape, dtype=bool)
        counted[:, -1] = True
        return Sequences(tokens, counted)

    def records(self, sequences: Sequences) -> Records:
        rows, places = np.nonzero(sequences.counted)
        return self._windows(sequences, rows, places), sequences.tokens[rows, places]

    def records_of(self, sequences: Sequences) -> int:
        return int(sequences.counted.sum(axis=1).max(initial=1))

    def log_likelihoods(self, module: nn.Module, sequences: Sequences, since: int) -> NDArray[np.float64]:
        result = np.full(sequences.tokens.shape, np.nan)
        rows, places = np.nonzero(sequences.counted)
        rows, places = rows[places >= since], places[places >= since]
        # Candidates for a secret have beginnings in common: each window is asked for once.
        windows, which = np.unique(self._windows(sequences, rows, places), axis=0, return_inverse=True)
        result[rows, places] = _log_scores(module, windows)[which.ravel(), sequences.tokens[rows, places]]
        return result[:, since:]

    def next_token(self, module: nn.Module, prefixes: Tokens) -> NDArray[np.float64]:
        last = np.arange(len(prefixes))
        return _log_scores(module, self._windows(_whole(prefixes), last, np.full(len(prefixes), prefixes.shape[1])))

    def _windows(self, sequences: Sequences, rows: Tokens, places: Tokens) -> Tokens:
        """What stands before some places, filled up on the left. Shape (len(rows), length)."""
        length = self.spec.shape[0]
        blank = np.full((len(sequences), length), BLANK, np.int64)
        padded = np.column_stack([blank, sequences.tokens])
        return np.asarray(padded[rows[:, None], places[:, None] + np.arange(length)])


def _whole(tokens: Tokens) -> Sequences:
    return Sequences(tokens, np.ones(tokens.shape, dtype=bool))


def _vocabulary(spec: InputSpec) -> int:
    return int(spec.vocabulary or 0)


def _ends(sequences: Sequences, most: int) -> list[int]:
    """Where each sequence ends, if all are short enough."""
    if (longest := int(sequences.lengths.max(initial=0))) > most:
        raise DoesNotFit(f"a sequence of {longest} tokens is longer than the model reads.")
    return [int(end) for end in sequences.lengths]


def _log_scores(module: nn.Module, x: NDArray[Any]) -> NDArray[np.float64]:
    """Log-probabilities of the classes, shape (n, classes)."""
    from sordino.local.evaluate import scores

    return np.asarray(np.log(np.maximum(scores(module, x), 1e-300)))
