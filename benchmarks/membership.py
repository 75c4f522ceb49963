"""Who was trained on: attacks on the records of one silo, without privacy and at three noise levels.

    python benchmarks/membership.py --json

An MLP 64-32-10 learns the small digits in 900 DP-SGD steps at a rate of one in six. The silo under attack holds 1,200
of them, one in ten with a wrong label; 72 models are trained on random halves, 8 of them targets and 64 references. A
second silo is there because a federation needs two; it has no weight. Every attack is judged by the audit's own code.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from sordino.audit.attacks import attacks
from sordino.audit.attacks._membership import play
from sordino.audit.findings import Finding
from sordino.audit.promise import Promise
from sordino.core.seeds import stream
from sordino.data.datasets.digits import Digits
from sordino.data.federation import FederatedData
from sordino.experiment.audits.records import RetrainedRecords
from sordino.experiment.build import build
from sordino.experiment.config import parse
from sordino.experiment.plan import make_plan
from sordino.experiment.population import Population
from sordino.local.models import InputSpec

EXPERIMENT = """
name = "membership"
rounds = {rounds}
[data.digits]
[model.mlp]
hidden = [32]
[privacy]
{privacy}
[local]
steps = 100
lr = 0.5
batch = 0.16666666666666666
clip = 1.0
[strategy.fedavg]
"""

NOISES = (0.0, 0.6, 1.0, 2.0)
OTHERS = 20
"""Records of the second silo."""

TABLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("loss_threshold", {}),
    ("lira", {"mode": "online"}),
    ("lira", {"mode": "offline"}),
    ("rmia", {"mode": "offline"}),
    ("rmia", {"mode": "online"}),
)


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, nargs="+", default=list(NOISES), help="multipliers; 0 is no privacy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    header = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("sordino", "torch", "numpy", "dp-accounting")},
        "seed": options.seed,
    }
    studies = []
    for noise in options.noise:
        studies.append(study(noise, seed=options.seed))
        if not options.json:
            show(studies[-1])
    if options.json:
        print(json.dumps(header | {"studies": studies}, indent=2))


def study(noise: float, *, seed: int = 0) -> dict[str, Any]:
    """All attacks at one noise multiplier."""
    subject = silo(noise, seed=seed)
    begun = time.process_time()
    game = play(subject, 8, 64, lambda _: None)
    trained = time.process_time() - begun
    x, y = subject.population
    right = subject.log_probabilities(game.models, x).argmax(-1) == y
    rows = []
    for name, table in TABLES:
        begun = time.process_time()
        finding = attacks.build(name, table).run(subject, lambda _: None)
        rows.append(row(f"{name} {table.get('mode', '')}".strip(), finding) | {"cpu_s": time.process_time() - begun})
    promise = subject.promise
    return {
        "noise": noise,
        "epsilon": promise.epsilon if promise is not None else None,
        "test_accuracy": float(right.mean()),
        "training_cpu_s": trained,
        "attacks": rows,
    }


def silo(noise: float, *, seed: int = 0, records: int = 1200, rounds: int = 9, wrong: float = 0.1) -> RetrainedRecords:
    """The silo under attack, with its wrong labels flagged."""
    digits, rng = Digits().load(), stream(seed, "membership benchmark")
    order, labels = rng.permutation(len(digits)), digits.y.copy()
    spoilt = np.zeros(len(digits), dtype=bool)
    spoilt[order[:records]] = rng.random(records) < wrong
    labels[spoilt] = (labels[spoilt] + rng.integers(1, 10, size=spoilt.sum())) % 10
    digits = replace(digits, y=labels)
    own, other, rest = np.split(order, [records, records + OTHERS])
    train = FederatedData(digits, ("attacked", "other"), (np.sort(own), np.sort(other)))
    test = FederatedData(digits, ("test",), (np.sort(rest),))
    spec = InputSpec(digits.shape, digits.classes)
    population = Population(train, test, train.sizes, spec, public=True, source=digits.source)
    privacy = f"noise_multiplier = {noise}\ndelta = 1e-5\nsilos_per_person = 1" if noise else "non_private = true"
    plan = make_plan(parse(EXPERIMENT.format(rounds=rounds, privacy=privacy)), population, check_learning=False)
    plan = replace(plan, weights=(1.0, 0.0))
    promise = None
    if plan.private:
        promise = Promise.declared(plan.accounts[0].events, plan.delta, adjacency=plan.adjacency, by="the plan")
    return RetrainedRecords(
        promise=promise,
        built=build(plan, population),
        client=0,
        pool=train.rows[0],
        rest=np.empty(0, dtype=np.int64),
        seed=seed,
        flagged=spoilt[train.rows[0]],
    )


def row(name: str, finding: Finding) -> dict[str, Any]:
    """A finding's figures."""
    figures: dict[str, Any] = {key: [f.value, f.low, f.high] for key, f in finding.figures.items()}
    curve = finding.curves["roc"]
    if "ceiling" in curve:
        above = np.array(curve["tpr"]) > np.array(curve["ceiling"]) + 1e-9
        figures["points_above_ceiling"] = int(above.sum())
    return {"attack": name, "verdict": finding.verdict.value, "epsilon_at_least": finding.lower_bound, **figures}


def show(found: dict[str, Any]) -> None:
    """One noise level as a table."""
    epsilon = "no privacy" if found["epsilon"] is None else f"noise {found['noise']}, epsilon {found['epsilon']:.1f}"
    print(f"\n{epsilon}: test accuracy {found['test_accuracy']:.3f}; training {found['training_cpu_s']:.0f} CPU s")
    for each in found["attacks"]:
        cells = [f"{each['attack']:<15}{each['verdict']:<8}"]
        for name, key in (
            ("AUC", "auc"),
            ("wrong labels", "auc_of_flagged_records"),
            ("permuted", "auc_of_permuted_coins"),
        ):
            cells.append(f"{name} {each[key][0]:.3f}")
        for rate in ("0.01", "0.001"):
            value, low, high = each[f"tpr_at_fpr_{rate}"]
            cells.append(f"TPR@{rate} {value:.3f} [{low:.3f}, {high:.3f}]")
            if f"tpr_at_fpr_{rate}_allowed" in each:
                cells.append(f"(allowed {each[f'tpr_at_fpr_{rate}_allowed'][0]:.3f})")
        print("  ".join([*cells, f"{each['cpu_s']:.1f} CPU s"]))


if __name__ == "__main__":
    main()
