"""Small torch models for C16 and C17: those whose every trained tensor must be covered, and those whose records meet.

Imported by the checks that need torch, when they run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sordino.core.seeds import stream

RECORDS, WIDTH, CLASSES, WORDS, TIME = 4, 6, 3, 12, 5

Batch = tuple[Tensor, Tensor]


def cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    """One loss per record; over positions their mean."""
    each = functional.cross_entropy(outputs.movedim(-1, 1), target, reduction="none")
    return each if each.dim() == 1 else each.mean(1)


@dataclass(frozen=True)
class Case:
    """A model, its loss, and whether it is sound to train it with a bound per record.

    Args:
        name: In a few words.
        build: A fresh module, in the mode that it is to train in.
        batch: Records for it.
        loss: Outputs and targets to one loss per record.
        hostile: One record's values are out of the ordinary: an error is then no refusal.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[[Any, Tensor], Tensor] = cross_entropy
    hostile: bool = False


def _numbers() -> Batch:
    rng = stream(0, "zoo records")
    x = torch.from_numpy(rng.normal(size=(RECORDS, WIDTH)) * 3).float()
    return x, torch.from_numpy(rng.integers(CLASSES, size=RECORDS))


def _words() -> Batch:
    rng = stream(0, "zoo words")
    return (
        torch.from_numpy(rng.integers(WORDS, size=(RECORDS, TIME))),
        torch.from_numpy(rng.integers(CLASSES, size=RECORDS)),
    )


def _seeded(module: nn.Module) -> nn.Module:
    """The module with parameters from a named stream."""
    rng = stream(0, "zoo parameters")
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.from_numpy(rng.normal(size=tuple(parameter.shape)) * 0.4))
    return module.train()


def _with_record(index: int, value: float) -> Callable[[], Batch]:
    def batch() -> Batch:
        x, y = _numbers()
        x[index, 0] = value
        return x, y

    return batch


class _BatchMean(nn.Module):
    """A layer without parameters that looks at the whole batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True) if len(x) else x


class _Twice(nn.Module):
    """One layer, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))  # type: ignore[no-any-return]


class _Tied(nn.Module):
    """An embedding that is the head as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x).mean(1))  # type: ignore[no-any-return]


class _Raw(nn.Module):
    """A parameter of the root module itself, and one of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(()))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.scale + self.shift)  # type: ignore[no-any-return]


class _Unused(nn.Module):
    """A trainable layer that the forward pass leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.spare = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)  # type: ignore[no-any-return]


class _Checkpointed(nn.Module):
    """Activations are computed again on the way back; `reentrant` by a backward pass within the backward pass."""

    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        # A reentrant checkpoint passes gradients on only where its input has some: the first layer stays outside.
        self.first, self.body, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(lambda part: torch.relu(self.body(part)), self.first(x), use_reentrant=self.reentrant)
        return self.head(hidden)  # type: ignore[no-any-return]


class _Positions(nn.Module):
    """Position numbers of shape (1, T), shared by the batch, into a trained embedding: GPT-2 and BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TIME, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.words(x) + self.places(torch.arange(x.shape[1])[None])
        return self.head(torch.tanh(hidden).mean(1))  # type: ignore[no-any-return]


class _Text(nn.Module):
    """Embedding, norm, two layers and a head: what adapters and `modules_to_save` are put on."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.embedding(x))
        return self.score(torch.tanh(self.value(torch.tanh(self.query(hidden)))).mean(1))  # type: ignore[no-any-return]


def _mlp(*between: nn.Module, out: int = CLASSES) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), *between, nn.ReLU(), nn.Linear(8, out))


def _frozen_norm(*, train: bool) -> nn.Module:
    norm = nn.BatchNorm1d(8)
    for parameter in norm.parameters():
        parameter.requires_grad = False
    module = _seeded(_mlp(norm))
    norm.train(train)
    return module


def _contrastive(outputs: Tensor, target: Tensor) -> Tensor:
    """Each record against the others of its batch."""
    unit = functional.normalize(outputs, dim=1)
    return functional.cross_entropy(unit @ unit.T * 4, torch.arange(len(target)), reduction="none")


def _over_the_batch(outputs: Tensor, target: Tensor) -> Tensor:
    """The mean over all counted positions of the batch, as language models' losses have it; dealt out to records."""
    counted = (torch.arange(target.shape[1])[None] < 1 + torch.arange(len(target))[:, None] % target.shape[1]).float()
    each = functional.cross_entropy(outputs.movedim(-1, 1), target, reduction="none") * counted
    return each.sum(1) * len(target) / counted.sum().clamp(min=1)


