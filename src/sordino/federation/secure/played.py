"""One sum in one process: every stage in its order, with clients lost on the way."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sordino.federation.secure.client import Client
from sordino.federation.secure.framing import Message
from sordino.federation.secure.messages import Verify
from sordino.federation.secure.server import Server
from sordino.federation.secure.terms import Terms

M = TypeVar("M", bound=Message)


def played(
    terms: Terms,
    clients: Mapping[int, Client],
    vectors: Iterable[tuple[int, NDArray[np.uint64]]],
    lost: Mapping[str, Container[int]] | None = None,
    *,
    verify: Verify,
    wire: bool = False,
) -> NDArray[np.uint64]:
    """The sum of the vectors of all that were not lost before they sent theirs, modulo 2^bits.

    Args:
        terms: Of the sum.
        clients: By position; those without one never answer.
        vectors: One per position, one at a time; those of clients that are lost by then are not read.
        lost: By stage (`client.STAGES`), who falls silent from that stage on.
        verify: The server's.
        wire: Whether every message goes through its bytes.

    Returns:
        Shape (size,), uint64.

    Raises:
        EngineError: Fewer than the threshold are left in some stage.
    """
    lost, server = lost or {}, Server(terms, verify=verify)
    present = _left(clients, clients, lost.get("advertise", ()))
    for client in present.values():
        server.hear(_sent(client.advertise(), wire=wire))
    adverts = server.adverts()
    present = _left(present, adverts, lost.get("share", ()))
    for position, client in present.items():
        server.hear(_sent(client.share([_sent(advert, wire=wire) for advert in adverts[position]]), wire=wire))
    sealed = server.sealed()
    present = _left(present, sealed, lost.get("mask", ()))
    for position, vector in vectors:
        if position in present:
            inbox = [_sent(box, wire=wire) for box in sealed[position]]
            server.hear(_sent(present[position].mask(inbox, vector), wire=wire))
    survivors = server.survivors()
    present = _left(present, survivors, lost.get("consent", ()))
    for client in [] if server.agreed else present.values():
        server.hear(_sent(client.consent(survivors), wire=wire))
    consents = server.consents()
    present = _left(present, {consent.sender for consent in consents}, lost.get("reveal", ()))
    for client in present.values():
        server.hear(_sent(client.reveal([_sent(consent, wire=wire) for consent in consents]), wire=wire))
    return server.total()


def _left(present: Mapping[int, Client], reached: Container[int], lost: Container[int]) -> dict[int, Client]:
    """Who is still there to be asked."""
    return {position: client for position, client in present.items() if position in reached and position not in lost}


def _sent(message: M, *, wire: bool) -> M:
    return type(message).from_bytes(message.to_bytes()) if wire else message
