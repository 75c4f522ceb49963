"""Losses are vectors; two classes have one logit."""

import torch
from torch.nn import functional

from sordino.local.losses import IGNORE, cross_entropy, predict, probabilities

torch.set_num_threads(1)


def test_one_logit_equals_two():
    """
    A single logit z is the pair (0, z): same loss, probabilities and prediction.
    """
    z, y = torch.tensor([[-3.0], [0.5], [40.0]]), torch.tensor([0, 1, 0])
    pair = torch.cat([torch.zeros(3, 1), z], dim=1)

    assert torch.allclose(cross_entropy(z, y), cross_entropy(pair, y))
    assert torch.allclose(probabilities(z), probabilities(pair))
    assert torch.equal(predict(z), predict(pair))


def test_many_classes_are_torchs_own():
    """
    One entry per example, without reduction.
    """
    logits, y = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 3, 0])

    assert torch.equal(cross_entropy(logits, y), functional.cross_entropy(logits, y, reduction="none"))
    assert torch.allclose(probabilities(logits).sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_sequences_average_over_their_own_positions():
    """
    Padding does not count; each example is divided by its own length, an empty one gives zero.
    """
    for outputs in (1, 4):
        logits = torch.randn(3, 5, outputs, generator=torch.Generator().manual_seed(1))
        y = torch.tensor([[0, 1, 1, 0, 1], [1, 0, IGNORE, IGNORE, IGNORE], [IGNORE] * 5])

        losses = cross_entropy(logits, y)

        assert torch.allclose(losses[1], cross_entropy(logits[1, :2], y[1, :2]).mean())
        assert losses[2] == 0
        assert losses.shape == (3,)
