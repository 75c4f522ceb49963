"""Every engine equals the oracle on every kind of layer, under every rule; a property test over random networks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.pytorch_utils import Conv1D

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.local.clipping import Clip, engines
from sordino.local.losses import cross_entropy

torch.set_num_threads(1)

VOCABULARY, WIDTH, LENGTH = 11, 6, 5


def opened(total):
    return getattr(total, "_BoundedSum__vector")  # noqa: B009 - the name is mangled on purpose


def drawn(model, seed=1):
    """Random parameters from a seed of their own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model


class Text(nn.Module):
    """A small language model around one layer; classes are predicted at every position."""

    def __init__(self, inner, *, tied=False, padding=None, positions=None, width=WIDTH):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, padding_idx=padding)
        self.positions = None if positions is None else nn.Embedding(LENGTH, width)
        self.flat_ids = positions == "flat"
        self.inner = inner
        self.head = nn.Linear(width, VOCABULARY, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x):
        h = self.tokens(x)
        if self.positions is not None:
            ids = torch.arange(x.shape[1])
            h = h + self.positions(ids if self.flat_ids else ids[None])
        return self.head(torch.tanh(self.inner(h)))


class Twice(nn.Module):
    """One layer called twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Checkpointed(nn.Module):
    """A block whose activations are made anew in the backward pass."""

    def __init__(self, *, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.block = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, WIDTH))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=self.reentrant)


class Biased(nn.Module):
    """A layer whose bias alone is trained."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.layer.weight.requires_grad_(requires_grad=False)

    def forward(self, x):
        return self.layer(x)


