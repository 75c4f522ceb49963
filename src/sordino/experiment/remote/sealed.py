"""Charges of a run whose silos send under a key of their own: what they sent is added unread, and opened by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from sordino.core.errors import ConfigError, EngineError
from sordino.core.types import RoundPlan, Vector
from sordino.experiment.remote.books import RemoteBooks
from sordino.federation.post import Letter, opened
from sordino.ledger.checkpoints import Growth


@dataclass(frozen=True)
class SealedBooks(RemoteBooks):
    """As `RemoteBooks`, for `EncryptedFlower`.

    Args:
        keys: The name of each silo's key, as it said when it joined.
    """

    keys: dict[str, str] = field(default_factory=dict)

    def _joined(self, silo: str, answer: Letter, growth: Growth, fence: int) -> None:
        super()._joined(silo, answer, growth, fence)
        self.keys[silo] = answer.text("key")
        if len(set(self.keys.values())) > 1:  # before anything is charged for sums that nobody could open
            raise ConfigError.about(
                "homomorphic",
                "are under different keys",
                "give all sites the same homomorphic.key",
                keys={name: key[:8] for name, key in sorted(self.keys.items())},
            )

    def sealed(self, plan: RoundPlan, client: int, answer: Letter) -> bytes:
        """The encrypted update in an answer, with its silo's consent."""
        self.granted(plan, client, answer)
        return _content(self.terms.clients[client], answer)

    def opening(self, plan: RoundPlan, client: int, total: bytes) -> tuple[str, Letter] | None:
        """A letter that asks a silo to open a sum."""
        silo = self.terms.clients[client]
        if silo not in self.fences:
            return None
        told = {**self.addressed(silo), "round": plan.round}
        return self.roll.addresses[silo], Letter("open", told, np.frombuffer(total, np.uint8))

    def opened(self, plan: RoundPlan, client: int, answer: Letter, size: int) -> Vector:
        """The sum that a silo opened."""
        silo = self.terms.clients[client]
        opened(answer, "open", silo)
        self.of_round(plan, silo, answer)
        vector = answer.vector
        if vector is None or vector.shape != (size,) or vector.dtype != np.float32 or not np.isfinite(vector).all():
            raise EngineError.about(f"site {silo!r}", f"opens something else than float32 of shape ({size},)")
        return cast("Vector", vector)


def _content(silo: str, answer: Letter) -> bytes:
    if answer.vector is None or answer.vector.dtype != np.uint8:
        raise EngineError.about(f"site {silo!r}", "sends an update that is not encrypted", "run the same version")
    return answer.vector.tobytes()
