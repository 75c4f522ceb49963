"""One thread per process, the same random examples everywhere, and small runs that several suites share."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tiny_heart import HEART

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)

TABLE = """
name = "table"
rounds = 2
[data.table]
path = '{path}'
label = "ill"
client = "hospital"
user = "patient"
ranges = {{ a = [0, 1], b = [0, 1] }}
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
noise_multiplier = 1.0
silos_per_person = 1
[local]
lr = 0.5
[strategy.fedavg]
"""

PATIENTS = "a,b,ill,hospital,patient\n" + "".join(
    f"{i % 7 / 7:.3f},{i % 11 / 11:.3f},{i % 2},h{i % 6},h{i % 6}-p{i // 12 % 5}\n" for i in range(120)
)
"""120 records of six hospitals, four to five persons each, nobody in two of them."""


@pytest.fixture
def heart(tmp_path: Path) -> Path:
    """An experiment on the four hospitals, three rounds long."""
    file = tmp_path / "heart.toml"
    file.write_text(HEART, encoding="utf-8")
    return file


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """An experiment on a small table of one's own; terms of privacy are for the test to set."""
    (tmp_path / "patients.csv").write_text(PATIENTS, encoding="utf-8")
    file = tmp_path / "table.toml"
    file.write_text(TABLE.format(path=tmp_path / "patients.csv"), encoding="utf-8")
    return file


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sensor at the start, which stops a run whose code a test has broken on purpose."""
    monkeypatch.setattr("sordino.experiment.audits.sensor.at_start", lambda _: None)


@pytest.fixture(scope="session")
def tiny_tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model's folder without weights: 400 tokens, a chat template."""
    pytest.importorskip("tokenizers")
    import tiny_tokenizer

    return tiny_tokenizer.write(tmp_path_factory.mktemp("bases") / "tiny")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Any]:
    """A real PostgreSQL server of this session. Where tests must be complete (CI=true), its absence is a failure."""
    path = Path(__file__).parents[1] / "benchmarks" / "private_postgresql.py"
    spec = importlib.util.spec_from_file_location("private_postgresql", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["private_postgresql"] = module
    spec.loader.exec_module(module)
    if module.binaries() is None:
        missing = "no PostgreSQL server on this machine; apt-get install postgresql"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    with module.server(in_memory=True) as server:
        yield server


@pytest.fixture
def postgresql(postgresql_server: Any) -> str:
    """The URL of an empty PostgreSQL schema."""
    return postgresql_server.fresh()
