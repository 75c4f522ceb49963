"""Which silos take part in a run: they come, are lost, come back, catch up, and at the end agree on what was spent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sordino.core.errors import EngineError, PrivacyError, SordinoError, VerificationError
from sordino.core.types import NoiseAt, Vector
from sordino.experiment.books import LedgerBooks
from sordino.experiment.remote.roll import Greeting, Roll, Telling
from sordino.experiment.remote.signing import TO
from sordino.experiment.site.member import said
from sordino.federation.post import Letter
from sordino.ledger import Claim
from sordino.ledger.checkpoints import Checkpoint, Growth
from sordino.ledger.grants import Grant
from sordino.ledger.notes import Note

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
        overlapping: Silos may be at work when they are asked for something else.
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
    overlapping: bool = False


@dataclass(frozen=True)
class Attendance:
    """Who has joined, and under which fence.

    Args:
        own: The coordinator's ledger.
        terms: The run.
        roll: Where the silos are.
        minimum: Least number of silos whose updates make a round.
        tell: Told what goes wrong at the silos, in words.
        fences: Under which fence each silo has joined. Who is not in it is away, and asked again before each round.
        refused: Silos that are not asked again.
        seen: How many events of the coordinator's ledger each silo has seen.
    """

    own: LedgerBooks
    terms: Terms
    roll: Roll
    minimum: int
    tell: Telling
    fences: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)

    def join(self, growths: Mapping[str, Growth], fence: int) -> None:
        """Let silos join under a fence, each with the coordinator's newest checkpoint; they load side by side."""
        told: dict[str, Any] = {
            "approval": self.terms.approval,
            "experiment": self.terms.experiment,
            "fence": fence,
        }
        letters = {silo: Letter("join", told | shown(growth)) for silo, growth in growths.items()}
        for silo, answer in self.roll.ask(letters, patient=True).items():
            self._joined(silo, answer, growths[silo], fence)

    def witnessed(self, silo: str, answer: Letter, growth: Growth) -> None:
        """Keep a silo's countersignature of a checkpoint."""
        self.own.ledger.witnessed(growth.note, answer.text("signature"), self.roll.keys[silo])
        self.seen[silo] = Checkpoint.parse(Note.parse(growth.note).text).size

    def _joined(self, silo: str, answer: Letter, growth: Growth, fence: int) -> None:
        self.witnessed(silo, answer, growth)
        if self.terms.shared:
            grant = Grant.parse(answer.text("grant"))
            grant.check_signature(self.roll.keys[silo])
            if (grant.run, grant.plan, grant.round, grant.fence) != (self.terms.run, self.terms.plan, None, fence):
                raise PrivacyError.about(f"site {silo!r}", "grants something else than the plan", txid=grant.txid)
        self.fences[silo] = fence

    def welcome_back(self) -> None:
        """Ask silos that are away whether they are back; then all join anew.

        Who refuses stays away for good; who does not answer is asked again before the next round.
        """
        back = self._back()
        if back:
            self._enter(back | self._greet(self.fences, self._patience))
            self._tell_of(back)

    def _back(self) -> dict[str, Greeting]:
        """Of the silos that are away, those that answer."""
        away = [silo for silo in self.terms.clients if silo not in self.fences and silo not in self.refused]
        return self._greet(away, GREETING_S) if away else {}

    def _tell_of(self, back: Iterable[str]) -> None:
        for silo in set(back) & self.fences.keys():
            self.tell(f"{silo} is back")

    @property
    def _patience(self) -> float:
        return self.roll.patience if self.terms.overlapping else self.roll.timeout

    def _greet(self, silos: Iterable[str], timeout: float) -> dict[str, Greeting]:
        return self.roll.greet(silos, self.terms.run, self.terms.origin, timeout)

    def _enter(self, greetings: Mapping[str, Greeting]) -> None:
        """Let silos join under a new fence, all under the same: a charge has one, and so have the grants beside it."""
        fence = self.own.ledger.open_run(self.terms.run, held=True)
        self.fences.clear()
        self._let_in(greetings, fence)

    def _let_in(self, greetings: Mapping[str, Greeting], fence: int) -> None:
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
        known = [(charge, ledger.consents(charge.txid)) for charge in settled]
        for silo in [] if self.terms.shared else silos:
            mine = self.terms.accounts[silo]
            missed = {
                charge.round: charge.txid
                for charge, consents in known
                if charge.round is not None
                and any(line.account in mine and line.account not in consents for line in charge.lines)
            }
            if not missed:
                continue
            told = {**self.addressed(silo), "rounds": json.dumps(sorted(missed))}
            grants = self.roll.ask({silo: Letter("forfeit", told)})[silo].plain("grants", dict[str, dict[str, str]])
            for number, txid in missed.items():
                for account, text in grants.get(str(number), {}).items():
                    Grant.parse(text).check_signature(self.roll.keys[silo])
                    ledger.consent(txid, account, text)

    def _in_the_end(self, silos: Iterable[str]) -> dict[str, Greeting]:
        """Whoever is there, or comes back in time: its ledger has to know all that was charged without it."""
        found = self._greet(silos, self._patience)
        missing = sorted(set(silos) - found.keys())
        if missing and self.roll.wait:
            self.tell(f"waits up to {self.roll.wait:g} s for {', '.join(missing)}, to compare ledgers")
            found |= self.roll.gather(missing, self.terms.run, self.terms.origin, wait=self.roll.wait, least=0)
        return found

    def agree(self, claims: tuple[Claim, ...], model: Vector) -> tuple[str, ...]:
        """End the run at the silos: they compare claims, keep the last checkpoint, and get the model.

        Returns:
            Silos that are away, with which nothing could be compared.

        Raises:
            VerificationError: A silo's ledger tells of another guarantee.
        """
        asked = [silo for silo in self.terms.clients if silo not in self.refused]
        self._enter(self._in_the_end(asked))  # some may have restarted since they answered
        seen = self._greet(self.fences, self._patience)
        growths = {silo: self.own.ledger.growth(greeting.seen) for silo, greeting in seen.items()}
        letters = {silo: Letter("leave", {**self.addressed(silo), **shown(g)}, model) for silo, g in growths.items()}
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

    def addressed(self, silo: str) -> dict[str, Any]:
        return {TO: silo, "plan": self.terms.plan, "fence": self.fences[silo]}


def shown(growth: Growth) -> dict[str, Any]:
    """A checkpoint with its proof, as fields of a letter."""
    return {"checkpoint": growth.note, "since": growth.since, "proof": json.dumps(growth.proof)}
