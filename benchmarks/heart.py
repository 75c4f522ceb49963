"""Four hospitals, several splits: each alone, together without privacy, together at several epsilon.

    python benchmarks/heart.py --splits 40 --json

The data are public research data, so a table over many trainings is allowed; each private row still charges a ledger.
Pooled AUC is over all held-out patients; within-hospital AUC is the mean of the hospitals' own, weighted by patients.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from sordino.experiment.compare import compare
from sordino.experiment.config import Compare, read

HEART = Path(__file__).parent.parent / "examples" / "heart.toml"


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 4.0, 2.0, 1.0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    experiment = replace(read(HEART), compare=Compare(epsilon=tuple(options.epsilon), splits=options.splits))
    start = time.process_time()
    rows = [row.to_plain() for row in compare(experiment, progress=lambda label: print(label, file=sys.stderr))]
    result = {"task": "heart", "splits": options.splits, "cpu_s": time.process_time() - start, "rows": rows}
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for row in rows:
        auc, within = row["auc"], row["within_client_auc"]
        print(
            f"{row['setting']:<36} pooled {auc['mean']:.4f} ± {auc['standard_error']:.4f}"
            f"   within {within['mean']:.4f} ± {within['standard_error']:.4f}"
        )


if __name__ == "__main__":
    main()
