"""The private-local-state trap: a head trained without noise breaks the bound of a perfectly clipped sum."""

import numpy as np
import pytest
import torch
from torch import nn

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Unit, Visibility
from sordino.local.clipping import Clip, engines
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.state import classify, refuse_private_dependence

torch.set_num_threads(1)

NORM = 1.0


class Personal(nn.Module):
    """A shared body, and a head that each silo fits for itself."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 1), nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.body.weight.copy_(torch.tensor([[1.0, 0.2, 0.0]]))
            self.body.bias.zero_()
            self.head.weight.zero_()

    def forward(self, x):
        return self.head(self.body(x))


def fit_head(model, x, y):
    """Plain gradient descent on the head alone: the silo's private state."""
    for _ in range(50):
        (gradient,) = torch.autograd.grad(cross_entropy(model(x), y).mean(), [model.head.weight])
        with torch.no_grad():
            model.head.weight -= gradient


def shared_sum(x, y, *, personal):
    """The clipped sum of the body's gradients, with a fitted or a public head."""
    model = Personal()
    if personal:
        fit_head(model, x, y)
    else:
        nn.init.ones_(model.head.weight)
    model.head.requires_grad_(requires_grad=False)
    total = engines.example("oracle").clipped_sum(model, cross_entropy, (x, y), Clip(NORM)).total
    return getattr(total, "_BoundedSum__vector")  # noqa: B009 - mangled on purpose


def silo():
    """Twenty records of one kind, and one of large features that says the opposite."""
    x = torch.tensor([[1.0, 1.0, 1.0]] * 20 + [[40.0, 0.0, 0.0]])
    return x, torch.tensor([1] * 20 + [0])


def test_a_private_head_breaks_the_bound():
    """
    One record turns the head round, and with it everyone's clipped gradient: the sum moves by many times the
    norm. With a public head the same record moves it by at most the norm.
    """
    x, y = silo()

    moved = {
        personal: np.linalg.norm(shared_sum(x, y, personal=personal) - shared_sum(x[:-1], y[:-1], personal=personal))
        for personal in (True, False)
    }

    assert moved[False] <= NORM * (1 + 1e-5)
    assert moved[True] > 3 * NORM


def test_such_a_release_is_refused():
    """
    The message names the tensor and all four sound ways; a client's update is bounded whatever made it.
    """
    model = Personal()
    states = classify(model, Layout.of(model), private=("head",))

    for unit in (Unit.RECORD, Unit.USER):
        with pytest.raises(PrivacyError, match=r"head\.weight") as refused:
            refuse_private_dependence(unit, states)
        for way in ("inside the same clip", "last shared release", "public value", "'client'"):
            assert way in str(refused.value)
    refuse_private_dependence(Unit.CLIENT, states)


def test_what_is_released_or_public_is_accepted():
    """
    Trainable and released, or frozen: nothing to refuse.
    """
    model = nn.Sequential(nn.Linear(3, 3).requires_grad_(requires_grad=False), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model[1].eval()
    states = classify(model, Layout.of(model))

    refuse_private_dependence(Unit.RECORD, states)

    assert states["0.weight"] is Visibility.PUBLIC
    assert states["1.running_mean"] is Visibility.PUBLIC
    assert states["2.bias"] is Visibility.RELEASED


def test_running_statistics_are_private():
    """
    Batch norm in train mode fits its buffers to the records without noise.
    """
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))

    with pytest.raises(PrivacyError, match=r"0\.running_mean"):
        refuse_private_dependence(Unit.RECORD, classify(model, Layout.of(model)))


def test_what_trains_outside_the_layout_is_private():
    """
    A layout taken while the head was frozen does not release it, so a head that trains now is private.
    """
    model = Personal()
    model.head.requires_grad_(requires_grad=False)
    layout = Layout.of(model)
    model.head.requires_grad_(requires_grad=True)

    assert classify(model, layout)["head.weight"] is Visibility.PRIVATE


def test_states_outside_the_model_count():
    """
    Raw optimiser moments are private; a misspelt declaration is an error, not a silent pass.
    """
    model = Personal()
    states = classify(model, Layout.of(model)) | {"optimiser.second_moment": Visibility.PRIVATE}

    with pytest.raises(PrivacyError, match="second_moment"):
        refuse_private_dependence(Unit.RECORD, states)
    with pytest.raises(ConfigError, match="no tensor"):
        classify(model, Layout.of(model), private=("haed",))
