"""No record decides how records are clipped: engines are tried on made-up examples, and passes have public shapes."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from sordino.core.errors import PrivacyError
from sordino.local.clipping import Clip, engines
from sordino.local.losses import IGNORE, cross_entropy

torch.set_num_threads(1)


def opened(total):
    return getattr(total, "_BoundedSum__vector")  # noqa: B009 - the name is mangled on purpose


def summed(engine, model, x, y, loss=cross_entropy):
    return opened(engine.clipped_sum(model, loss, (x, y), Clip(1.0)).total)


def drawn(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model


class Outside(nn.Module):
    """An embedding whose weight is also used outside its call."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(7, 5)

    def forward(self, x):
        return functional.linear(self.e(x), self.e.weight)


class Sorted(nn.Module):
    """Rows put in order before a layer and back after it, as packed sequences are."""

    def __init__(self):
        super().__init__()
        self.first, self.layer = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        order = torch.argsort(x[:, 0])
        return self.layer(torch.tanh(self.first(x[order])))[torch.argsort(order)]


@pytest.mark.parametrize("blind", [True, False])
def test_what_the_first_batch_holds_does_not_choose_the_engine(blind):
    """
    A first batch without any counted token shows nothing of the model; the next one is clipped as ever.
    """
    model, auto = drawn(Outside()), engines.example("auto")
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(7, (6, 4), generator=generator) for _ in range(2))
    first = torch.full_like(y, IGNORE) if blind else y
    summed(auto, model, x, first)

    expected = summed(engines.example("oracle"), model, x, y)

    assert np.linalg.norm(summed(auto, model, x, y) - expected) <= 1e-5 * np.linalg.norm(expected)
    with pytest.raises(PrivacyError, match="outside its layer's call"):
        summed(engines.example("bookkeeping"), model, x, first)


def test_examples_in_another_order_are_found():
    """
    The sum over a batch is right all the same, so each example is compared with itself alone.
    """
    model = drawn(Sorted())
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(2)) * 5
    y = torch.arange(40) % 3
    for name in ("bookkeeping", "opacus"):
        with pytest.raises(PrivacyError, match="in another order"):
            summed(engines.example(name), model, x, y)
    expected = summed(engines.example("oracle"), model, x, y)
    found = summed(engines.example("auto"), model, x, y)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


class Kinked(nn.Module):
    """A hidden layer whose every unit is at its kink for some input."""

    def __init__(self, width):
        super().__init__()
        self.hidden, self.head = nn.Linear(30, width, bias=False), nn.Linear(width, 1, bias=False)

    def forward(self, x):
        return self.head(functional.relu(self.hidden(x)))


def at_the_kink(model, rows):
    """Inputs whose first hidden unit is zero up to its last bits: which side it is on is a matter of rounding."""
    weight = model.hidden.weight[0].detach().double()
    x = torch.randn(rows, 30, generator=torch.Generator().manual_seed(3)).double()
    for _ in range(3):
        x = (x - ((x @ weight) / (weight @ weight))[:, None] * weight).float().double()
    return x.float()


@pytest.mark.parametrize("name", ["auto", "bookkeeping", "vmap", "opacus"])
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("rows", [2, 3, 4, 9, 12])
def test_one_record_less_leaves_the_others_as_they_are(name, width, rows):
    """
    With a public number of rows in every pass, no record tips another's ReLU: the sum moves by one clip at most.

    Layers narrower than that, of inputs that fill no vector register, have kernels that treat rows by their position;
    the guarantees page says so.
    """
    model = drawn(Kinked(width))
    x, y = at_the_kink(model, rows), torch.zeros(rows, dtype=torch.long)
    engine = engines.build(name, {"rows": 12})
    whole = summed(engine, model, x, y)

    for i in range(rows):
        rest = [j for j in range(rows) if j != i]
        assert np.linalg.norm(whole - summed(engine, model, x[rest], y[rest])) <= 1 + 1e-5


@pytest.mark.parametrize("name", ["auto", "bookkeeping", "vmap", "opacus"])
def test_few_rows_are_filled_up_without_being_asked(name):
    """
    From four rows to three, two and one: kernels change there, so a pass never has fewer than four.
    """
    model, moved = drawn(Kinked(32)), []
    for rows in (4, 3, 2):
        x, y = at_the_kink(model, rows), torch.zeros(rows, dtype=torch.long)
        engine = engines.example(name)
        moved.append(np.linalg.norm(summed(engine, model, x, y) - summed(engine, model, x[1:], y[1:])))

    assert max(moved) <= 1 + 1e-5
