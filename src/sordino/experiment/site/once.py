"""A charge's release at a silo: drawn once, whatever dies in between.

reserve here ──► draw ──► keep ──► hand over ──► send; asked again: what was kept, or that it is lost
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from sordino.core.types import Vector
from sordino.experiment.site.handed import Handed
from sordino.experiment.site.outbox import Kept, Outbox
from sordino.ledger.grants import Request
from sordino.ledger.silo import SiloLedger


@dataclass(frozen=True)
class Once:
    """A silo's releases.

    Args:
        silo: Its ledger and key.
        outbox: Where they wait until nobody needs them.
        handed: What was handed over, beside the ledger.
    """

    silo: SiloLedger
    outbox: Outbox
    handed: Handed

    def released(self, request: Request, draw: Callable[[], Vector], *, keep: bool) -> Kept | None:
        """What was drawn under a charge, now or before; None if it is lost: spent, and never drawn again.

        Args:
            request: The charge.
            draw: Draws it, under the silo's reservation.
            keep: Keep it durably before it counts as handed over, so that an answer that is lost is sent again.

        Raises:
            BudgetRefused: The silo's accounts do not cover it; nothing was drawn.
        """
        state = self.silo.ledger.state(request.txid)
        kept = self.outbox.kept(request.txid) if state == "committed" else None
        if kept is not None:
            return kept
        if state is not None:  # a crash came between the charge and the bytes
            self.silo.forfeit(request)
            return None
        grant = self.silo.grant(request)
        kept = Kept(grant.text, draw())
        self.outbox.clear()
        if keep:
            self.outbox.keep(request.txid, kept)
        self.handed.add(request.txid)
        self.silo.hand_over(request.txid, hashlib.sha256(kept.vector.tobytes()).hexdigest())
        return kept
