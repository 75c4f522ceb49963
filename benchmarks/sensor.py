"""The sensor audit: false alarms on sound steps, broken steps killed, and what it costs.

    python benchmarks/sensor.py --json

Sound steps are our trainer with each clipping engine, and our aggregation with each kind of stages, under the system's
own noise. Broken ones are a numpy step with one fault each (`tests/unit/audit/sensor_reference.py`).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "audit"))
import sensor_reference as broken

from sordino.audit.sensor.engines import Training
from sordino.audit.sensor.full import audit
from sordino.audit.sensor.rounds import Rounds
from sordino.audit.sensor.start import start
from sordino.audit.sensor.world import Step
from sordino.core.types import NoiseAt, Unit

L1 = ({"clip_l1": {"norm": 1.0}},)
SOUND: dict[str, Step] = {
    "bookkeeping": Training("bookkeeping"),
    "bookkeeping, persons": Training("bookkeeping", unit=Unit.USER),
    "bookkeeping, per layer": Training("bookkeeping", rule="per_layer"),
    "vmap": Training("vmap"),
    "opacus": Training("opacus"),
    "oracle": Training("oracle"),
    "clients: clip": Rounds(),
    "clients: weight, clip": Rounds(({"weight": {"cap": 100}}, {"clip": {"norm": 0.5}})),
    "clients: adaptive": Rounds(({"adaptive_clip": {"norm": 0.1}},)),
    "clients: half reply": Rounds(replies=0.5),
    "clients: at silo": Rounds(noise_at=NoiseAt.SILO),
    "clients: Laplace": Rounds(L1, mechanism="laplace"),
    "clients: Laplace at silo": Rounds(L1, {"all": {}}, "laplace", NoiseAt.SILO),
}

SHORT: dict[str, Step] = {
    "a step in numpy": broken.Reference(),
    "clients: clip": Rounds(),
    "clients: Laplace by turns": Rounds(L1, {"round_robin": {"size": 3}}, "laplace"),
    "clients: Laplace at silo": SOUND["clients: Laplace at silo"],
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200, help="of the first engine; of each other a tenth")
    parser.add_argument("--repeats", type=int, default=5, help="of each broken step")
    parser.add_argument("--start", type=int, default=2000, help="sound worlds of the short form")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "scipy", "torch", "opacus")},
        "sound": [sound(name, options.audits if i == 0 else options.audits // 10) for i, name in enumerate(SOUND)],
        "broken": [killed(name, options.repeats) for name in (broken.NAMED | broken.SECOND | broken.NEW)],
        "conservative": [killed(name, options.repeats) for name in broken.CONSERVATIVE],
        "start": [short(name, options.start) for name in SHORT],
    }
    print(json.dumps(result, indent=2)) if options.json else show(result)


def sound(name: str, audits: int) -> dict[str, Any]:
    """How often a sound step failed, and CPU seconds per audit."""
    reports = [audit(SOUND[name], seed=10 * seed) for seed in range(audits)]
    alarms = sum(bool(report.failed) for report in reports)
    seconds = median(report.cpu_seconds for report in reports)
    print(f"{name}: {alarms} false alarms in {audits}, {seconds:.3f} CPU s", file=sys.stderr)
    return {"step": name, "audits": audits, "false_alarms": alarms, "cpu_seconds": round(seconds, 3)}


def killed(name: str, repeats: int) -> dict[str, Any]:
    """How often a broken step failed, and which check saw it first."""
    step = (broken.NAMED | broken.SECOND | broken.NEW | broken.CONSERVATIVE)[name]
    reports = [audit(step, seed=10 * seed) for seed in range(repeats)]
    failed = [report.failed for report in reports]
    seen = sorted({check.name for checks in failed for check in checks[:1]})
    return {"mutant": name, "audits": repeats, "killed": sum(map(bool, failed)), "by": seen}


def short(name: str, worlds: int) -> dict[str, Any]:
    """How near sound worlds come to the threshold of the short form."""
    reports = [start(SHORT[name], 1.0, seed=10 * seed) for seed in range(worlds)]
    levels = np.array([check.p for report in reports for check in report.checks])
    return {
        "step": name,
        "worlds": worlds,
        "false_alarms": sum(bool(report.failed) for report in reports),
        "alpha": reports[0].alpha,
        "levels": levels.size,
        "below_0.01": float((levels < 0.01).mean()),
        "below_0.001": float((levels < 0.001).mean()),
        "least": float(levels.min()),
    }


def show(result: dict[str, Any]) -> None:
    """The tables."""
    print(f"{result['date']}  python {result['python']}  {result['versions']}")
    for row in result["sound"]:
        print(
            f"{row['step']:<26} {row['false_alarms']} false alarms in {row['audits']:<4} {row['cpu_seconds']:.3f} CPU s"
        )
    for row in (*result["broken"], *result["conservative"]):
        print(f"{row['mutant']:<38} killed {row['killed']} of {row['audits']}  {', '.join(row['by'])}")
    for row in result["start"]:
        print(row)


if __name__ == "__main__":
    main()
