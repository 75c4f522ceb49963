"""What pricing and calibrating cost: process CPU seconds, the import of the accountant not included.

python benchmarks/accounting.py --json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from sordino.core.types import Adjacency
from sordino.privacy import events
from sordino.privacy.accounting import epsilon
from sordino.privacy.calibration import calibrate_noise, calibrate_rate, calibrate_steps

ADD = Adjacency.ADD_REMOVE
DELTA = 1e-5
STEPS = 10_000


def plan(noise: float, rate: float = 0.01, steps: int = STEPS) -> events.Events:
    """DP-SGD: so many steps of sampled Gaussian noise."""
    return [(events.poisson(rate, events.gaussian(noise)), steps)]


TASKS: dict[str, Callable[[], float]] = {
    "epsilon of 10,000 steps, rate 0.01, noise 1": lambda: epsilon(plan(1.0), DELTA, adjacency=ADD),
    "the same, rate 0.001, noise 0.6": lambda: epsilon(plan(0.6, 0.001), DELTA, adjacency=ADD),
    "noise for epsilon 3, 10,000 steps, rate 0.01": lambda: calibrate_noise(plan, 3.0, DELTA, adjacency=ADD),
    "noise for epsilon 8, the same": lambda: calibrate_noise(plan, 8.0, DELTA, adjacency=ADD),
    "most steps for epsilon 3, noise 1": lambda: calibrate_steps(
        lambda steps: plan(1.0, steps=steps), 3.0, DELTA, adjacency=ADD
    ),
    "largest rate for epsilon 3, 10,000 steps, noise 1.565": lambda: calibrate_rate(
        lambda rate: plan(1.565, rate), 3.0, DELTA, adjacency=ADD
    ),
}


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    epsilon(plan(5.0, 0.5, 1), DELTA, adjacency=ADD)  # imports
    rows = []
    for task, run in TASKS.items():
        start = time.process_time()
        result = run()
        rows.append({"task": task, "cpu_s": round(time.process_time() - start, 2), "result": round(float(result), 4)})
        if not options.json:
            print(f"{task:<56} {rows[-1]['cpu_s']:>6.2f} CPU s   {rows[-1]['result']:g}", flush=True)
    if options.json:
        print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
