"""The run folder: everything a report needs years later, written so that a crash leaves it whole.

runs/<name>-<digest>/  experiment.toml  plan.json  ledger.db  rounds.jsonl  model.safetensors
                       environment.json  sensor.json  summary.json  compare.json  (checkpoint.npz while running)
                       timing.json (local: it depends on the records)
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core.errors import ConfigError
from sordino.experiment.rounds import State
from sordino.federation.averaging import TailState
from sordino.federation.strategies import ServerState

BEGUN = ("experiment.toml", "environment.json", "plan.json")
"""What `begin` writes, the plan last."""

RECORDED = ("sordino", "dp-accounting", "numpy", "torch", "opacus", "cryptography", "sqlalchemy")


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. All writes are to a temporary name, synced, then renamed."""

    path: Path

    @property
    def ledger(self) -> Path:
        """The run's own ledger file."""
        return self.path / "ledger.db"

    def finished(self, digest: str) -> dict[str, Any] | None:
        """The summary, if the run has ended.

        Raises:
            ConfigError: The folder holds another plan, or its files are damaged.
        """
        earlier = self.read("plan.json")
        if earlier is not None and earlier.get("digest") != digest:
            raise ConfigError.about("run", "holds another plan", "choose another folder", folder=str(self.path))
        found: dict[str, Any] | None = self.read("summary.json")
        return found

    def begin(self, toml: str, plan: dict[str, Any]) -> bool:
        """Write what was planned, unless an interrupted run did. True if this is a new run.

        Raises:
            ConfigError: The folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.read("plan.json") is not None:
                return False
            self.write_text("experiment.toml", toml)
            self.write("environment.json", environment())
            self.write("plan.json", plan)
        except OSError as problem:
            raise ConfigError.about(
                "run", f"cannot be written: {problem.strerror}", "choose another with --runs", folder=str(self.path)
            ) from None
        return True

    def discard(self) -> None:
        """Take back what `begin` wrote, of a run that was refused. A ledger is never deleted."""
        for name in BEGUN:
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def read(self, name: str) -> Any:
        """A JSON file's value, or None if it is not there."""
        file = self.path / name
        if not file.exists():
            return None
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise _damaged(file) from None
        if not isinstance(value, (dict, list)):
            raise _damaged(file)
        return value

    def write(self, name: str, value: object) -> None:
        """A JSON file, whole or not at all."""
        self.write_text(name, json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """A text file, whole or not at all."""
        self._replace(name, text.encode())

    def log(self, line: dict[str, Any]) -> None:
        """One line of rounds.jsonl."""
        with (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def save(self, state: State) -> None:
        """The checkpoint: public state only, so it may lie about."""
        arrays = {f"server.{k}": v for k, v in state.server.to_arrays().items()}
        arrays |= {f"average.{k}": v for k, v in state.average.to_arrays().items()}
        arrays |= {f"version.{number}": model for number, model in state.versions.items()}
        meta = json.dumps({"round": state.round, "memory": state.memory}).encode()
        arrays["meta"] = np.frombuffer(meta, dtype=np.uint8)
        temporary = self.path / "checkpoint.npz.part"
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / "checkpoint.npz")

    def load(self) -> State | None:
        """The last checkpoint, if any."""
        file = self.path / "checkpoint.npz"
        if not file.exists():
            return None
        try:
            with file.open("rb") as opened, np.load(opened) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
                part = {key: arrays[key] for key in arrays.files}
            return State(
                server=ServerState.from_arrays(_under("server.", part)),
                average=TailState.from_arrays(_under("average.", part)),
                memory=meta["memory"],
                round=meta["round"],
                versions={int(number): model for number, model in _under("version.", part).items()},
            )
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            raise _damaged(file) from None

    def finish(self, summary: dict[str, Any]) -> None:
        """The summary, after which nothing is left to resume."""
        self.write("summary.json", summary)
        (self.path / "checkpoint.npz").unlink(missing_ok=True)

    def save_model(self, tensors: dict[str, np.ndarray[Any, Any]], about: dict[str, str]) -> None:
        """The final model, readable by anything that reads safetensors."""
        from safetensors.numpy import save

        self._replace("model.safetensors", save(tensors, metadata=about))

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self.path / f"{name}.part"
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)


def environment() -> dict[str, Any]:
    """Versions that shaped the run; no host or user names."""
    versions = {}
    for name in RECORDED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {"python": platform.python_version(), "platform": platform.system(), "packages": versions}


def _under(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _damaged(file: Path) -> ConfigError:
    return ConfigError.about(
        "run", "is damaged", "restore it, or remove the run folder: what it spent stays spent", file=str(file)
    )