class Channels(nn.Module):
    """A convolution over positions."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, WIDTH)

    def forward(self, x):
        return self.norm(self.layer(x.transpose(1, 2))).transpose(1, 2)


KINDS = {
    "linear": lambda: Text(nn.Linear(WIDTH, WIDTH)),
    "large linear, Gram form": lambda: Text(nn.Linear(40, 40), width=40),
    "layer norm": lambda: Text(nn.LayerNorm(WIDTH)),
    "layer norm without bias": lambda: Text(nn.LayerNorm(WIDTH, bias=False)),
    "torch's RMS norm": lambda: Text(nn.RMSNorm(WIDTH)),
    "Llama's RMS norm": lambda: Text(LlamaRMSNorm(WIDTH)),
    "GPT-2's Conv1D": lambda: Text(Conv1D(WIDTH, WIDTH)),
    "large Conv1D": lambda: Text(Conv1D(40, 40), width=40),
    "bias only": lambda: Text(Biased()),
    "padding index": lambda: Text(nn.Identity(), padding=3),
    "tied embedding and head": lambda: Text(nn.Linear(WIDTH, WIDTH), tied=True),
    "large tied embedding and head": lambda: Text(nn.Identity(), tied=True, width=300),
    "layer called twice": lambda: Text(Twice()),
    "broadcast position ids": lambda: Text(nn.Identity(), positions="rows"),
    "convolution and group norm": lambda: Text(Channels()),
    "checkpoint, reentrant": lambda: Text(Checkpointed(reentrant=True)),
    "checkpoint, not reentrant": lambda: Text(Checkpointed(reentrant=False)),
}
OPACUS_CANNOT = {
    "Llama's RMS norm": "no formula for the class",
    "broadcast position ids": "it stacks gradients of unequal batch sizes",
    "GPT-2's Conv1D": "no formula for the class",
    "large Conv1D": "no formula for the class",
    "checkpoint, reentrant": "it counts the recomputed calls",
    "checkpoint, not reentrant": "it counts the recomputed calls",
    "layer norm without bias": "it expects one",
    "padding index": "it trains the row that torch leaves alone",
}


def batch(examples=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(VOCABULARY, (examples, LENGTH), generator=generator)
    y = torch.randint(VOCABULARY, (examples, LENGTH), generator=generator)
    y[1, 3:] = -100
    return x, y


def total(engine, model, data, *, norm=0.3, groups=None, rule="flat"):
    unit = Unit.RECORD if groups is None else Unit.USER
    result = engine.clipped_sum(model, cross_entropy, data, Clip(norm, unit, rule), groups)
    return SimpleNamespace(vector=opened(result.total), nonfinite=result.nonfinite)


def apart(a, b):
    return float(np.linalg.norm(a.vector - b.vector)) / max(1e-12, float(np.linalg.norm(b.vector)))


@pytest.mark.parametrize("rule", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["auto", "bookkeeping"])
def test_every_layer_under_every_rule(name, kind, rule):
    """
    One relative to a hundred thousand, for records and for people, whole or cut into micro-batches.
    """
    model, data = drawn(KINDS[kind]()), batch()
    people = np.array([2, 0, 2, 1, 0, 2])
    for groups in (None, people):
        expected = total(engines.example("oracle"), model, data, groups=groups, rule=rule)
        assert apart(total(engines.example(name), model, data, groups=groups, rule=rule), expected) <= 1e-5
        cut = engines.build("bookkeeping", {"chunk": 4})
        assert apart(total(cut, model, data, groups=groups, rule=rule), expected) <= 1e-5


@pytest.mark.parametrize("rule", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("opacus", kind) for kind in KINDS if kind not in OPACUS_CANNOT]
    + [("vmap", kind) for kind in KINDS if not kind.startswith("checkpoint")],
)
def test_the_general_engines_agree(name, kind, rule):
    """
    The second opinions give the same sums where they can take the model at all.
    """
    model, data = drawn(KINDS[kind]()), batch()

    expected = total(engines.example("oracle"), model, data, rule=rule)

    assert apart(total(engines.example(name), model, data, rule=rule), expected) <= 1e-5


@pytest.mark.parametrize("rule", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("name", engines.names())
def test_one_record_moves_the_sum_by_at_most_the_norm(name, rule):
    """
    Sensitivity under every rule, with short gradients and with long ones.
    """
    engine, data = engines.example(name), batch()
    for size in (0.01, 1.0, 30.0):
        model = drawn(Text(nn.Linear(WIDTH, WIDTH)))
        with torch.no_grad():
            model.head.weight.mul_(size)
        whole = total(engine, model, data, rule=rule).vector
        for i in range(len(data[0])):
            rest = [j for j in range(len(data[0])) if j != i]
            without = total(engine, model, tuple(part[rest] for part in data), rule=rule).vector
            assert np.linalg.norm(whole - without) <= 0.3 * (1 + 1e-5)


def test_automatic_clipping_forgets_the_size_of_gradients():
    """
    Without γ it would be the sum of directions: long gradients and longer ones count alike.
    """
    model, data = drawn(Text(nn.Linear(WIDTH, WIDTH))), batch()
    engine = engines.example("bookkeeping")

    def scaled(factor):
        result = engine.clipped_sum(
            model, lambda out, y: factor * cross_entropy(out, y), data, Clip(1.0, Unit.RECORD, "automatic")
        )
        return opened(result.total)

    assert np.linalg.norm(scaled(100.0) - scaled(1e4)) <= 1e-3 * np.linalg.norm(scaled(1e4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_example_counts_as_zero(kind):
    """
    A loss that is not finite takes out its own example only.
    """
    model, (x, y) = drawn(KINDS[kind]()), batch()
    engine = engines.example("bookkeeping")

    def loss(out, labels):
        spoiled = cross_entropy(out, labels % 1000)
        return spoiled * torch.where(labels[:, 0] >= 1000, float("nan"), 1.0)

    y = y.clamp(min=0)
    y[2] += 1000
    result = engine.clipped_sum(model, loss, (x, y), Clip(0.3))
    rest = [0, 1, 3, 4, 5]

    assert result.nonfinite == 1
    good = engine.clipped_sum(model, loss, (x[rest], y[rest]), Clip(0.3))
    assert np.linalg.norm(opened(result.total) - opened(good.total)) <= 1e-6


@pytest.mark.parametrize("kind", ["linear", "Llama's RMS norm", "tied embedding and head"])
def test_bf16_autocast_keeps_norms_in_float32(kind):
    """
    Under autocast the products are of bfloat16 numbers, but they are summed and measured in float32 or better: the
    sum is within the rounding of bfloat16 of the exact one, and its bound is exact.
    """
    model, data = drawn(KINDS[kind]()), batch()
    exact = total(engines.example("oracle"), model, data)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = total(engines.example("bookkeeping"), model, data)
        alone = [
            total(engines.example("bookkeeping"), model, (data[0][i : i + 1], data[1][i : i + 1])) for i in range(6)
        ]

    assert apart(rough, exact) <= 0.05
    assert all(np.linalg.norm(one.vector) <= 0.3 * (1 + 1e-6) for one in alone)


def test_small_gradients_do_not_vanish_under_autocast():
    """
    A gradient of 1e-8 squares to nothing in half precision; its norm must not.
    """
    model, data = drawn(Text(nn.Linear(WIDTH, WIDTH))), batch()
    tiny = lambda out, y: 1e-8 * cross_entropy(out.float(), y)  # noqa: E731 - a loss is a value here

    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = engines.example("bookkeeping").clipped_sum(model, tiny, data, Clip(1e-9))

    assert 1e-9 < np.linalg.norm(opened(result.total)) <= 6e-9


def test_flat_position_ids_are_for_another_engine():
    """
    Position ids without an axis of examples cannot be told from examples, so book-keeping refuses them.
    """
    model = drawn(Text(nn.Identity(), positions="flat"))
    with pytest.raises(PrivacyError, match="one row per example"):
        total(engines.example("bookkeeping"), model, batch())
    expected = total(engines.example("oracle"), model, batch())
    assert apart(total(engines.example("auto"), model, batch()), expected) <= 1e-5


class TwoLayers(nn.Module):
    """One layer used by its calls, one whose weight is used outside as well."""

    def __init__(self):
        super().__init__()
        self.plain, self.odd = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.odd(self.plain(x))) @ self.odd.weight


def test_every_set_of_trained_parameters_is_compared():
    """
    An adapter that takes turns trains other layers in the next round: they are looked at when their turn comes.
    """
    model, engine = drawn(Text(TwoLayers())), engines.example("bookkeeping")
    for parameter in model.inner.odd.parameters():
        parameter.requires_grad = False
    assert apart(total(engine, model, batch()), total(engines.example("oracle"), model, batch())) <= 1e-5

    for parameter in model.inner.odd.parameters():
        parameter.requires_grad = True
    with pytest.raises(PrivacyError, match="outside its layer's call"):
        total(engine, model, batch())


def test_nothing_is_left_on_a_checkpointed_model():
    """
    No gradient, hook or changed flag survives a call, reentrant or not.
    """
    for reentrant in (True, False):
        model = drawn(Text(Checkpointed(reentrant=reentrant)))
        total(engines.example("bookkeeping"), model, batch())
        assert all(p.grad is None and p.requires_grad for p in model.parameters())
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@st.composite
def networks(draw):
    """A random small network over tokens, and its rule."""
    width = draw(st.sampled_from([2, 5, 12]))
    choices = {
        "linear": lambda: nn.Linear(width, width, bias=draw(st.booleans())),
        "conv1d": lambda: Conv1D(width, width),
        "layer norm": lambda: nn.LayerNorm(width),
        "rms": lambda: LlamaRMSNorm(width),
        "tanh": nn.Tanh,
        "reentrant": lambda: Reused(width, reentrant=True),
        "reused": lambda: Reused(width, reentrant=None),
    }
    inner = nn.Sequential(*(choices[name]() for name in draw(st.lists(st.sampled_from(list(choices)), max_size=4))))
    tied, padding = draw(st.booleans()), draw(st.sampled_from([None, 0]))
    model = Text(inner, tied=tied, padding=padding, positions=draw(st.sampled_from([None, "rows"])), width=width)
    for parameter in model.parameters():
        parameter.requires_grad = draw(st.booleans())
    model.head.weight.requires_grad = True
    return drawn(model, seed=draw(st.integers(0, 99))), draw(st.sampled_from(["flat", "per_layer", "automatic"]))


class Reused(nn.Module):
    """A layer used twice, under a checkpoint or not."""

    def __init__(self, width, reentrant):
        super().__init__()
        self.layer, self.reentrant = nn.Linear(width, width), reentrant

    def forward(self, x):
        twice = lambda h: self.layer(torch.tanh(self.layer(h)))  # noqa: E731
        if self.reentrant is None or not x.requires_grad:
            return twice(x)
        return checkpoint(twice, x, use_reentrant=self.reentrant)


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(1, 7), st.sampled_from([0.01, 0.5, 50.0]), st.integers(1, 8))
def test_random_networks_equal_the_oracle(network, examples, norm, chunk):
    """
    Any stack of known layers, frozen here and there, tied or not: the oracle's sum, in micro-batches of any size.
    """
    model, rule = network
    data = batch(max(2, examples))
    expected = total(engines.example("oracle"), model, data, norm=norm, rule=rule)

    found = total(engines.build("bookkeeping", {"chunk": chunk}), model, data, norm=norm, rule=rule)

    assert apart(found, expected) <= 1e-5
