"""How well a model does on some records. What these return is private unless the records are public."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import nn
from torch.nn import functional

from sordino.local.losses import IGNORE, cross_entropy, predict, probabilities
from sordino.local.passes import by_length, records_per_pass
from sordino.local.trainers._data import tensor

CHUNK = 1024
"""Records in one pass, where they are not texts."""

ROWS = 64
"""The same where every pass is filled up to it."""


def scores(model: nn.Module, x: NDArray[Any]) -> NDArray[np.float64]:
    """Class probabilities in eval mode; every module's mode is put back afterwards.

    Args:
        model: Outputs logits.
        x: Records, shape (n, ...).

    Returns:
        Shape (n, classes), or (n, time, classes) for a model with logits at every step.
    """
    with torch.no_grad(), evaluating(model):
        records = tensor(model, x)
        order = by_length(model, records)
        passes = torch.split(order, records_per_pass(model, records, CHUNK))
        parts = torch.cat([probabilities(model(records[rows])) for rows in passes])
        return parts[torch.argsort(order)].cpu().numpy()


def continued(model: nn.Module, x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float]:
    """How well a model foretells the next token, a few records at a time: probabilities of all tokens would not fit.

    Args:
        model: Outputs logits at every position.
        x: Tokens, shape (n, time).
        y: The next tokens, shape (n, time); `IGNORE` does not count.

    Returns:
        Mean loss in nats, and share of right tokens, over the positions that count.
    """
    total, right, counted, records = 0.0, 0, 0, tensor(model, x)
    with torch.no_grad(), evaluating(model):
        for rows in torch.split(by_length(model, records), records_per_pass(model, records, CHUNK)):
            target = tensor(model, y[rows.cpu().numpy()])
            counts = target != IGNORE
            logits, wanted = model(records[rows])[counts].float(), target[counts]
            total += float(functional.cross_entropy(logits, wanted, reduction="sum"))
            right += int((logits.argmax(-1) == wanted).sum())
            counted += len(wanted)
    return total / max(1, counted), right / max(1, counted)


def each(model: nn.Module, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of right targets and mean loss in nats of every record by itself, shape (n,) each.

    Every pass has one number of rows, filled up with a record that is there already, so that how many records there are
    does not choose the kernels that compute them.

    Args:
        model: Outputs logits.
        x: Records, shape (n, ...).
        y: Targets, shape (n,) or (n, time); `IGNORE` does not count.
    """
    if not len(y):
        return np.zeros(0), np.zeros(0)
    right, losses = [], []
    with torch.no_grad(), evaluating(model):
        records, targets = tensor(model, x), tensor(model, y)
        order, size = by_length(model, records), records_per_pass(model, records, ROWS)
        for rows in torch.split(order, size):
            filled = rows[torch.arange(size, device=rows.device).clamp(max=len(rows) - 1)]
            logits, target = model(records[filled])[: len(rows)].float(), targets[rows]
            counted = (target != IGNORE).flatten(1) if target.dim() > 1 else (target != IGNORE)[:, None]
            hits = (predict(logits) == target).reshape(counted.shape) & counted
            right.append(hits.sum(1) / counted.sum(1).clamp(min=1))
            losses.append(cross_entropy(logits, target))
    back = torch.argsort(order)
    shares, nats = torch.cat(right).double()[back], torch.cat(losses).double()[back]
    return shares.cpu().numpy(), nats.cpu().numpy()


def accuracy(scores: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Share of records (or of positions that count) whose most probable class is the right one."""
    counted = y != IGNORE
    return float((scores.argmax(axis=-1) == y)[counted].mean())


def loss(scores: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Mean cross entropy in nats over records (or positions that count)."""
    counted = y != IGNORE
    right = np.take_along_axis(scores, np.where(counted, y, 0)[..., None], axis=-1)[..., 0]
    return float(-np.log(np.maximum(right[counted], 1e-300)).mean())


def auc(scores: NDArray[np.float64], y: NDArray[Any]) -> float | None:
    """Probability that a record of the class scores above one of another class; ties count half.

    More than two classes: the mean of one-against-the-rest over the classes that occur.

    Returns:
        None when only one class occurs: there is nothing to rank.

    Source: Mann and Whitney (1947), the rank-sum form.

    >>> auc(np.array([[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]]), np.array([0, 0, 1]))
    0.75
    """
    classes = [1] if scores.shape[-1] == 2 else range(scores.shape[-1])
    each = [_auc(scores[:, label], y == label) for label in classes]
    known = [value for value in each if value is not None]
    return float(np.mean(known)) if known else None


def _auc(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float | None:
    hits, others = int(positive.sum()), int((~positive).sum())
    if hits == 0 or others == 0:
        return None
    ranks = rankdata(score)
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * others))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Every module in eval mode meanwhile; each mode is put back."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
