"""Our own mechanisms and other people's under the conformance checks: the dated page docs/conformance.md.

    python benchmarks/conformance.py
    python benchmarks/conformance.py --python flower=/envs/flower/bin/python --python nvflare=/envs/nvflare/bin/python

Frameworks exclude one another's dependencies, so each may have an interpreter of its own; this one is used where none
is given. Each is asked in a process of its own. What is not installed is named on the page as not asked.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from sordino.audit.conformance.table import markdown
from sordino.audit.conformance.targets import EXTRAS

ROOT = Path(__file__).parent.parent


def main(arguments: list[str] | None = None) -> None:
    """Ask, and write the page, or print the documents as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=list(EXTRAS), default=list(EXTRAS))
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="an interpreter for a target"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "conformance.md")
    parser.add_argument("--json", action="store_true", help="print the documents instead of writing the page")
    options = parser.parse_args(arguments)
    interpreters = dict(pair.split("=", 1) for pair in options.python)
    documents: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for target in options.targets:
        made, said = ask(target, interpreters.get(target, sys.executable))
        if made is None:
            missing[target] = said
            continue
        documents[target] = made
        print(f"{target}: {counted(made)}, {made['cpu_seconds']:.0f} CPU s", file=sys.stderr)
    if options.json:
        print(json.dumps({"documents": documents, "missing": missing}, indent=2))
        return
    options.out.write_text(markdown(documents, missing), encoding="utf-8")


def ask(target: str, python: str) -> tuple[dict[str, Any] | None, str]:
    """The document of one framework, or what its process says instead."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "FLWR_TELEMETRY_ENABLED": "0"}
    call = [python, "-m", "sordino.cli", "audit", "conformance", "--target", target, "--json"]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        return None, (done.stderr.strip().splitlines() or ["no answer"])[-1]
    made = json.loads(done.stdout)
    made["cpu_seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    return made, ""


def counted(made: dict[str, Any]) -> str:
    """How many rows of each verdict."""
    results = [row["result"] for row in made["rows"]]
    return ", ".join(f"{results.count(result)} {result}" for result in sorted(set(results)))


if __name__ == "__main__":
    main()
