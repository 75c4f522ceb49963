"""Whole runs in this process: the verbs as a person calls them, and the functions behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from sordino.cli import main
from sordino.experiment.config import read
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.run import Result, run


def sordino(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a verb."""
    code = 0
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def planned(file: Path, *overrides: str) -> tuple[Plan, Population]:
    """An experiment file's plan, and its data."""
    experiment = read(file, overrides)
    population = load(experiment)
    return make_plan(experiment, population), population


def ran(file: Path, *overrides: str, runs: Path | None = None) -> Result:
    """An experiment file's result."""
    plan, population = planned(file, *overrides)
    return run(plan, population, "", runs or file.parent / "runs")


def model(result: Result) -> np.ndarray[Any, Any]:
    """A finished run's model as one vector."""
    tensors = load_file(result.folder / "model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64)


def one_line(error: str) -> str:
    """The one line that an expected error shows: no traceback, nothing else."""
    lines = error.strip().splitlines()
    assert len(lines) == 1, error
    assert "Traceback" not in error
    return lines[0]
