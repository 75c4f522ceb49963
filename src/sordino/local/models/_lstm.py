"""LSTM layers made of linear maps: `nn.LSTM` has no per-example gradients under vmap or hooks.

Source: Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000); one bias per gate.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


class Cell(nn.Module):
    """One layer over a whole sequence: (batch, time, width) to (batch, time, hidden)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        """Gates of all steps come from one product; only the state's share is stepwise."""
        gates = self.input(x)
        h = c = x.new_zeros(x.shape[0], self.hidden)
        steps = []
        for t in range(x.shape[1]):
            i, f, g, o = (gates[:, t] + self.state(h)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        return torch.stack(steps, dim=1)


class CharacterNetwork(nn.Module):
    """Embedding, stacked cells, and a linear head on the last step."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.cells = nn.Sequential(*(Cell(hidden if i else embedding, hidden) for i in range(layers)))
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.head(self.cells(self.embedding(x))[:, -1]))
