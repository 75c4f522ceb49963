"""Who pays for what an audit drives: nobody. A TEST rehearsal, which no ledger keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.core.types import Unit
from sordino.ledger.rehearsal import rehearsal
from sordino.privacy import events
from sordino.privacy.permits import Line, Reservation

if TYPE_CHECKING:
    from sordino.privacy.events import Event

ACCOUNT = "audit"
"""The name that doors ask for."""


def reserved(event: Event, releases: int, unit: Unit) -> Reservation:
    """So many releases of an event."""
    return rehearsal(ACCOUNT, [Line(ACCOUNT, unit, events.key(event), releases)])
