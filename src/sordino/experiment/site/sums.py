"""A silo's side of secure sums: its terms worked out anew, its secrets, whose keys it believes, and what it is in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sordino.core.errors import ConfigError, EngineError, PrivacyError, SordinoError
from sordino.core.types import RoundPlan
from sordino.experiment.settings.shared_sum import SharedSum, shared
from sordino.experiment.site.handed import Handed
from sordino.experiment.site.joined import Joined
from sordino.experiment.site.training import training
from sordino.federation.post import Field, Letter
from sordino.federation.secure import Client
from sordino.federation.secure.ahead import BESIDE
from sordino.federation.secure.driving import Party
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.silo import SiloLedger
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
    """The sums that a silo is in: that of the round in progress, and perhaps the next one, which has only begun.

    Their secrets live in this process only: after a crash they are lost, and so is a round.

    Args:
        silo: Its ledger and key.
        peers: Public keys of all silos, see `OneSum`.
        handed: What was handed over, beside the ledger.
        say: Told each step: public facts only.
    """

    def __init__(
        self, silo: SiloLedger, peers: Mapping[str, VerifyKey], handed: Handed, say: Callable[[str], None]
    ) -> None:
        self._silo, self._peers, self._handed, self._say = silo, peers, handed, say
        self._open: dict[str, OneSum] = {}

    def forget(self) -> None:
        """Forget all sums, with their secrets."""
        self._open = {}

    def answer(self, joined: Joined, letter: Letter) -> Letter:
        """The answer to a letter of one stage of a round's sum, and of one of the next round's beside it.

        Raises:
            EngineError: It has not begun this sum: it was restarted, or has joined anew.
            PrivacyError: The round was charged before.
        """
        stage, number = letter.text("stage"), joined.planned(letter.number("round"))
        told = joined.answering(number)
        if stage == "advertise":
            self._only(self._fresh(joined, number))
        one, request = self._of(joined.txid(number)), letter.content("request")
        if stage == "mask":
            self._only(one)
            told["grant"] = self._silo.grant(joined.request(number)).text
            content = self._masked(joined, number, letter, one)
        else:
            content = one.answer(stage, request)
        if "beside" in letter.fields:
            told |= self.beside(joined, number + 1, stage, letter)
        return Letter("sum", told, np.frombuffer(content, np.uint8))

    def _masked(self, joined: Joined, number: int, letter: Letter, one: OneSum) -> bytes:
        """The masked update with its share of the noise, charged and handed over."""
        with training(joined, number, letter) as (setting, start, plan):
            charge = self._silo.reservation(one.txid)
            share = partial(shared(setting).share, joined.client, start, plan, charge)
            content = one.masked(letter.content("request"), share)
        self._handed.add(one.txid)
        self._silo.hand_over(one.txid, hashlib.sha256(content).hexdigest())
        self._say(f"round {number + 1}: charged, masked and handed over")
        return content

    def beside(self, joined: Joined, number: int, stage: str, letter: Letter) -> dict[str, Field]:
        """What it says in a stage of the next round's sum; nothing, if it does not go on there: this sum goes on."""
        try:
            other, txid = BESIDE[stage], joined.txid(joined.planned(number))
            if other == "advertise":
                self._begin(self._fresh(joined, number))
            return {"beside": self._of(txid).answer(other, letter.content("beside"))}
        except KeyError:
            return {}
        except SordinoError as problem:
            self._say(f"round {number + 1} begins anew: {problem}")
            return {}

    def _fresh(self, joined: Joined, number: int) -> OneSum:
        """A sum with keys that were never used, of a round that was never charged."""
        txid = joined.txid(number)
        if self._silo.ledger.state(txid) is not None:
            raise PrivacyError.about(f"silo {self._silo.name!r}", "was charged here before", txid=txid)
        return OneSum(shared(joined.setting), joined.round(number), joined.client, self._silo.key, self._peers)

    def _only(self, one: OneSum) -> None:
        self._open = {one.txid: one}

    def _begin(self, one: OneSum) -> None:
        self._open[one.txid] = one

    def _of(self, txid: str) -> OneSum:
        if txid not in self._open:
            raise EngineError.about("site", "is not the sum that it began", txid=txid)
        return self._open[txid]


def _nothing() -> Share:
    raise EngineError.about("site", "was asked for its share before it was charged")
