"""A tiny language: an n-gram network over characters, trained by the real private steps, sound or with a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sordino.audit.promise import Promise
from sordino.audit.subjects.language import Sequences
from sordino.core.seeds import stream
from sordino.core.types import Unit
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.local.clipping import engines
from sordino.local.layout import Layout
from sordino.local.losses import IGNORE
from sordino.local.models._torch import initialised
from sordino.local.objectives import objectives
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789."
NOTHING, VOCABULARY = 0, 64
"""Letters are tokens 1 to 38; the rest nobody uses."""


class NGram(nn.Module):
    """Logits of every next token from the last few: embedding, one hidden layer, output."""

    def __init__(self, context: int, hidden: int) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.hidden = nn.Linear(8 * context, hidden)
        self.output = nn.Linear(hidden, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        windows = functional.pad(tokens, (self.context - 1, 0), value=NOTHING).unfold(1, self.context, 1)
        return self.output(torch.tanh(self.hidden(self.embedding(windows).flatten(2))))


class NoNoise(SeededNoise):
    """The fault: what is charged for is never added."""

    def normal(self, permit: Any, std: float, size: int) -> Any:
        return 0 * super().normal(permit, std, size)


@dataclass(frozen=True, eq=False)
class World:
    """A silo of short sentences.

    Args:
        noise_multiplier: What is charged; None promises nothing and adds nothing.
        noiseless: Nothing is added all the same.
        steps: Private steps.
        lr: Step size.
        sentences: Own records.
        context: Tokens that the network sees.
        hidden: Its width.
        rate: At which a record joins a step.
        seed: Of everything.
    """

    noise_multiplier: float | None
    noiseless: bool = False
    steps: int = 120
    lr: float = 4.0
    sentences: int = 100
    context: int = 6
    hidden: int = 48
    rate: float = 1.0
    seed: int = 0
    vocabulary: int = field(default=VOCABULARY, init=False)
    labels: int | None = field(default=None, init=False)
    longest: int = field(default=32, init=False)
    public: bool = field(default=True, init=False)

    @cached_property
    def event(self) -> Any:
        return events.poisson(self.rate, Gaussian(self.noise_multiplier or 1.0).event())

    @cached_property
    def promise(self) -> Promise | None:
        if self.noise_multiplier is None:
            return None
        return Promise.declared([(self.event, self.steps)], 1e-5, by="the test's world")

    @cached_property
    def module(self) -> nn.Module:
        return initialised(lambda: NGram(self.context, self.hidden), self.seed)

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.module)

    @property
    def size(self) -> int:
        return self.layout.size

    @cached_property
    def start(self) -> Any:
        return self.layout.flatten(initialised(lambda: NGram(self.context, self.hidden), self.seed))

    @cached_property
    def texts(self) -> list[str]:
        rng = stream(self.seed, "sentences")
        who = ["the cat", "a dog", "my aunt", "the man", "her boss", "a bird"]
        does = ["sees", "likes", "hears", "finds", "calls"]
        what = ["a tree", "the sea", "a song", "old bread", "the town", "a red car", "rain"]
        pick = [[str(word) for word in rng.choice(words, self.sentences)] for words in (who, does, what)]
        return [" ".join(words) + "." for words in zip(*pick, strict=True)]

    def used(self) -> Any:
        return np.arange(1, len(ALPHABET) + 1)

    def unused(self) -> Any:
        return np.arange(len(ALPHABET) + 1, VOCABULARY)

    def encode(self, texts: Sequence[str]) -> Sequences:
        return Sequences.of([[ALPHABET.index(letter) + 1 for letter in text] for text in texts])

    def own(self) -> Sequences:
        return self.encode(self.texts)

    def records_of(self, sequences: Sequences) -> int:
        return 1

    def train(self, planted: Sequences, seed: int, *, keep: Any = None) -> Any:
        own = self.own()
        x, y = self._records([own if keep is None else own.take(keep), planted])
        source = (NoNoise if self.noiseless or self.noise_multiplier is None else SeededNoise)(1000 * self.seed + seed)
        line = Line("silo", Unit.RECORD, events.key(self.event), self.steps)
        door = Door(
            Gaussian(self.noise_multiplier or 1.0), self.event, ("silo",),
            mint_reservation(f"t{seed}", [line], test=True), source,
        )  # fmt: skip
        plan = PrivateSteps(
            steps=self.steps, lr=self.lr, clip=1.0, batch="full" if self.rate == 1 else self.rate,
            expected_batch=self.rate * self.sentences,
        )  # fmt: skip
        change = train_private(
            self.module, self.layout, (x, y, None), self.start, plan, release=door, source=source,
            objective=objectives.example("plain"), engine=engines.build("bookkeeping", {}),
        )  # fmt: skip
        return self.start + change

    def _records(self, parts: list[Sequences]) -> tuple[Any, Any]:
        rows = [(row, counted) for part in parts for row, counted in zip(part.tokens, part.counted, strict=True)]
        x = np.full((len(rows), self.longest), NOTHING, np.int64)
        y = np.full(x.shape, IGNORE, np.int64)
        for i, (row, counted) in enumerate(rows):
            x[i, : len(row) - 1] = row[:-1]
            y[i, : len(row) - 1] = np.where(counted[1:], row[1:], IGNORE)
        return x, y

    def log_likelihoods(self, model: Any, sequences: Sequences, since: int = 1) -> Any:
        tokens, counted = torch.from_numpy(sequences.tokens), sequences.counted[:, since:]
        said = self._said(model, tokens[:, max(0, since - self.context) : -1])[:, -(tokens.shape[1] - since) :]
        each = said.gather(2, tokens[:, since:, None]).squeeze(2).double().numpy()
        return np.where(counted, each, np.nan)

    def next_token(self, model: Any, prefixes: Any) -> Any:
        return self._said(model, torch.from_numpy(prefixes[:, -self.context :]))[:, -1].double().numpy()

    def _said(self, model: Any, tokens: Tensor) -> Tensor:
        self.layout.restore(self.module, model)
        with torch.no_grad():
            return functional.log_softmax(self.module(tokens), dim=-1)


def leaky() -> World:
    """Noise is charged for and never added."""
    return World(noise_multiplier=60.0, noiseless=True)


def sound() -> World:
    """The same, with the noise."""
    return World(noise_multiplier=60.0)
