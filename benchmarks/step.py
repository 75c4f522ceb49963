"""What a private step costs beside the same step without privacy: CPU time and memory.

    python benchmarks/step.py --json

A step is forward, backward, clip, noise and update of one batch. All engines of a workload take turns in one process,
one thread, in another order every round; a ratio of CPU time is taken inside each round, and the median over rounds is
reported, since machines are noisy. Memory is the peak above the resting process, each engine in a process of its own.
Networks have random weights and the published shapes: what is computed does not depend on their values.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sordino.core.types import Adjacency, Unit
from sordino.federation.mechanisms import mechanisms
from sordino.ledger import Account, Ledger
from sordino.local.clipping import Clip, engines
from sordino.local.layout import Layout, trainable
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.probe import synthetic
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line

warnings.filterwarnings("ignore")

ENGINES = ("sordino", "opacus-hooks", "opacus-ghost")
WORKLOADS = ("minilm", "minilm-all-linear", "llama", "cnn")
LR, CLIP, NOISE = 0.01, 1.0, 1.0

Step = Callable[[], object]
Problem = tuple[nn.Module, Tensor, Tensor]


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.peak:
        print(peak(*options.peak))
        return
    rows = []
    for workload in options.workloads:
        ratios = measured(workload, options.engines, options.rounds)
        memory = {} if options.no_memory else memories(workload, options.engines)
        for engine, values in ratios.items():
            row = {"workload": workload, "engine": engine, "ratio": round(median(values), 3)}
            row |= {"least": round(min(values), 3), "most": round(max(values), 3)}
            row |= {"peak_memory_ratio": memory.get(engine)}
            rows.append(row)
            print("{workload:<18} {engine:<13} {ratio:.3f}  memory {peak_memory_ratio}".format(**row), file=sys.stderr)
    if options.json:
        print(json.dumps({"rounds": options.rounds, "rows": rows}, indent=2))


def measured(workload: str, names: list[str], rounds: int) -> dict[str, list[float]]:
    """CPU time over that of the plain step, per engine and round."""
    with tempfile.TemporaryDirectory() as folder:
        steps = {name: step_of(name, *problem(workload, Path(folder))) for name in ("plain", *names)}
        repeat = 1 if workload != "cnn" else 8
        for step in steps.values():
            step()
        ratios: dict[str, list[float]] = {name: [] for name in names}
        order = list(steps)
        for _ in range(rounds if repeat == 1 else 3 * rounds):
            order = order[1:] + order[:1]
            spent = {name: cpu(steps[name], repeat) for name in order}
            for name in names:
                ratios[name].append(spent[name] / spent["plain"])
        return ratios


def cpu(step: Step, repeat: int) -> float:
    """CPU seconds."""
    start = time.process_time()
    for _ in range(repeat):
        step()
    return time.process_time() - start


def memories(workload: str, names: list[str]) -> dict[str, float]:
    """Peak memory over that of the plain step, per engine; the median of five processes each."""
    found = {}
    for name in ("plain", *names):
        command = [sys.executable, __file__, "--peak", workload, name]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5)]
        found[name] = median(float(run.stdout.split()[-1]) for run in runs)
    return {name: round(value / found["plain"], 3) for name, value in found.items()}


def peak(workload: str, name: str) -> float:
    """MiB above the resting process in a step that is not the first, when whatever is set up once is there."""
    with tempfile.TemporaryDirectory() as folder:
        step = step_of(name, *problem(workload, Path(folder)))
    for _ in range(2):
        step()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what the allocator keeps of them is not in use
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
    resting = status("VmRSS")
    step()
    return (status("VmHWM") - resting) / 1024


def status(key: str) -> int:
    """A line of the process's status, in KiB."""
    return int(re.findall(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def problem(workload: str, folder: Path) -> Problem:
    """A model and one batch."""
    if workload == "cnn":
        spec = InputSpec((1, 28, 28), 10)
        return models.build("cnn", {}).build(spec, 0), *synthetic(spec, 256)
    if workload == "llama":
        llama(folder)
        spec = InputSpec((128,), 32000, vocabulary=32000, folder=str(folder), per_position=True)
        table = {"base": str(folder), "length": 128, "adapter": {"lora": {"rank": 8}}}
        return models.build("causal_lm", table).build(spec, 0), *synthetic(spec, 16)
    bert(folder)
    spec = InputSpec((64,), 2, vocabulary=30522, folder=str(folder))
    targets = "attention" if workload == "minilm" else "all-linear"
    table = {"base": str(folder), "length": 64, "adapter": {"lora": {"rank": 8, "targets": targets}}}
    return models.build("text_classifier", table).build(spec, 0), *synthetic(spec, 32)


def bert(folder: Path) -> None:
    """The shape of all-MiniLM-L6-v2: 22.7 million parameters."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    BertModel(config).save_pretrained(folder)


def llama(folder: Path) -> None:
    """A Llama of 27 million parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = {"num_attention_heads": 6, "num_key_value_heads": 6, "num_hidden_layers": 8}
    config = LlamaConfig(hidden_size=384, intermediate_size=1088, vocab_size=32000, tie_word_embeddings=True, **heads)
    LlamaForCausalLM(config).save_pretrained(folder)


def step_of(name: str, model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """One training step by an engine."""
    if name == "plain":
        return plain(model, x, y)
    if name == "sordino":
        return sordino(model, x, y)
    return opacus(model, x, y, name.removeprefix("opacus-"))


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Without privacy."""
    optimizer = torch.optim.SGD(trainable(model).values(), lr=LR)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(x), y).mean())
        optimizer.step()

    return step


def sordino(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Clip every example, pay, draw noise, step: what `train_private` does."""
    layout, engine, opened = Layout.of(model), engines.build("auto", {}), doors()
    theta, door = layout.flatten(model), next(opened)

    def step() -> None:
        nonlocal theta
        layout.restore(model, theta)
        total = engine.clipped_sum(model, cross_entropy, (x, y), Clip(CLIP)).total
        theta = theta - np.float32(LR) * door(total) / np.float32(len(x))

    step.keeps = opened  # type: ignore[attr-defined]  # the ledger stays open as long as the step
    return step


def doors() -> Iterator[Door]:
    """The same exit again and again, paid for from an account that can bear a benchmark."""
    mechanism = mechanisms.build("gaussian", {"noise_multiplier": NOISE})
    line = Line("silo", Unit.RECORD, events.key(mechanism.event()), 10_000)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        terms = {"epsilon": 1e6, "delta": 1e-5, "currency": "rdp", "order": 2.0}
        ledger.open_account(Account("silo", Unit.RECORD, Adjacency.ADD_REMOVE, **terms))
        ledger.open_run("benchmark")
        reservation = ledger.reserve("benchmark/0", "benchmark", 0, "train", [line])
        door = Door(mechanism, mechanism.event(), ("silo",), reservation, SystemNoise())
        while True:
            yield door


def opacus(model: nn.Module, x: Tensor, y: Tensor, mode: str) -> Step:
    """Opacus as its documentation uses it, with a fixed batch."""
    from opacus import PrivacyEngine

    data = torch.utils.data.TensorDataset(x, y)
    parts = PrivacyEngine().make_private(
        module=model.train(),
        optimizer=torch.optim.SGD(trainable(model).values(), lr=LR),
        criterion=Criterion(),
        data_loader=torch.utils.data.DataLoader(data, batch_size=len(x)),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    module, optimizer = parts[0], parts[1]
    criterion = parts[2] if mode == "ghost" else lambda out, target: cross_entropy(out, target).mean()

    def step() -> None:
        optimizer.zero_grad()
        criterion(module(x), y).backward()
        optimizer.step()

    return step


class Criterion(nn.Module):
    """One loss per example, with the attribute that Opacus looks for."""

    reduction = "mean"

    def forward(self, output: Any, target: Tensor) -> Tensor:
        """Shape (batch,), or its mean."""
        each = cross_entropy(output, target)
        return each if self.reduction == "none" else each.mean()


if __name__ == "__main__":
    main()
