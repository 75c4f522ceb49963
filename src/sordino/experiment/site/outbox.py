"""What a silo has released, until the coordinator needs it no more: a lost answer is sent again, never drawn again."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sordino.core.types import Vector


@dataclass(frozen=True)
class Kept:
    """An answer.

    Args:
        grant: The silo's consent to the charge.
        vector: The released update. Shape (d,).
    """

    grant: str
    vector: Vector


@dataclass(frozen=True)
class Outbox:
    """Released updates as files in one folder, by transaction.

    Args:
        folder: Of the silo. What lies in it is released already: it may be read by whoever may read the update.
    """

    folder: Path

    def keep(self, txid: str, kept: Kept) -> None:
        """Write an answer down, durably, before it is handed over."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._file(txid)
        temporary = file.with_suffix(".part")
        with temporary.open("wb") as opened:
            np.savez(opened, grant=np.frombuffer(kept.grant.encode(), np.uint8), vector=kept.vector)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)

    def kept(self, txid: str) -> Kept | None:
        """The answer under this name, if there is one."""
        file = self._file(txid)
        if not file.exists():
            return None
        with file.open("rb") as opened, np.load(opened) as arrays:
            return Kept(arrays["grant"].tobytes().decode(), arrays["vector"])

    def clear(self, *, but: str = "") -> None:
        """Drop all answers, but one."""
        for file in self.folder.glob("*.np*"):
            if not but or file != self._file(but):
                file.unlink(missing_ok=True)

    def _file(self, txid: str) -> Path:
        return self.folder / f"{hashlib.sha256(txid.encode()).hexdigest()[:32]}.npz"
