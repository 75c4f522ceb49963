"""The task of the cohort benchmark, for every system alike: 1,797 digits on 100 clients, a network of 6,090 parameters.

It needs numpy, scikit-learn and torch only, so that other systems' interpreters can import it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

CLIENTS = 100
BATCH = 16
LR = 0.1


def network() -> nn.Sequential:
    """Two convolutions and a head."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def shards() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """17 or 18 records a client, dealt at random: one batch of 16 and a small one."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.from_numpy(images[order].reshape(-1, 1, 8, 8).astype(np.float32) / 16)
    y = torch.from_numpy(labels[order].astype(np.int64))
    parts = np.array_split(np.arange(len(y)), CLIENTS)
    return [(x[rows], y[rows]) for rows in parts]


def accuracy(model: nn.Module) -> float:
    """On all records: enough to see that a system trained."""
    data = shards()
    with torch.no_grad():
        hits: Any = sum((model(x).argmax(1) == y).sum() for x, y in data)
    return float(hits) / sum(len(y) for _, y in data)
