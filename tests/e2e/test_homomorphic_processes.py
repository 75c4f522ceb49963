"""Real processes whose sites encrypt what they release: the model of one process, and the key at the sites only."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from deployed import command, folders, up
from machines import HOSPITALS, Machines
from safetensors.numpy import load_file
from whole_runs import model, planned

pytest.importorskip("flwr")

from sordino.experiment.run import run
from sordino.experiment.site.sealing import KEY
from sordino.ledger.keys import SigningKey

pytestmark = pytest.mark.flower
NAMES = ("north", "south")
TERMS = ("homomorphic={ bits = 30 }", "simulation.noise_seed=5")
ROUNDED = 1e-5
"""Models in single precision: sums whose last bits differ."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment on twenty records of each of two hospitals."""
    rows = "".join(f"{i % 7 / 7:.3f},{i % 2},{NAMES[i % 2]}\n" for i in range(40))
    (tmp_path / "rows.csv").write_text("a,ill,hospital\n" + rows)
    file = tmp_path / "faults.toml"
    file.write_text(HOSPITALS.format(path=tmp_path / "rows.csv"))
    return file


@pytest.fixture
def fed(tmp_path):
    """Two sites and their coordinator, up; afterwards down."""
    each = f'epsilon = 8\ndelta = 1e-4\ntest = true\ndata = "{tmp_path / "rows.csv"}"\n'
    with up(folders(tmp_path, NAMES, each, 'name = "tried"\nhomomorphic = true\n'), least=6) as running:
        yield running


def test_the_model_of_one_process_and_the_key_at_sites_only(fed, file):
    done = subprocess.run(command(fed, file, *TERMS), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    plan, population = planned(file, *TERMS)
    alone = run(plan, population, "", file.parent / "alone/runs", base=file.parent / "alone")
    apart = load_file(Path(summary["run_folder"]) / "model.safetensors")
    moved = model(alone) - np.concatenate([apart[name].ravel() for name in sorted(apart)])
    assert np.abs(moved).max() < ROUNDED < np.abs(model(alone)).max()
    assert (summary["epsilon"], summary["silos_away"]) == (alone.summary["epsilon"], [])
    machines = Machines(file, SigningKey.load(fed / "coordinator/coordinator.pem"), NAMES, folder=str(fed / "sites"))
    assert list(machines.states(plan.run).values()) == [[f"{number} committed" for number in range(3)]] * 3
    machines.hold(plan.run, {})
    keys = [fed / "sites" / name / KEY for name in NAMES]
    (key,) = {each.read_bytes() for each in keys}
    assert [stat.S_IMODE(each.stat().st_mode) for each in keys] == [0o600] * 2
    assert keeping(key, file.parent) == set(keys)


def keeping(key: bytes, folder: Path) -> set[Path]:
    """Files that hold any piece of the secret key: it is drawn at random, so that a piece is nowhere by chance."""
    pieces = [key[at : at + 64] for at in range(0, len(key) - 64, len(key) // 20)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path for path in files if any(piece in path.read_bytes() for piece in pieces)}
