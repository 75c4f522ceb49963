"""Scores, accuracy, AUC and loss, against scikit-learn and torch."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from sordino.local import evaluate
from sordino.local.losses import IGNORE, cross_entropy

torch.set_num_threads(1)


def test_auc_equals_scikit_learn_with_ties():
    """
    Rank sums with ties counted half, for two classes and one against the rest.
    """
    rng = np.random.default_rng(1)
    for classes in (2, 4):
        y = rng.integers(classes, size=60)
        scores = rng.integers(1, 4, size=(60, classes)).astype(float)
        scores /= scores.sum(axis=1, keepdims=True)
        expected = roc_auc_score(y, scores[:, 1] if classes == 2 else scores, multi_class="ovr")
        assert evaluate.auc(scores, y) == pytest.approx(expected)


def test_one_class_has_no_auc():
    """
    Nothing to rank gives None, not a number that looks like a result.
    """
    assert evaluate.auc(np.full((3, 2), 0.5), np.ones(3, dtype=int)) is None


@pytest.mark.parametrize("outputs", [1, 5])
def test_loss_and_accuracy_equal_torch(outputs):
    """
    Over more records than one chunk, in eval mode, and far from the middle of the sigmoid.
    """
    model = nn.Sequential(nn.Linear(4, outputs), nn.Dropout(0.9))
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2500, 4)) * 30, rng.integers(max(outputs, 2), size=2500)

    scores = evaluate.scores(model, x)
    model.eval()
    logits = model(torch.from_numpy(x).float()).detach()

    assert scores.shape == (2500, max(outputs, 2))
    assert evaluate.loss(scores, y) == pytest.approx(float(cross_entropy(logits, torch.from_numpy(y)).mean()), rel=1e-4)
    expected = (logits[:, 0] > 0).long() if outputs == 1 else logits.argmax(dim=1)
    assert evaluate.accuracy(scores, y) == pytest.approx(float((expected.numpy() == y).mean()))


def test_padding_does_not_count():
    """
    For sequences, only the positions that count are averaged.
    """
    scores = np.tile([0.25, 0.75], (2, 3, 1))
    y = np.array([[1, 1, IGNORE], [0, IGNORE, IGNORE]])

    assert evaluate.accuracy(scores, y) == pytest.approx(2 / 3)
    assert evaluate.loss(scores, y) == pytest.approx(-(2 * np.log(0.75) + np.log(0.25)) / 3)


def test_modes_are_put_back():
    """
    A frozen batch norm in eval mode inside a training model stays so.
    """
    model = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Linear(2, 3))

    evaluate.scores(model, np.zeros((3, 2)))

    assert [part.training for part in model.modules()] == [True, False, True]
    assert evaluate.scores(model, np.zeros((0, 2))).shape == (0, 3)
