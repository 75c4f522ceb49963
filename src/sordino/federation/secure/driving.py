"""One secure sum over any transport: who is asked what in which stage, and what each member answers.

A member's Party answers five requests, or four where nobody is missing. The server's side is `summed`: it asks all who
are left, hears what comes, and goes on with those. Requests and answers are bytes; whoever carries them needs to know
nothing else. `ahead` puts the first stages of the next sum beside the last ones of this.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, SordinoError
from sordino.federation.secure.client import STAGES, Client
from sordino.federation.secure.framing import Message
from sordino.federation.secure.messages import Advert, Consent, Masked, Revealed, Sealed, Shares, Verify
from sordino.federation.secure.server import Server
from sordino.federation.secure.terms import Terms
from sordino.privacy.shares import Share

Ask = Callable[[str, Mapping[int, bytes]], Iterable[tuple[int, bytes]]]
"""A stage and each member's request; its answers, as they arrive. Who does not answer is lost."""

Heard = Callable[[str, int, str], None]
"""Is told of an answer that does not hold: the stage, the member, and why."""

_ANSWERS: dict[str, type[Message]] = dict(zip(STAGES, (Advert, Shares, Masked, Consent, Revealed), strict=True))
_COUNT = struct.Struct(">I")
_LENGTH = struct.Struct(">Q")


class Party:
    """A member of one sum, as whoever delivers its requests sees it.

    Args:
        client: Its secrets in this sum.
        share: Trains and draws its share of the noise; called once, when it is its turn to send.
    """

    def __init__(self, client: Client, share: Callable[[], Share]) -> None:
        self._client, self._share = client, share

    def answer(self, stage: str, request: bytes) -> bytes:
        """What it sends in a stage.

        Raises:
            SordinoError: It does not go on: the request is malformed, out of turn, or would uncover somebody.
        """
        client = self._client
        message: Message
        if stage == "advertise":
            message = client.advertise()
        elif stage == "share":
            message = client.share(_unpacked(request, Advert))
        elif stage == "mask":
            inbox = _unpacked(request, Sealed)
            return self._share().masked(lambda words: client.mask(inbox, words).to_bytes())
        elif stage == "consent":
            message = client.consent(_positions(request))
        elif stage == "reveal":
            message = client.reveal(_unpacked(request, Consent))
        else:
            raise EngineError.about("secure", f"is none of {', '.join(STAGES)}", stage=stage)
        return message.to_bytes()


class Drive:
    """The server's side of one sum: what each member is asked in a stage, and what it answers.

    Args:
        terms: Of the sum.
        verify: The server's own checks of signatures.
        heard: Told of every answer that does not hold: the stage, the member, and why.
    """

    def __init__(self, terms: Terms, verify: Verify, heard: Heard = lambda *_: None) -> None:
        self.terms, self.heard = terms, heard
        self._server = Server(terms, verify=verify)
        self._survivors: tuple[int, ...] = ()

    @property
    def everybody(self) -> bool:
        """Whether all members have answered in this stage."""
        return self._server.present == self.terms.members

    def requests(self, stage: str) -> dict[int, bytes]:
        """End the stage before this one: what each member that is left is asked; nothing where it is left out.

        Raises:
            EngineError: Fewer than the threshold are left; nothing was unmasked.
        """
        server = self._server
        if stage == "advertise":
            return dict.fromkeys(self.terms.members, b"")
        if stage == "share":
            return {own: _packed(adverts) for own, adverts in server.adverts().items()}
        if stage == "mask":
            return {own: _packed(boxes) for own, boxes in server.sealed().items()}
        if stage == "consent":
            self._survivors = server.survivors()
            if server.agreed:
                return {}
            listed = _COUNT.pack(len(self._survivors)) + b"".join(map(_COUNT.pack, self._survivors))
            return dict.fromkeys(self._survivors, listed)
        consents = server.consents()
        return dict.fromkeys([consent.sender for consent in consents], _packed(consents))

    def hear(self, stage: str, position: int, answer: bytes) -> None:
        """Take a member's answer, or say why not: then the member counts as lost."""
        try:
            message = _ANSWERS[stage].from_bytes(answer)
            if message.sender != position:
                raise EngineError.about("secure", "speaks for somebody else", sender=message.sender)
            self._server.hear(message)
        except SordinoError as problem:
            self.heard(stage, position, str(problem))

    def total(self) -> tuple[NDArray[np.uint64], tuple[int, ...]]:
        """The sum modulo 2^bits, shape (size,), and who is in it.

        Raises:
            EngineError: Too few shares came back, or they do not fit.
        """
        return self._server.total(), self._survivors


def summed(
    terms: Terms, verify: Verify, ask: Ask, heard: Heard = lambda *_: None
) -> tuple[NDArray[np.uint64], tuple[int, ...]]:
    """The sum of the vectors of all who sent theirs, and who they are.

    Args:
        terms: Of the sum.
        verify: The server's own checks of signatures.
        ask: Carries requests.
        heard: See `Drive`.

    Returns:
        The sum modulo 2^bits, shape (size,), and the survivors.

    Raises:
        EngineError: Fewer than the threshold are left in some stage; nothing was unmasked.
    """
    drive = Drive(terms, verify, heard)
    for stage in STAGES:
        requests = drive.requests(stage)
        for position, answer in ask(stage, requests) if requests else ():
            drive.hear(stage, position, answer)
    return drive.total()


def _packed(messages: Iterable[Message]) -> bytes:
    texts = [message.to_bytes() for message in messages]
    return _COUNT.pack(len(texts)) + b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def _unpacked(request: bytes, kind: type[Any]) -> list[Any]:
    found, at = [], _COUNT.size
    try:
        (count,) = _COUNT.unpack_from(request)
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(request, at)
            at += _LENGTH.size
            found.append(kind.from_bytes(request[at : at + length]))
            at += length
    except struct.error:
        at = -1
    if at != len(request):
        raise EngineError.about("secure", "the request cannot be read", kind=kind.__name__)
    return found


def _positions(request: bytes) -> Sequence[int]:
    try:
        (count,) = _COUNT.unpack_from(request)
        return [int(position) for position in struct.unpack_from(f">{count}I", request, _COUNT.size)]
    except struct.error:
        raise EngineError.about("secure", "the request cannot be read", kind="survivors") from None
