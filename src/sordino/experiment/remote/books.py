"""Charges of a run whose silos are elsewhere: one letter a round asks for everything, and everything comes back in one.

reserve here ──► letter ──► silo: reserve, train, draw, hand over ──► update + grant ──► commit here with the grants
   └ a crash: charged here, perhaps there; asked again, a silo sends what it kept, and draws nothing twice

A silo that does not answer is charged here all the same; when it is back, it counts the round as spent, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from sordino.core.errors import EngineError, PrivacyError, SordinoError, VerificationError
from sordino.core.types import NoiseAt, RoundPlan, Update, Vector
from sordino.experiment.books import LedgerBooks
from sordino.experiment.remote.roll import Greeting, Roll, Telling
from sordino.experiment.rounds import Lost
from sordino.experiment.site.member import said
from sordino.experiment.site.sums import SUM
from sordino.federation.engines import Announced
from sordino.federation.post import Letter, opened
from sordino.ledger import Claim
from sordino.ledger.checkpoints import Growth
from sordino.ledger.grants import Grant, Request
from sordino.privacy.permits import Line, Reservation

GREETING_S = 10.0
"""How long silos that are away have to answer a greeting before a round, in seconds: the others wait as long."""


@dataclass(frozen=True)
class Terms:
    """What letters to silos say of the run, the same in every round.

    Args:
        run: Its name in ledgers.
        plan: Digest of the plan.
        approval: The plan as officers signed it, as text.
        experiment: The experiment as written, as JSON.
        origin: Name of the coordinator's key.
        clients: The silos, by position.
        accounts: Each silo's accounts that pay.
        noise_at: Where noise is added.
        shared: One account stands for all clients; each silo has paid for the whole plan when it joined.
    """

    run: str
    plan: str
    approval: str
    experiment: str
    origin: str
    clients: tuple[str, ...]
    accounts: Mapping[str, tuple[str, ...]]
    noise_at: NoiseAt
    shared: bool = False


@dataclass
class _Round:
    """What has come of the round in progress."""

    txid: str = ""
    continued: bool = False
    requests: dict[str, Request] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class RemoteBooks:
    """The coordinator's ledger, and the letters by which silos charge the same in theirs.

    Args:
        own: The coordinator's.
        terms: The run.
        roll: Where the silos are.
        minimum: Least number of silos whose updates make a round.
        tell: Told what goes wrong at the silos, in words.
        fences: Under which fence each silo has joined. Who is not in it is away, and asked again before each round.
        refused: Silos that are not asked again.
    """

    own: LedgerBooks
    terms: Terms
    roll: Roll
    minimum: int
    tell: Telling
    fences: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    _round: _Round = field(default_factory=_Round)

    # ── the loop's side ──

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002 - the noun
        lines: list[Line],
        purpose: str = "train",
    ) -> Reservation | None:
        self._welcome_back()
        shares: dict[str, list[Line]] = {}
        owner = {account: silo for silo, accounts in self.terms.accounts.items() for account in accounts}
        for line in [] if self.terms.shared else lines:
            shares.setdefault(owner[line.account], []).append(line)
        state = self._round
        state.txid, state.continued = txid, self.own.ledger.state(txid) == "reserved"
        state.grants, state.lost = {}, set()
        state.requests = {
            silo: Request(txid, self.terms.run, round, self.terms.plan, self.fences.get(silo, 1), tuple(share), purpose)
            for silo, share in shares.items()
        }
        if state.continued:  # an earlier process charged it; whatever was drawn since, silos drew and keep
            return None
        return self.own.reserve(txid, round, lines, purpose)

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        state, ledger = self._round, self.own.ledger
        consents = {line.account: g.text for s, g in state.grants.items() for line in state.requests[s].lines}
        everyone = {line.account for request in state.requests.values() for line in request.lines}
        absent = sorted(everyone - consents.keys())
        if state.continued:
            ledger.found(state.txid, artefact, consents, absent)
        elif reservation is not None:
            ledger.commit(reservation, artefact, consents, absent)

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
        told: dict[str, Any] = self._addressed(silo)
        told |= {"round": plan.round, "memory": json.dumps(announced.memory)}
        return self.roll.addresses[silo], Letter("train", told, announced.model)

    def read(self, plan: RoundPlan, client: int, answer: Letter, size: int) -> Update:
        silo = self.granted(plan, client, answer)
        vector = answer.vector
        if vector is None or vector.shape != (size,) or vector.dtype != np.float32:
            raise EngineError.about(f"site {silo!r}", f"sends something else than float32 of shape ({size},)")
        if not np.isfinite(vector).all():
            raise EngineError.about(f"site {silo!r}", "sends numbers that are not finite")
        return Update(vector=cast("Vector", vector))

    def granted(self, plan: RoundPlan, client: int, answer: Letter) -> str:
        """The silo's name, if an answer brings an update of this round and the consent to its charge."""
        silo = self.terms.clients[client]
        if answer.action == "lost":
            self._grant(silo, answer)
            self._round.lost.add(silo)
            raise EngineError.about(f"site {silo!r}", "lost its release in a crash, and never draws it again")
        opened(answer, "train", silo)
        self.of_round(plan, silo, answer)
        if not self.terms.shared:
            self._grant(silo, answer)
        return silo

    def of_round(self, plan: RoundPlan, silo: str, answer: Letter) -> None:
        """Return only if an answer is for this plan and round."""
        if (answer.text("plan"), answer.number("round")) != (self.terms.plan, plan.round):
            raise VerificationError.about(
                f"site {silo!r}", "answers for another plan or round", plan=answer.text("plan")
            )

    def request(
        self, plan: RoundPlan, client: int, stage: str, content: bytes, announced: Announced
    ) -> tuple[str, Letter] | None:
        silo = self.terms.clients[client]
        if silo not in self.fences:
            return None
        told: dict[str, Any] = self._addressed(silo)
        told |= {"round": plan.round, "stage": stage, "request": content}
        if stage != "mask":  # only then does anybody train
            return self.roll.addresses[silo], Letter("sum", told)
        told["memory"] = json.dumps(announced.memory)
        return self.roll.addresses[silo], Letter("sum", told, announced.model)

    def content(self, plan: RoundPlan, client: int, answer: Letter) -> bytes:
        silo = self.terms.clients[client]
        opened(answer, "sum", silo)
        if (answer.text("plan"), answer.number("round")) != (self.terms.plan, plan.round) or answer.vector is None:
            raise VerificationError.about(f"site {silo!r}", "answers for another sum", plan=answer.text("plan"))
        if "grant" in answer.fields:
            self._grant(silo, answer)
        return answer.vector.tobytes()

    def believe(self, client: int, message: bytes, signature: str) -> None:
        self.roll.keys[self.terms.clients[client]].verify(SUM + message, signature)

    def closed(self, plan: RoundPlan, silent: Mapping[int, str]) -> None:
        names = {self.terms.clients[client]: reason for client, reason in silent.items()}
        for silo, reason in names.items():
            self.tell(f"round {plan.round + 1}: without {silo}: {reason}")
            if silo not in self._round.grants:
                self.fences.pop(silo, None)  # it has to join again: it may have restarted, or be behind
        arrived = len(self._round.requests) - len(names)
        if arrived >= self.minimum or self.terms.shared:  # a cohort drawn by coins may be empty
            return
        if arrived + len(self._round.lost) >= self.minimum:
            self.own.ledger.forfeit_open(self.terms.run)
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
        if self._round.continued and grant.fence < request.fence:
            # Drawn under an earlier coordinator's fence and kept since: what it allowed was used in time.
            grant.check_signature(key)
            if not replaced(grant, request.fence).answers(request):
                raise PrivacyError.about(f"site {silo!r}", "grants something else", txid=grant.txid)
        else:
            grant.check(key, request, now=time.time())
        self._round.grants[silo] = grant

    # ── coming, going, and agreeing ──

    def join(self, growths: Mapping[str, Growth], fence: int) -> None:
        """Let silos join under a fence, each with the coordinator's newest checkpoint; they load side by side."""
        told: dict[str, Any] = {
            "approval": self.terms.approval,
            "experiment": self.terms.experiment,
            "fence": fence,
        }
        letters = {silo: Letter("join", told | _shown(growth)) for silo, growth in growths.items()}
        for silo, answer in self.roll.ask(letters, patient=True).items():
            self._joined(silo, answer, growths[silo], fence)

    def _joined(self, silo: str, answer: Letter, growth: Growth, fence: int) -> None:
        self.own.ledger.witnessed(growth.note, answer.text("signature"), self.roll.keys[silo])
        if self.terms.shared:
            grant = Grant.parse(answer.text("grant"))
            grant.check_signature(self.roll.keys[silo])
            if (grant.run, grant.plan, grant.round, grant.fence) != (self.terms.run, self.terms.plan, None, fence):
                raise PrivacyError.about(f"site {silo!r}", "grants something else than the plan", txid=grant.txid)
        self.fences[silo] = fence

    def _welcome_back(self) -> None:
        """Ask silos that are away whether they are back; then all join anew.

        Who refuses stays away for good; who does not answer is asked again before the next round.
        """
        away = [silo for silo in self.terms.clients if silo not in self.fences and silo not in self.refused]
        back = self._greet(away, GREETING_S) if away else {}
        if back:
            self._enter(back | self._greet(self.fences, self.roll.timeout))
            for silo in back.keys() & self.fences.keys():
                self.tell(f"{silo} is back")

    def _greet(self, silos: Iterable[str], timeout: float) -> dict[str, Greeting]:
        return self.roll.greet(silos, self.terms.run, self.terms.origin, timeout)

    def _enter(self, greetings: Mapping[str, Greeting]) -> None:
        """Let silos join under a new fence, all under the same: a charge has one, and so have the grants beside it."""
        fence = self.own.ledger.open_run(self.terms.run)
        self.fences.clear()
        for silo, greeting in greetings.items():
            try:
                self.join({silo: self.own.ledger.growth(greeting.seen)}, fence)
                self.catch_up([silo])
            except SordinoError as problem:
                self.fences.pop(silo, None)
                self.tell(f"{silo} stays away: {problem}")
                if not isinstance(problem, EngineError):
                    self.refused.add(silo)

    def catch_up(self, silos: Iterable[str]) -> None:
        """Let silos count as spent what was charged here without them; a round in progress waits for their answers."""
        ledger = self.own.ledger
        settled = [charge for charge in ledger.charges(self.terms.run) if charge.state != "reserved"]
        known = {charge.round: (charge.txid, ledger.consents(charge.txid)) for charge in settled}
        for silo in [] if self.terms.shared else silos:
            mine = self.terms.accounts[silo]
            missed = {
                number: txid
                for number, (txid, consents) in known.items()
                if number is not None and any(account not in consents for account in mine)
            }
            if not missed:
                continue
            told = {**self._addressed(silo), "rounds": json.dumps(sorted(missed))}
            grants = self.roll.ask({silo: Letter("forfeit", told)})[silo].plain("grants", dict[str, dict[str, str]])
            for number, txid in missed.items():
                for account, text in grants.get(str(number), {}).items():
                    Grant.parse(text).check_signature(self.roll.keys[silo])
                    ledger.consent(txid, account, text)

    def agree(self, claims: tuple[Claim, ...], model: Vector) -> tuple[str, ...]:
        """End the run at the silos: they compare claims, keep the last checkpoint, and get the model.

        Returns:
            Silos that are away, with which nothing could be compared.

        Raises:
            VerificationError: A silo's ledger tells of another guarantee.
        """
        asked = [silo for silo in self.terms.clients if silo not in self.refused]
        self._enter(self._greet(asked, self.roll.timeout))  # some may have restarted since they answered
        seen = self._greet(self.fences, self.roll.timeout)
        growths = {silo: self.own.ledger.growth(greeting.seen) for silo, greeting in seen.items()}
        letters = {silo: Letter("leave", {**self._addressed(silo), **_shown(g)}, model) for silo, g in growths.items()}
        theirs: list[dict[str, Any]] = []
        for silo, answer in self.roll.ask(letters, patient=True).items():
            self.own.ledger.witnessed(growths[silo].note, answer.text("signature"), self.roll.keys[silo])
            theirs += answer.plain("claims", tuple[dict[str, Any], ...])
        if self.terms.shared:
            expected = [said(claim) | {"account": silo} for claim in claims for silo in growths]
        else:
            mine = {account for silo in growths for account in self.terms.accounts[silo]}
            expected = [said(claim) for claim in claims if claim.account in mine]
        differ = [claim["account"] for claim in expected if claim not in theirs]
        if differ or len(theirs) != len(expected):
            raise VerificationError.about(
                "run", "are claimed otherwise by their silos' ledgers", "compare the histories", accounts=sorted(differ)
            )
        return tuple(silo for silo in self.terms.clients if silo not in growths)

    def _addressed(self, silo: str) -> dict[str, Any]:
        return {"plan": self.terms.plan, "fence": self.fences[silo]}


def replaced(grant: Grant, fence: int) -> Grant:
    """The same grant, as if it were for another fence. Its signature does not hold for that."""
    from dataclasses import replace

    return replace(grant, fence=fence)


def _shown(growth: Growth) -> dict[str, Any]:
    return {"checkpoint": growth.note, "since": growth.since, "proof": json.dumps(growth.proof)}
