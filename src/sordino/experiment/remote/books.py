"""Charges of a run whose silos are elsewhere: one letter a round asks for everything, and everything comes back in one.

reserve here ──► letter ──► silo: reserve, train, draw, hand over ──► update + grant ──► commit here with the grants
   └ a crash: charged here, perhaps there; asked again, a silo sends what it kept, and draws nothing twice

A silo that does not answer is charged here all the same; when it is back, it counts the round as spent, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from sordino.core.errors import EngineError, PrivacyError, VerificationError
from sordino.core.types import NoiseAt, RoundPlan, Update, Vector
from sordino.experiment.remote.attendance import Attendance, shown
from sordino.experiment.rounds import Lost
from sordino.experiment.site.sums import SUM
from sordino.federation.engines import Announced
from sordino.federation.post import Letter, opened
from sordino.ledger.checkpoints import Growth
from sordino.ledger.grants import Grant, Request
from sordino.privacy.permits import Line, Reservation


@dataclass
class _Round:
    """What has come of the round in progress."""

    txid: str = ""
    continued: bool = False
    requests: dict[str, Request] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    growths: dict[str, Growth] = field(default_factory=dict)


@dataclass(frozen=True)
class RemoteBooks(Attendance):
    """The coordinator's ledger, and the letters by which silos charge the same in theirs.

    Where rounds overlap, a silo may draw for a later round than the one in progress. Then that round is charged here
    before the silo is told to begin.
    """

    _round: _Round = field(default_factory=_Round)
    _ahead: dict[str, Reservation | None] = field(default_factory=dict)
    _begun: set[tuple[str, int, int]] = field(default_factory=set)

    # ── the loop's side ──

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002 - the noun
        lines: list[Line],
        purpose: str = "train",
    ) -> Reservation | None:
        self.welcome_back()
        return self._charged(txid, round, lines, purpose)

    def _charged(self, txid: str, round: int, lines: list[Line], purpose: str) -> Reservation | None:  # noqa: A002
        """Charge all silos that pay, each to be asked to do the same under the fence that it has joined under."""
        shares: dict[str, list[Line]] = {}
        owner = {account: silo for silo, accounts in self.terms.accounts.items() for account in accounts}
        for line in [] if self.terms.shared else lines:
            shares.setdefault(owner[line.account], []).append(line)
        state = self._round
        state.txid = txid
        state.continued = txid not in self._ahead and self.own.ledger.state(txid) == "reserved"
        state.grants, state.lost = {}, set()
        state.requests = {
            silo: Request(txid, self.terms.run, round, self.terms.plan, self.fences.get(silo, 1), tuple(share), purpose)
            for silo, share in shares.items()
        }
        if state.continued:  # an earlier process charged it; whatever was drawn since, silos drew and keep
            return None
        return self._ahead[txid] if txid in self._ahead else self.own.reserve(txid, round, lines, purpose)

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        state, ledger = self._round, self.own.ledger
        consents = {line.account: g.text for s, g in state.grants.items() for line in state.requests[s].lines}
        everyone = {line.account for request in state.requests.values() for line in request.lines}
        absent = sorted(everyone - consents.keys())
        if state.continued:
            ledger.found(state.txid, artefact, consents, absent)
        elif reservation is not None:
            ledger.commit(reservation, artefact, consents, absent)
        self._ahead.pop(state.txid, None)

    def earlier(self, txid: str) -> bytes | bool | None:
        if self.terms.noise_at is NoiseAt.SILO and self.own.ledger.state(txid) == "reserved":
            return None  # the coordinator draws nothing, so that it may ask again
        return self.own.earlier(txid)

    def published(self, txid: str) -> None:
        self.own.published(txid)

    # ── the engine's side ──

    def letter(self, plan: RoundPlan, client: int, announced: Announced) -> tuple[str, Letter] | None:
        silo = self.terms.clients[client]
        if silo not in self.fences:
            return None
        told = self._starting(silo, plan, announced)
        if (silo, plan.round, self.fences[silo]) in self._begun:  # it has the model
            return self.roll.addresses[silo], Letter("train", told)
        if self.terms.shared:  # its own ledger has paid and sees no rounds: it keeps what this one has charged
            growth = self._round.growths[silo] = self.own.ledger.growth(self.seen[silo])
            told |= shown(growth)
        return self.roll.addresses[silo], Letter("train", told, announced.model)

    def begin(
        self, plan: RoundPlan, client: int, announced: Announced, lines: Sequence[Line]
    ) -> tuple[str, Letter] | None:
        silo, txid = self.terms.clients[client], f"{self.terms.run}/{plan.round}"
        begun = (silo, plan.round, self.fences.get(silo, 0))
        if silo not in self.fences or begun in self._begun:
            return None
        if self.terms.noise_at is NoiseAt.SILO and self.own.ledger.state(txid) is None:
            self._ahead[txid] = self.own.reserve(txid, plan.round, list(lines))
        self._begun.add(begun)
        return self.roll.addresses[silo], Letter("begin", self._starting(silo, plan, announced), announced.model)

    def unsent(self, plan: RoundPlan, client: int) -> None:
        silo = self.terms.clients[client]
        self._begun.discard((silo, plan.round, self.fences.get(silo, 0)))

    def _starting(self, silo: str, plan: RoundPlan, announced: Announced) -> dict[str, Any]:
        return {**self.addressed(silo), "round": plan.round, "memory": json.dumps(announced.memory)}

    def read(self, plan: RoundPlan, client: int, answer: Letter, size: int) -> Update:
        silo = self.granted(plan, client, answer)
        vector = answer.vector
        if vector is None or vector.shape != (size,) or vector.dtype != np.float32:
            raise EngineError.about(f"site {silo!r}", f"sends something else than float32 of shape ({size},)")
        if not np.isfinite(vector).all():
            raise EngineError.about(f"site {silo!r}", "sends numbers that are not finite")
        return Update(vector=cast("Vector", vector))

    def granted(self, plan: RoundPlan, client: int, answer: Letter, action: str = "train") -> str:
        """The silo's name, if an answer brings an update of this round and the consent to its charge.

        Args:
            plan: The round.
            client: The silo.
            answer: What it says.
            action: What it was asked for, where that is another release than an update.
        """
        silo = self.terms.clients[client]
        if answer.action == "lost":
            self._grant(silo, answer)
            self._round.lost.add(silo)
            raise EngineError.about(f"site {silo!r}", "lost its release in a crash, and never draws it again")
        opened(answer, action, silo)
        self.of_round(plan, silo, answer)
        if self.terms.shared:
            self.witnessed(silo, answer, self._round.growths[silo])
        else:
            self._grant(silo, answer)
        return silo

    def of_round(self, plan: RoundPlan, silo: str, answer: Letter) -> None:
        """Return only if an answer is for this plan and round."""
        if (answer.text("plan"), answer.number("round")) != (self.terms.plan, plan.round):
            raise VerificationError.about(
                f"site {silo!r}", "answers for another plan or round", plan=answer.text("plan")
            )

    def request(
        self, plan: RoundPlan, client: int, stage: str, content: bytes, beside: bytes | None, announced: Announced
    ) -> tuple[str, Letter] | None:
        silo = self.terms.clients[client]
        if silo not in self.fences:
            return None
        told: dict[str, Any] = self.addressed(silo)
        told |= {"round": plan.round, "stage": stage, "request": content}
        if beside is not None:
            told["beside"] = beside
        if stage != "mask":  # only then does anybody train
            return self.roll.addresses[silo], Letter("sum", told)
        told["memory"] = json.dumps(announced.memory)
        return self.roll.addresses[silo], Letter("sum", told, announced.model)

    def content(self, plan: RoundPlan, client: int, answer: Letter) -> tuple[bytes, bytes | None]:
        silo = self.terms.clients[client]
        opened(answer, "sum", silo)
        if (answer.text("plan"), answer.number("round")) != (self.terms.plan, plan.round) or answer.vector is None:
            raise VerificationError.about(f"site {silo!r}", "answers for another sum", plan=answer.text("plan"))
        if "grant" in answer.fields:
            self._grant(silo, answer)
        return answer.vector.tobytes(), answer.content("beside") if "beside" in answer.fields else None

    def standing(self) -> object:
        return dict(self.fences)

    def believe(self, client: int, message: bytes, signature: str) -> None:
        self.roll.keys[self.terms.clients[client]].verify(SUM + message, signature)

    def closed(self, plan: RoundPlan, silent: Mapping[int, str]) -> None:
        names = {self.terms.clients[client]: reason for client, reason in silent.items()}
        for silo, reason in names.items():
            what = f"round {plan.round + 1}" if plan.round < plan.rounds else "figures"
            self.tell(f"{what}: without {silo}: {reason}")
            if silo not in self._round.grants:
                self.fences.pop(silo, None)  # it has to join again: it may have restarted, or be behind
        arrived = len(self._round.requests) - len(names)
        if arrived >= self.minimum or self.terms.shared:  # a cohort drawn by coins may be empty
            return
        if arrived + len(self._round.lost) >= self.minimum:
            self.own.ledger.forfeit_open(self.terms.run, [self._round.txid])
            self._ahead.pop(self._round.txid, None)
            raise Lost
        raise EngineError.about(
            "run",
            f"of {len(self._round.requests)} silos is less than the minimum of {self.minimum}: "
            + "; ".join(f"{silo}: {reason}" for silo, reason in sorted(names.items())),
            "the same command goes on from here when they are back",
            arrived=arrived,
        )

    def _grant(self, silo: str, answer: Letter) -> None:
        """Believe a grant, if its silo signed it for this charge."""
        grant, request, key = Grant.parse(answer.text("grant")), self._round.requests[silo], self.roll.keys[silo]
        earlier = self._round.continued or self._round.txid in self._ahead
        if earlier and grant.fence < request.fence:
            # Drawn under an earlier coordinator's fence and kept since: what it allowed was used in time.
            grant.check_signature(key)
            if not replaced(grant, request.fence).answers(request):
                raise PrivacyError.about(f"site {silo!r}", "grants something else", txid=grant.txid)
        else:
            grant.check(key, request, now=time.time())
        self._round.grants[silo] = grant


def replaced(grant: Grant, fence: int) -> Grant:
    """The same grant, as if it were for another fence. Its signature does not hold for that."""
    from dataclasses import replace

    return replace(grant, fence=fence)
