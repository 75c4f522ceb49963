"""What many silos cost in memory when one language model serves them all: a private round in one process.

    sordino data fetch smollm2-135m && sordino data fetch dialogue
    python benchmarks/silos.py --silos 100 --json

The frozen base is loaded once; a silo is a flat vector of adapter parameters while it trains, and nothing afterwards.
Memory is what the kernel says of this process (VmRSS and its high-water mark VmHWM).
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sordino.data.federation import FederatedData
from sordino.experiment.compare import trial
from sordino.experiment.config import parse
from sordino.experiment.population import Population, load

warnings.filterwarnings("ignore")

EXPERIMENT = """
name = "silos"
rounds = 1
[data.dialogue]
by = "role"
silos = {silos}
[model.causal_lm]
base = "smollm2-135m"
length = {length}
adapter = {{ ffa = {{ rank = 8 }} }}
[privacy]
epsilon = 8.0
silos_per_person = 1
[local]
lr = 0.1
clip = 1.0
steps = 1
batch = {rate}
[strategy.fedavg]
[simulation]
cohort = "loop"
"""


def main(arguments: list[str] | None = None) -> None:
    """Print the memory, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silos", type=int, default=100)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    experiment = parse(EXPERIMENT.format(silos=options.silos, length=options.length, rate=options.rate))
    population = load(experiment)
    base = base_memory(population.spec.folder or "")
    before, start = status("VmHWM"), time.process_time()
    epsilon, metrics = trial(experiment, population, few(population))
    row: dict[str, Any] = {
        "silos": len(population),
        "base_mib": round(base),
        "peak_above_base_mib": round(max(status("VmHWM"), before) - base),
        "cpu_s": round(time.process_time() - start),
        "epsilon": epsilon,
        "loss": metrics.loss,
    }
    print(json.dumps(row, indent=2) if options.json else "\n".join(f"{k:<20} {v}" for k, v in row.items()))


def base_memory(folder: str) -> float:
    """MiB of this process with the bare base in it, its weights read. The base is dropped again."""
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    sum(float(parameter.sum()) for parameter in network.parameters())
    return status("VmRSS")


def few(population: Population) -> Population:
    """Sixteen held-out records: the round is what is measured."""
    test = population.test
    return replace(population, test=FederatedData(test.examples, test.names[:1], (test.rows[0][:16],)))


def status(key: str) -> float:
    """A line of the process's status, in MiB."""
    return int(re.findall(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


if __name__ == "__main__":
    main()
