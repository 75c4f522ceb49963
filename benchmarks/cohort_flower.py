"""The cohort task in Flower's simulation on Ray, by its message API, without privacy. Run by cohort.py."""

from __future__ import annotations

import sys

import cohort_task
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client = ClientApp()
server = ServerApp()
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
_DATA: list[tuple[torch.Tensor, torch.Tensor]] = []


@client.train()
def train(message: Message, context: Context) -> Message:
    """One local epoch. A worker keeps the data between messages."""
    if not _DATA:
        torch.set_num_threads(1)
        _DATA.extend(cohort_task.shards())
    model = cohort_task.network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = _DATA[int(context.node_config["partition-id"])]
    optimiser = torch.optim.SGD(model.parameters(), lr=cohort_task.LR)
    for rows in torch.randperm(len(y)).split(cohort_task.BATCH):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def serve(grid: Grid, _: Context) -> None:
    """All clients, every round."""
    start = ArrayRecord(cohort_task.network().state_dict())
    result = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=cohort_task.CLIENTS).start(
        grid=grid, initial_arrays=start, num_rounds=ROUNDS
    )
    model = cohort_task.network()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print(f"accuracy {cohort_task.accuracy(model):.3f}", flush=True)


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=cohort_task.CLIENTS, backend_config=resources)
