"""The claim test audited: one training with 10,000 canaries against the accountant's whole curve.

    python benchmarks/claim_test.py --json

What is driven is the product's own: `train_private` with its coins, the clipping engine `auto`, the certified sum, the
door with permits from a TEST ledger, and the Gaussian noise; 200 steps at rate 0.1. A fault replaces one of these by a
broken twin (tests/worlds/canaries.py). Each claim is tested in sound trainings and in trainings with each fault.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from sordino.audit.attacks._trials import Trial, scores
from sordino.audit.promise import Promise
from sordino.audit.stats.curve_test import best_gdp_bound, claim_test, curve_lower_bound
from sordino.audit.stats.one_run import best_bound
from sordino.audit.subjects.canaries import Terms
from sordino.core.seeds import stream
from worlds.canaries import FAULTS, SOUND, Maker, promised

CANARIES, STEPS, RATE, DELTA = 10_000, 200, 0.1, 1e-5

NOISE = (5.4, 4.0, 2.0, 1.75)
"""Claimed epsilon 1.01, 1.42, 3.36 and 4.04."""


def main(arguments: list[str] | None = None) -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sound", type=int, default=40, help="trainings without a fault, per claim")
    parser.add_argument("--broken", type=int, default=10, help="trainings with each fault, per claim")
    parser.add_argument("--noise", type=float, nargs="+", default=list(NOISE))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for noise in options.noise:
        terms = Terms(RATE, noise, STEPS)
        promise = promised(terms)
        for name, make, count in [
            ("sound", SOUND, options.sound),
            *((n, m, options.broken) for n, m in FAULTS.items()),
        ]:
            runs = [tested(make, terms, promise, options.seed + number) for number in range(count)]
            rows.append(summary(name, promise, runs))
            print(told(rows[-1]), file=sys.stderr if options.json else sys.stdout)
    header = {"date": dt.datetime.now(tz=dt.UTC).date().isoformat(), "canaries": CANARIES, "steps": STEPS}
    header |= {"rate": RATE, "delta": DELTA, "alpha": 0.05, "seed": options.seed}
    header |= {name: importlib.metadata.version(name) for name in ("sordino", "numpy", "torch", "dp-accounting")}
    if options.json:
        print(json.dumps(header | {"rows": rows}, indent=2))


def tested(make: Maker, terms: Terms, promise: Promise, seed: int) -> dict[str, Any]:
    """One training and its test."""
    begun = time.process_time()
    rng = stream(seed, "claim test")
    included = rng.random(CANARIES) < 0.5
    released = make(terms).released(included[None], terms, int(rng.integers(2**31)))[0]
    trial = Trial("step", "the step", included, scores(released, terms), promise)
    found = claim_test(trial.scores, included, promise, guesses=trial.guesses)
    spent = time.process_time() - begun
    about = {"guesses": trial.guesses}
    if found.rejected:
        bound = best_gdp_bound(trial.scores, included, delta=DELTA, **about).epsilon
    else:
        bound = curve_lower_bound(trial.scores, included, promise, **about).epsilon
    any_mechanism = best_bound(trial.scores, included, delta=DELTA).epsilon
    return {"rejected": found.rejected, "bound": bound, "any_mechanism": any_mechanism, "cpu_s": spent}


def summary(name: str, promise: Promise, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What a number of trainings say together."""
    bounds = np.array([run["bound"] for run in runs]) / promise.epsilon
    return {
        "claimed_epsilon": round(promise.epsilon, 3),
        "training": name,
        "rejected": sum(run["rejected"] for run in runs),
        "of": len(runs),
        "bound_over_claim": round(float(bounds.mean()), 3),
        "least": round(float(bounds.min()), 3),
        "most": round(float(bounds.max()), 3),
        "any_mechanism_over_claim": round(float(np.mean([r["any_mechanism"] for r in runs])) / promise.epsilon, 3),
        "cpu_s": round(float(np.median([run["cpu_s"] for run in runs])), 2),
        "cpu_s_most": round(max(run["cpu_s"] for run in runs), 2),
    }


def told(row: dict[str, Any]) -> str:
    """A line of the table."""
    return (
        f"epsilon {row['claimed_epsilon']:<6} {row['training']:<19} rejected {row['rejected']:>2} of {row['of']:<3} "
        f"bound {row['bound_over_claim']:.2f} [{row['least']:.2f}, {row['most']:.2f}] of the claim "
        f"(any mechanism {row['any_mechanism_over_claim']:.2f})  {row['cpu_s']} s, at most {row['cpu_s_most']} s"
    )


if __name__ == "__main__":
    main()
