"""Books for rehearsals: accounts marked TEST in a ledger of their own that ends with the audit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger
from sordino.privacy import events
from sordino.privacy.permits import Line, Reservation

if TYPE_CHECKING:
    from sordino.privacy.events import Event

ACCOUNT, RUN = "audit", "audit"
"""Who pays, and for what."""

LIMIT, DELTA = 2e6, 1e-5
"""Of the account: whatever an audit drives, it can bear."""


@contextmanager
def reserved(event: Event, releases: int, unit: Unit) -> Iterator[Reservation]:
    """So many releases of an event, charged to a TEST account that can bear them."""
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        ledger.open_account(Account(ACCOUNT, unit, Adjacency.ADD_REMOVE, LIMIT, DELTA, test=True))
        ledger.admit(RUN, RUN, {ACCOUNT: [(event, releases)]}, DELTA, noise_at=NoiseAt.SILO)
        ledger.open_run(RUN)
        line = Line(ACCOUNT, unit, events.key(event), releases)
        yield ledger.reserve(f"{RUN}/0", run=RUN, round=0, purpose="train", lines=[line])
