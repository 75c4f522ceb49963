"""The run folder: everything a report needs years later, written so that a crash leaves it whole.

runs/<name>-<digest>/  experiment.toml  plan.json  ledger.db  rounds.jsonl  model.safetensors
                       environment.json  summary.json  (checkpoint.npz while running)
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core.errors import ConfigError, VerificationError
from sordino.experiment.rounds import State
from sordino.federation.averaging import TailState
from sordino.federation.strategies import ServerState

RECORDED = ("sordino", "dp-accounting", "numpy", "torch", "opacus", "cryptography", "sqlalchemy")


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. All writes are to a temporary name, synced, then renamed."""

    path: Path

    @property
    def ledger(self) -> Path:
        """The run's own ledger file."""
        return self.path / "ledger.db"

    def begin(self, toml: str, plan: dict[str, Any]) -> None:
        """Write what was planned; on a resumed run, check that it is the same plan.

        Raises:
            ConfigError: The folder cannot be written, or holds another plan.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            earlier = self.read("plan.json")
            if earlier is not None and earlier["digest"] != plan["digest"]:
                raise ConfigError.about("run", "holds another plan", "choose another folder", folder=str(self.path))
            if earlier is None:
                self.write_text("experiment.toml", toml)
                self.write("environment.json", environment())
                self.write("plan.json", plan)
        except OSError as problem:
            raise ConfigError.about(
                "run", f"cannot be written: {problem.strerror}", "choose another with --runs", folder=str(self.path)
            ) from None

    def read(self, name: str) -> Any:
        """A JSON file's value, or None if it is not there."""
        file = self.path / name
        if not file.exists():
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise VerificationError.about("run", "is not valid JSON", "restore it", file=str(file)) from None

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
        with np.load(file) as arrays:
            meta = json.loads(arrays["meta"].tobytes())
            part = {key: arrays[key] for key in arrays.files}
        return State(
            server=ServerState.from_arrays(_under("server.", part)),
            average=TailState.from_arrays(_under("average.", part)),
            memory=meta["memory"],
            round=meta["round"],
        )

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
