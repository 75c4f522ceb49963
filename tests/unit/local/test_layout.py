"""The flat vector: a module's trainable parameters and nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sordino.core.errors import ConfigError, EngineError
from sordino.local.layout import Layout

torch.set_num_threads(1)

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@st.composite
def modules(draw, depth=2):
    """Random trees of layers of random dtypes, some frozen, some shared, at least one trainable."""
    parts = nn.ModuleDict()
    for name in draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)):
        inner = depth > 0 and draw(st.booleans())
        parts[name] = draw(modules(depth=depth - 1)) if inner else draw(layers())
    parts["last"] = nn.Linear(2, 1)
    if draw(st.booleans()):
        parts["shared"] = parts["last"]
    return parts


@st.composite
def layers(draw):
    """One layer with values that float32 holds exactly."""
    width = draw(st.integers(1, 4))
    layer = draw(st.sampled_from([nn.Linear(width, 3), nn.Embedding(width, 2), nn.BatchNorm1d(width)]))
    layer.to(draw(st.sampled_from(DTYPES))).requires_grad_(requires_grad=draw(st.booleans()))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.tensor(draw(st.integers(-64, 64)) / 8))
    return layer


@settings(max_examples=60, deadline=None)
@given(modules())
def test_restore_after_flatten_is_the_identity(module):
    """
    For random module trees and dtypes: parameters come back as they were, after being overwritten.
    """
    layout = Layout.of(module)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    vector = layout.flatten(module)

    layout.restore(module, np.zeros(layout.size, np.float32))
    layout.restore(module, vector)

    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert vector.dtype == np.float32
    assert vector.shape == (layout.size,)


@settings(max_examples=60, deadline=None)
@given(modules())
def test_groups_cover_the_vector_without_gaps(module):
    """
    Each group is one trainable tensor, in the module's order; a shared tensor is there once.
    """
    layout = Layout.of(module)

    assert [group.start for group in layout.groups] == [0, *(group.stop for group in layout.groups)][:-1]
    assert layout.size == sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_flattening_copies():
    """
    The vector does not change when the module trains on.
    """
    module = nn.Linear(2, 2)
    layout, vector = Layout.of(module), Layout.of(module).flatten(module)
    before = vector.copy()

    layout.restore(module, vector + 1)

    assert np.array_equal(vector, before)


def test_buffers_and_frozen_parameters_stay_home():
    """
    Batch-norm statistics and a frozen backbone are not in the vector.
    """
    module = nn.Sequential(nn.Linear(3, 3).requires_grad_(requires_grad=False), nn.BatchNorm1d(3), nn.Linear(3, 1))

    assert [group.name for group in Layout.of(module).groups] == ["1.weight", "1.bias", "2.weight", "2.bias"]


def test_what_does_not_fit_is_refused():
    """
    Another length, another model, values that are not finite, nothing trainable, numbers that are not real.
    """
    module = nn.Linear(2, 2)
    layout, vector = Layout.of(module), np.zeros(6, np.float32)

    with pytest.raises(ConfigError, match="shape"):
        layout.restore(module, vector[:-1])
    with pytest.raises(ConfigError, match="not this module's"):
        layout.restore(nn.Linear(2, 3), vector)
    with pytest.raises(ConfigError, match="not this module's"):
        layout.flatten(nn.Linear(2, 2, bias=False))
    with pytest.raises(EngineError, match="diverged"):
        layout.restore(module, np.full(6, np.nan, np.float32))
    with pytest.raises(ConfigError, match="no trainable"):
        Layout.of(nn.ReLU())
    with pytest.raises(ConfigError, match="no real numbers"):
        Layout.of(nn.Linear(2, 2, dtype=torch.complex64))


def test_another_order_of_the_same_parameters_is_read_by_name():
    """
    Two modules that register equal parameters in another order flatten alike, and restore each its own.
    """

    def module(*names):
        made = nn.Module()
        for name in names:
            made.register_parameter(name, nn.Parameter(torch.full((2,), float(ord(name)))))
        return made

    layout, other = Layout.of(module("a", "b")), module("b", "a")

    assert np.array_equal(layout.flatten(other), layout.flatten(module("a", "b")))
    layout.restore(other, np.array([1, 1, 2, 2], np.float32))
    assert (other.a.tolist(), other.b.tolist()) == ([1, 1], [2, 2])
