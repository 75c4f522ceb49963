"""A silo's side of secure sums: its terms worked out anew, its secrets, whose keys it believes, and what it is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sordino.core.errors import ConfigError, EngineError
from sordino.core.types import RoundPlan
from sordino.experiment.settings.shared_sum import SharedSum
from sordino.federation.secure import Client
from sordino.federation.secure.driving import Party
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.privacy.shares import Share

SUM = b"sordino sum\n"
"""Before every text that a silo signs in a secure sum: none of its other signatures passes for one."""


class OneSum:
    """One sum, from its first stage to its last.

    Args:
        setting: Works out the terms.
        plan: The round.
        client: The silo's position.
        key: Signs.
        peers: Public keys of all silos, by name. They come from the silo's own folder, never from the coordinator,
            which could otherwise put itself between any two silos.
    """

    def __init__(
        self, setting: SharedSum, plan: RoundPlan, client: int, key: SigningKey, peers: Mapping[str, VerifyKey]
    ) -> None:
        names = setting.setup.plan.clients
        unknown = sorted(set(names) - peers.keys())
        if unknown:
            raise ConfigError.about(
                "site",
                "have no public key here: it masks with nobody it does not know",
                "add silos/NAME.pub",
                silos=unknown,
            )

        def verify(position: int, message: bytes, signature: str) -> None:
            peers[names[position]].verify(SUM + message, signature)

        terms = setting.sums(plan, list(range(len(names))))
        client_ = Client(terms, client, sign=lambda message: key.sign(SUM + message), verify=verify)
        self.txid, self._share = setting.txid(plan), _nothing
        self._party = Party(client_, self._drawn)

    def _drawn(self) -> Share:
        return self._share()

    def answer(self, stage: str, request: bytes) -> bytes:
        """What the silo sends in a stage without training."""
        return self._party.answer(stage, request)

    def masked(self, request: bytes, share: Callable[[], Share]) -> bytes:
        """What it sends in the stage in which it trains and draws its share of the noise."""
        self._share = share
        return self._party.answer("mask", request)


class Sums:
    """The sums that a silo is in: that of the round in progress, and perhaps the next one, which has only begun."""

    def __init__(self) -> None:
        self._open: dict[str, OneSum] = {}

    def only(self, one: OneSum) -> None:
        """Forget all others, with their secrets."""
        self._open = {one.txid: one}

    def begin(self, one: OneSum) -> None:
        """Take part in one more. What was begun before under its name is forgotten."""
        self._open[one.txid] = one

    def of(self, txid: str) -> OneSum:
        """The sum of this name.

        Raises:
            EngineError: It has begun none: it was restarted, or has joined anew.
        """
        if txid not in self._open:
            raise EngineError.about("site", "is not the sum that it began", txid=txid)
        return self._open[txid]


def _nothing() -> Share:
    raise EngineError.about("site", "was asked for its share before it was charged")
