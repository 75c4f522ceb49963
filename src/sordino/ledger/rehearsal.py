"""A charge on nobody's account, for audits that drive doors with made-up records."""

from __future__ import annotations

from collections.abc import Iterable

from sordino.privacy.permits import Line, Reservation, mint_reservation


def rehearsal(txid: str, lines: Iterable[Line]) -> Reservation:
    """A TEST reservation that no ledger keeps: nothing real may be released under it.

    Only audits call it (a lint test holds the list), on data that they made up themselves.
    """
    return mint_reservation(f"rehearsal/{txid}", lines, test=True)
