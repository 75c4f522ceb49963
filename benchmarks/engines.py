"""What a clipped per-example gradient costs: CPU time over a plain forward and backward pass of the same batch.

All engines run in turn in one process, one thread; a ratio is taken inside each round, and its median over the rounds
is reported, since machines are noisy. Non-private is 1 by definition.

    python benchmarks/engines.py --rounds 7 --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from sordino.local.clipping import Clip, engines
from sordino.local.layout import trainable
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.probe import synthetic

WORKLOADS: dict[str, tuple[str, dict[str, Any], InputSpec, int]] = {
    "cnn": ("cnn", {}, InputSpec((1, 28, 28), 10), 256),
    "mlp": ("mlp", {"hidden": [64]}, InputSpec((784,), 10), 64),
    "char_lstm": ("char_lstm", {}, InputSpec((80,), 90, vocabulary=90), 16),
    "logistic": ("logistic", {}, InputSpec((29,), 2), 300),
}
ENGINES = ("bookkeeping", "vmap", "opacus")


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for name in options.workloads:
        rows += measured(name, options.rounds)
        for row in rows[-len(ENGINES) :]:
            print(f"{row['workload']:<10} {row['engine']:<12} {row['ratio']:.2f}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({"rounds": options.rounds, "rows": rows}, indent=2))


def measured(workload: str, rounds: int) -> list[dict[str, Any]]:
    """One row per engine."""
    kind, table, spec, examples = WORKLOADS[workload]
    model = models.build(kind, table).build(spec, 0)
    x, y = synthetic(spec, examples)
    steps: dict[str, Callable[[], object]] = {"plain": lambda: plain(model, x, y)}
    for name in ENGINES:
        engine = engines.build(name, {})
        steps[name] = lambda engine=engine: engine.clipped_sum(  # type: ignore[misc]
            model, cross_entropy, (x, y), Clip(1.0)
        )
    repeat = 1 + int(0.1 / max(1e-4, cpu(steps["plain"], 3)))
    ratios: dict[str, list[float]] = {name: [] for name in ENGINES}
    for step in steps.values():
        step()
    for _ in range(rounds):
        spent = {name: cpu(step, repeat) for name, step in steps.items()}
        for name in ENGINES:
            ratios[name].append(spent[name] / spent["plain"])
    return [
        {"workload": workload, "engine": name, "ratio": round(median(values), 3), "least": round(min(values), 3)}
        for name, values in ratios.items()
    ]


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """A forward and backward pass without privacy."""
    torch.autograd.grad(cross_entropy(model(x), y).mean(), list(trainable(model).values()))


def cpu(step: Callable[[], object], repeat: int) -> float:
    """CPU seconds of one step."""
    start = time.process_time()
    for _ in range(repeat):
        step()
    return (time.process_time() - start) / repeat


if __name__ == "__main__":
    main()