class _Tagger(nn.Module):
    """A class for every position."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x))  # type: ignore[no-any-return]


def _tags() -> Batch:
    x, _ = _words()
    return x, torch.from_numpy(stream(1, "zoo tags").integers(CLASSES, size=(RECORDS, TIME)))


def _tied_batch() -> Batch:
    x, _ = _words()
    return x, x[:, 0]


def _none() -> Batch:
    x, y = _numbers()
    return x[:0], y[:0]


COUPLED = (
    Case("a plain network", lambda: _seeded(_mlp()), _numbers),
    Case("batch norm, trained", lambda: _seeded(_mlp(nn.BatchNorm1d(8))), _numbers),
    Case("batch norm without parameters", lambda: _seeded(_mlp(nn.BatchNorm1d(8, affine=False))), _numbers),
    Case("frozen batch norm left in train mode", lambda: _frozen_norm(train=True), _numbers),
    Case("frozen batch norm in eval mode", lambda: _frozen_norm(train=False), _numbers),
    Case("a layer that uses the batch's mean", lambda: _seeded(_mlp(_BatchMean())), _numbers),
    Case("a contrastive loss within the batch", lambda: _seeded(_mlp()), _numbers, _contrastive),
    Case("a token mean over the padded batch", lambda: _seeded(_Tagger()), _tags, _over_the_batch),
    Case("a layer called twice", lambda: _seeded(_Twice()), _numbers),
    Case("an embedding tied to the head", lambda: _seeded(_Tied()), _tied_batch),
    Case("parameters of the root module", lambda: _seeded(_Raw()), _numbers),
    Case("a trained layer that is not used", lambda: _seeded(_Unused()), _numbers),
    Case("gradient checkpointing", lambda: _seeded(_Checkpointed()), _numbers),
    Case("gradient checkpointing, reentrant", lambda: _seeded(_Checkpointed(reentrant=True)), _numbers),
    Case("positions shared by the batch", lambda: _seeded(_Positions()), _words),
    Case("one record with NaN", lambda: _seeded(_mlp()), _with_record(1, float("nan")), hostile=True),
    Case("one record with infinity", lambda: _seeded(_mlp()), _with_record(1, float("inf")), hostile=True),
    Case("one record of 1e30", lambda: _seeded(_mlp()), _with_record(1, 1e30), hostile=True),
    Case("an empty batch", lambda: _seeded(_mlp()), _none, hostile=True),
)
"""Whether records influence one another, or one ruins the step."""


def _lora(**options: Any) -> nn.Module:
    """The text model with an adapter.

    Raises:
        NotApplicable: peft is not installed here.
    """
    from sordino.audit.conformance.protocol import NotApplicable

    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise NotApplicable("adapters need peft") from None
    base = _seeded(_Text())
    module = get_peft_model(base, LoraConfig(r=2, target_modules=["query", "value"], **options))
    rng = stream(0, "zoo adapter")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_B" in name:  # at zero the other half would have no gradient
                parameter.copy_(torch.from_numpy(rng.normal(size=tuple(parameter.shape)) * 0.3))
    return module.train()


COVERED = (
    Case("LoRA", _lora, _words),
    Case("LoRA and the head in modules_to_save", lambda: _lora(modules_to_save=["score"]), _words),
    Case("LoRA and biases", lambda: _lora(bias="all"), _words),
    Case("LoRA, embedding and norm in modules_to_save", lambda: _lora(modules_to_save=["embedding", "norm"]), _words),
    Case("everything trained", lambda: _seeded(_Text()), _words),
)
"""Whether every trained tensor is bounded and noised."""
