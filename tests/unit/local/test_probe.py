"""The independence probe rejects every way of coupling examples that slips past layer lists, and no sound model."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

from sordino.core.errors import PrivacyError
from sordino.local.losses import IGNORE, cross_entropy
from sordino.local.models import InputSpec
from sordino.local.probe import probe, synthetic

torch.set_num_threads(1)

SPEC = InputSpec((6,), classes=3)


def frozen_norm(*, training):
    """A frozen batch norm with statistics of its own, in one mode or the other."""
    norm = nn.BatchNorm1d(6).requires_grad_(requires_grad=False).train(training)
    norm.running_mean.fill_(0.3)
    return nn.Sequential(norm, nn.Linear(6, 3))


class BatchMean(nn.Module):
    """A layer without parameters that subtracts the batch's mean."""

    def forward(self, x):
        return x - x.mean(dim=0, keepdim=True)


class Experts(nn.Module):
    """Two experts that take at most two examples each; who comes too late is passed through."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 2), nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
        self.rest = nn.Linear(6, 3)

    def forward(self, x):
        chosen = self.gate(x).argmax(dim=1)
        out = self.rest(x)
        for k, expert in enumerate(self.experts):
            taken = torch.nonzero(chosen == k).flatten()[:2]
            out = out.index_add(0, taken, expert(x[taken]))
        return out


class Tokens(nn.Module):
    """Logits at every position of a sequence."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.embedding(x))


class Counter(nn.Module):
    """A buffer that counts what it saw."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += len(x)
        return self.linear(x)


def contrastive(out, y):
    """Each example against the others of its batch."""
    return functional.cross_entropy(out @ out.T, torch.arange(len(out)), reduction="none")


def token_mean_over_the_batch(out, y):
    """The usual default of language-model code, spread over examples: divided by the batch's tokens."""
    each = functional.cross_entropy(out.movedim(-1, 1), y, reduction="none", ignore_index=IGNORE)
    return each.sum(dim=1) / (y != IGNORE).sum()


def sequences():
    """Token sequences with targets of unlike lengths."""
    x, _ = synthetic(InputSpec((6,), classes=5, vocabulary=5))
    y = x.roll(-1, dims=1)
    for row, length in enumerate([6, 4, 3, 1]):
        y[row, length:] = IGNORE
    return x, y


def mlp(*layers):
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))


BAD = {
    "batch norm": (lambda: mlp(nn.BatchNorm1d(8)), cross_entropy, "GroupNorm or LayerNorm"),
    "batch norm without parameters": (lambda: mlp(nn.BatchNorm1d(8, affine=False)), cross_entropy, "GroupNorm"),
    "batch norm without statistics": (
        lambda: mlp(nn.BatchNorm1d(8, track_running_stats=False)).eval(),
        cross_entropy,
        "GroupNorm",
    ),
    "frozen batch norm in train mode": (lambda: frozen_norm(training=True), cross_entropy, "eval mode"),
    "batch mean": (lambda: mlp(BatchMean()), cross_entropy, "own outputs only"),
    "contrastive loss": (mlp, contrastive, "contrasts"),
    "token mean over the batch": (Tokens, token_mean_over_the_batch, "own length"),
    "scalar loss": (mlp, lambda out, y: cross_entropy(out, y).mean(), "one entry per example"),
    "summed vector": (mlp, lambda out, y: cross_entropy(out, y).sum().expand(2), "one entry per example"),
    "limited experts": (Experts, cross_entropy, "capacity limits"),
    "division by the batch size": (mlp, lambda out, y: cross_entropy(out, y) / len(y), "how many examples"),
    "changing buffer": (Counter, cross_entropy, "without noise"),
    "randomness outside modules": (
        lambda: nn.Sequential(nn.Linear(6, 3), Jitter()),
        cross_entropy,
        "nn.Dropout modules",
    ),
}

GOOD = {
    "mlp": (mlp, cross_entropy),
    "mlp with dropout": (lambda: mlp(nn.Tanh(), nn.Dropout(0.5)), cross_entropy),
    "group and layer norm": (lambda: mlp(nn.GroupNorm(2, 8), nn.LayerNorm(8)), cross_entropy),
    "frozen batch norm in eval mode": (lambda: frozen_norm(training=False), cross_entropy),
    "token mean per example": (Tokens, cross_entropy),
}


class Jitter(nn.Module):
    """Noise on activations that no mode switches off."""

    def forward(self, x):
        return x + torch.randn_like(x)


def inputs(model):
    return sequences() if isinstance(model, Tokens) else synthetic(SPEC)


@pytest.mark.parametrize("case", BAD)
def test_rejects(case):
    """
    Each coupling is refused, and the message says what to use instead.
    """
    make, loss, remedy = BAD[case]
    model = make()

    with pytest.raises(PrivacyError, match=remedy):
        probe(model, loss, *inputs(model))


@pytest.mark.parametrize("case", GOOD)
def test_accepts(case):
    """
    No false alarm on sound models, dropout included.
    """
    make, loss = GOOD[case]
    model = make()

    probe(model, loss, *inputs(model))


@pytest.mark.parametrize("make", [Counter, lambda: frozen_norm(training=True), lambda: mlp(nn.Dropout(0.5))])
def test_leaves_the_model_as_it_was(make):
    """
    Accepted or refused: state, modes, gradients and torch's random state are untouched.
    """
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes, state = [part.training for part in model.modules()], torch.get_rng_state()

    with contextlib.suppress(PrivacyError):
        probe(model, cross_entropy, *synthetic(SPEC))

    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert modes == [part.training for part in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_example_proves_nothing():
    """
    Independence needs two.
    """
    with pytest.raises(PrivacyError, match="two examples"):
        probe(mlp(), cross_entropy, *synthetic(SPEC, examples=1))
