"""The cohort task in Apple's pfl 0.6, by its documented classes, without privacy. Run by cohort.py."""

from __future__ import annotations

import sys
from typing import Any

import cohort_task
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import nn


class Network(nn.Module):
    """The network with the loss that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = cohort_task.network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        result: torch.Tensor = self.layers(x)
        return result

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:  # noqa: A002 - pfl's name
        """Mean cross entropy of a batch."""
        self.train(not eval)
        return nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:  # noqa: A002, ARG002 - as above
        """None."""
        return {}


def main(rounds: int) -> None:
    """Train, and print the accuracy."""
    torch.set_num_threads(1)
    data = cohort_task.shards()
    sampler = get_user_sampler("minimize_reuse", list(range(len(data))))
    users = FederatedDataset(lambda user: Dataset(raw_data=list(data[user])), sampler)
    network = Network()
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=cohort_task.CLIENTS,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=cohort_task.LR, local_batch_size=cohort_task.BATCH
        ),
    )
    print(f"accuracy {cohort_task.accuracy(network):.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
