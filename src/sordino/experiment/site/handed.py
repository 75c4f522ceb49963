"""What a silo has handed over, beside its ledger: a ledger that was put back alone knows less, and is refused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sordino.core.errors import VerificationError
from sordino.ledger.silo import SiloLedger


@dataclass(frozen=True)
class Handed:
    """Names of charges, one a line, only ever appended.

    It is no proof: who puts back the whole folder puts this back, too. Then the coordinator knows more.

    Args:
        file: In the silo's folder, not with its ledger's backups.
    """

    file: Path

    def add(self, txid: str) -> None:
        """Write a name down, durably, before the charge counts as handed over."""
        with self.file.open("a", encoding="utf-8") as opened:
            opened.write(f"{txid}\n")
            opened.flush()
            os.fsync(opened.fileno())

    def require(self, run: str, silo: SiloLedger) -> None:
        """Return only if the silo's ledger knows all of a run's names.

        Raises:
            VerificationError: It does not: it was put back, and would let the same rounds be drawn again.
        """
        names = self.file.read_text(encoding="utf-8").split("\n") if self.file.exists() else []
        for txid in names:
            if txid.startswith(f"{run}/") and silo.ledger.state(txid) is None:
                raise VerificationError.about(
                    f"silo {silo.name!r}",
                    "was handed over and is not in its ledger: the ledger was put back",
                    "find the newer one; nothing is drawn again",
                    txid=txid,
                )
