"""The digits task of machines.py as Flower's own FedAvg, by its message API: no privacy, no ledger.

The text of this file is also the code of a Flower app: machines_processes.py packs it alone, so that Flower starts it
at the sites. It needs flwr, torch and scikit-learn only, and nothing of Sordino.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_digits
from torch import nn

client, server = ClientApp(), ServerApp()
_DATA: dict[int, list[Any]] = {}


def network() -> nn.Sequential:
    """Of 6,061 parameters: `[model.cnn] channels = [16, 32], kernel = 3, hidden = 9` of Sordino on 8 x 8 digits."""
    first = (nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU())
    second = (nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU())
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(128, 9), nn.ReLU(), nn.Linear(9, 10))


def shard(number: int, clients: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's records; a process reads them once."""
    if clients not in _DATA:
        torch.set_num_threads(1)
        images, labels = load_digits(return_X_y=True)
        x = torch.from_numpy(images.reshape(-1, 1, 8, 8).astype(np.float32) / 16)
        order = np.array_split(np.random.default_rng(0).permutation(len(labels)), clients)
        _DATA[clients] = [(x[rows], torch.from_numpy(labels[rows].astype(np.int64))) for rows in order]
    own: tuple[torch.Tensor, torch.Tensor] = _DATA[clients][number]
    return own


@client.train()
def train(message: Message, context: Context) -> Message:
    """One local epoch, batch 16, SGD 0.1."""
    clients = int(message.content["config"]["clients"])
    x, y = shard(context.node_id % clients, clients)
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in torch.randperm(len(y)).split(16):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """All clients, every round; when each round ended stands in a file, line by line."""
    clients, rounds = (int(context.run_config[name]) for name in ("clients", "rounds"))

    def ended(number: int, arrays: ArrayRecord) -> MetricRecord:
        del arrays
        with open(str(context.run_config["times"]), "a", encoding="utf-8") as file:  # noqa: PTH123 - as short as it goes
            file.write(f"{time.monotonic()}\n")
        return MetricRecord({"round": number})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        num_rounds=rounds,
        train_config=ConfigRecord({"clients": clients}),
        evaluate_fn=ended,
    )
