"""Adapters side by side: MiniLM on four domains of sentiment, one silo each, one clip, one accountant.

    sordino data fetch minilm && sordino data fetch sentiment4
    python benchmarks/reviews.py --out reviews.jsonl
    python benchmarks/reviews.py --out reviews.jsonl --json     # what is there is not run again

Every row is trained through the ledger like any run, on a split of its own per seed, and judged on the held-out texts
of all domains (public research data). The step size follows from the noise (`noise_walk`), one value per method for
all epsilons, chosen at epsilon 3 on a seed that is not reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from sordino.experiment.compare import trial
from sordino.experiment.config import parse
from sordino.experiment.population import load

warnings.filterwarnings("ignore")

ROUNDS, RATE, LENGTH, CLIP = 20, 0.012, 24, 0.1

METHODS = {
    "lora": ("lora = { rank = 8 }", 0.01),
    "ffa": ("ffa = { rank = 8 }", 0.02),
    "alternating": ("alternating = { rank = 8 }", 0.02),
    "head": ("head = {}", 0.01),
    "prefix": ("prefix = { tokens = 8 }", 0.01),
    "zeroth-order": ("head = {}", None),
}
"""Adapter and noise walk. Zeroth-order: the head's 770 parameters, 32 losses per record, five times the steps."""

EXPERIMENT = """
name = "reviews"
rounds = {rounds}
seed = {seed}
average = 0.5
[data.sentiment4]
balance = true
[model.text_classifier]
base = "minilm"
length = {length}
adapter = {{ {adapter} }}
[privacy]
epsilon = {epsilon}
silos_per_person = 1
[local]
steps = 1
batch = {rate}
clip = {clip}
{step}
[strategy.momentum]
lr = 1.0
beta = 0.9
debias = true
[evaluation]
test_fraction = 0.05
split = {seed}
"""


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0, 8.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--walk", type=float, help="try another noise walk")
    parser.add_argument("--out", type=Path, required=True, help="one line of JSON per run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    wanted = [(m, e, s) for s in options.seeds for e in options.epsilon for m in options.methods]
    for method, epsilon, seed in wanted:
        if (method, epsilon, seed) not in {key(row) for row in kept(options.out)}:
            row = run(method, epsilon, seed, options.walk)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), file=sys.stderr, flush=True)
    rows = list(table([row for row in kept(options.out) if key(row) in set(wanted)]))
    if options.json:
        print(json.dumps({"rounds": ROUNDS, "rate": RATE, "clip": CLIP, "rows": rows}, indent=2))
        return
    for row in rows:
        print("{method:<13} epsilon {epsilon:<4g} accuracy {accuracy:.3f} ± {accuracy_error:.3f}".format(**row), end="")
        print("  auc {auc:.3f} ± {auc_error:.3f}  ({runs} runs)".format(**row))


def run(method: str, epsilon: float, seed: int, walk: float | None) -> dict[str, Any]:
    """One training, and its figures."""
    adapter, usual = METHODS[method]
    zeroth = method == "zeroth-order"
    step = (
        f'method = "zeroth_order"\ndirections = 16\nradius = 0.01\nlr = {walk or 1.0}'
        if zeroth
        else f'clipping = "per_layer"\nnoise_walk = {walk or usual}'
    )
    text = EXPERIMENT.format(
        rounds=5 * ROUNDS if zeroth else ROUNDS,
        rate=RATE,
        seed=seed,
        length=LENGTH,
        clip=CLIP,
        adapter=adapter,
        epsilon=epsilon,
        step=step,
    )
    experiment = parse(text)
    population, start = load(experiment), time.process_time()
    claimed, metrics = trial(experiment, population, population)
    row = {"method": method, "epsilon": epsilon, "seed": seed, "claimed": claimed, "walk": walk or usual}
    row |= {"accuracy": metrics.accuracy, "auc": metrics.auc, "cpu_s": round(time.process_time() - start)}
    return row


def kept(file: Path) -> list[dict[str, Any]]:
    """The runs that are there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def key(row: dict[str, Any]) -> tuple[str, float, int]:
    """What names a run."""
    return row["method"], row["epsilon"], row["seed"]


def table(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Means and standard errors over seeds."""
    for method, epsilon in dict.fromkeys((row["method"], row["epsilon"]) for row in rows):
        own = [row for row in rows if (row["method"], row["epsilon"]) == (method, epsilon)]
        line: dict[str, Any] = {"method": method, "epsilon": epsilon, "runs": len(own)}
        for figure in ("accuracy", "auc"):
            values = [row[figure] for row in own]
            line[figure] = round(fmean(values), 4)
            line[f"{figure}_error"] = round(stdev(values) / len(values) ** 0.5, 4) if len(values) > 1 else 0.0
        yield line


if __name__ == "__main__":
    main()
