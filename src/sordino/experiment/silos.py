"""A run whose silos keep ledgers of their own: no round is drawn that one of them did not grant.

silo's ledger: reserve ──► grant ──► coordinator's ledger: reserve ──► noise ──► silo: hand over ──► commit
                                                       (one permit uses up both)

The silo's ledger is the one that counts. Where the two differ, the round is charged on both sides and never drawn, or
the coordinator's ledger was put back, and the run does not start.

Where one account stands for all clients, asking a silo for a round would tell who was drawn. There each silo pays the
whole plan when the run starts, and sees the coordinator's checkpoint of every round before its noise is drawn: a ledger
that was put back draws no round again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sordino.core.errors import ConfigError, EngineError, PrivacyError, VerificationError
from sordino.experiment.approval import terms_of
from sordino.experiment.books import LedgerBooks, open_books
from sordino.experiment.config import Enforcement
from sordino.experiment.plan import Plan
from sordino.experiment.rounds import Lost
from sordino.ledger import Claim, Ledger
from sordino.ledger.approval import Approval
from sordino.ledger.grants import Request
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import SiloLedger, open_silo
from sordino.ledger.stores import Place
from sordino.privacy.permits import Consented, Line, Reservation


@dataclass(frozen=True)
class SiloBooks:
    """Charges of one run in the coordinator's ledger and in those of its silos.

    Args:
        own: The coordinator's.
        plan: Digest of the plan.
        silos: By the accounts that are theirs.
        origin: Name of the coordinator's key.
        whole: Each silo has paid for all rounds at once.
    """

    own: LedgerBooks
    plan: str
    silos: Mapping[str, SiloLedger]
    origin: str
    whole: bool = False

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002 - the noun
        lines: list[Line],
        purpose: str = "train",
    ) -> Reservation | None:
        if self.whole:
            reserved = self.own.reserve(txid, round, lines, purpose)
            self._show()
            return reserved
        shares: dict[str, list[Line]] = {}
        for line in lines:
            shares.setdefault(self.silos[line.account].name, []).append(line)
        asked = [
            (
                self.silos[share[0].account],
                Request(txid, self.own.run, round, self.plan, self.own.fence, tuple(share), purpose),
            )
            for share in shares.values()
        ]
        if any(silo.knows(txid) for silo, _ in asked):
            self._lose(asked, txid, round, lines, purpose)
        consents: dict[str, str] = {}
        for silo, request in asked:
            grant = silo.grant(request)
            grant.check(silo.key.public, request, now=time.time())
            consents |= {line.account: grant.text for line in request.lines}
        own = self.own.ledger.reserve(txid, self.own.run, round, purpose, lines, consents=consents)
        return Consented(own, {line.account: self.silos[line.account].reservation(txid) for line in lines})

    def _lose(
        self, asked: list[tuple[SiloLedger, Request]], txid: str, number: int, lines: list[Line], purpose: str
    ) -> None:
        """A crash came after a silo's charge and before the coordinator's: every side counts it as spent."""
        consents: dict[str, str] = {}
        for silo, request in asked:
            silo.forfeit(request)
            consents |= silo.ledger.consents(txid)
        self.own.ledger.reserve(txid, self.own.run, number, purpose, lines, consents=consents)
        self.own.ledger.forfeit_open(self.own.run)
        raise Lost

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        if self.whole:
            self.own.commit(reservation, artefact)
            return
        if not isinstance(reservation, Consented):
            raise EngineError.about("ledger", "has nothing to commit")
        # The bytes are kept once, by the coordinator; before it has them, every silo has said that they leave.
        digest = hashlib.sha256(artefact).hexdigest()
        for silo in _each(self.silos[line.account] for line in reservation.lines):
            silo.hand_over(reservation.txid, digest)
        self.own.commit(reservation.own, artefact)

    def earlier(self, txid: str) -> bytes | bool | None:
        return self.own.earlier(txid)

    def published(self, txid: str) -> None:
        self.own.published(txid)

    def agree(self, claims: tuple[Claim, ...]) -> None:
        """Return only if the silos' own ledgers make the same claims; then they keep the last checkpoint.

        Raises:
            VerificationError: A silo's ledger tells of another guarantee.
        """
        silos = _each(self.silos.values())
        theirs = {claim.account: claim for silo in silos for claim in silo.ledger.claims(self.own.run)}
        ours = {name: claim for claim in claims for name in (self.silos if self.whole else [claim.account])}
        differ = sorted(
            name for name, claim in ours.items() if name not in theirs or _said(theirs[name]) != _said(claim)
        )
        if differ or len(theirs) != len(ours):
            raise VerificationError.about(
                "run", "are claimed otherwise by their silos' ledgers", "compare the histories", accounts=differ
            )
        self._show()

    def _show(self) -> None:
        """Let all silos see what the coordinator's ledger has come to, and keep their word for it."""
        for silo in _each(self.silos.values()):
            growth = self.own.ledger.growth(silo.seen(self.origin)[0])
            signature = silo.witness.see(growth.note, growth.proof)
            self.own.ledger.witnessed(growth.note, signature, silo.key.public)


@contextmanager
def consenting(
    plan: Plan, approval: Approval | None, table: Enforcement, place: Place, base: Path
) -> Iterator[tuple[SiloBooks, Ledger]]:
    """A run's books with the plan admitted by the coordinator and by every silo, and the coordinator's ledger.

    Args:
        plan: What runs.
        approval: The plan as officers signed it, if they did.
        table: Where the silos and the coordinator's key are.
        place: The coordinator's ledger.
        base: Where relative paths start.

    Raises:
        VerificationError: The coordinator's ledger was put back or copied: a silo has seen more, or something else.
        PrivacyError: A silo's rules forbid the plan, or it is not approved.
        BudgetRefused: A silo, or the coordinator, cannot pay for it.
    """
    approval = approval or Approval(terms_of(plan))
    # Whether other code may run it than the code that planned it is for the silos to say.
    if approval.terms != replace(terms_of(plan), code=approval.terms.code):
        raise PrivacyError.about("approval", "is not of this plan, word for word", "let officers sign it again")
    key = SigningKey.load(base / table.key)
    with ExitStack() as stack:
        silos = {name: stack.enter_context(open_silo(base / table.silos / name)) for name in plan.clients}
        for name, silo in silos.items():
            if silo.name != name:
                raise ConfigError.about("enforcement", f"is the folder of {silo.name!r}", silo=name)
            silo.check(approval)  # before anything is written anywhere
        ledger = stack.enter_context(Ledger(place, key=key))
        _put_back(ledger, silos.values(), plan, key.name)
        own = open_books(ledger, plan, plan.run, approval)
        for silo in silos.values():
            growth = ledger.growth(silo.seen(key.name)[0])
            ledger.witnessed(growth.note, silo.join(approval, own.fence, growth), silo.key.public)
        for silo in silos.values() if plan.shared else ():
            silo.grant_whole(plan.run)
        payers = {a.name: silos[plan.clients[a.client]] for a in plan.accounts if a.charges and a.client is not None}
        yield SiloBooks(own, plan.digest, silos if plan.shared else payers, key.name, plan.shared), ledger


def _put_back(ledger: Ledger, silos: Iterable[SiloLedger], plan: Plan, origin: str) -> None:
    """Refuse a coordinator's ledger of which a silo has seen more.

    Raises:
        VerificationError: A silo keeps a later checkpoint, or has handed over a round that the ledger does not know.
        PrivacyError: The run has charges that silos were not asked for.
    """
    silos = list(silos)
    notes = [note for silo in silos for note in [silo.seen(origin)[1]] if note is not None]
    ledger.compare_with(notes)
    theirs = {silo.name: silo.ledger.charges(plan.run) for silo in silos}
    for name, charges in theirs.items():
        for charge in [] if plan.shared else charges:
            if charge.state == "committed" and ledger.state(charge.txid) is None:
                raise VerificationError.about(
                    "ledger",
                    f"does not know what silo {name!r} has handed over: it was put back, or is a copy",
                    "nothing was released; find the newer ledger",
                    txid=charge.txid,
                )
    for charge in ledger.charges(plan.run)[:1]:  # no later one is without: `kept` refuses to go on
        if not (all(theirs.values()) if plan.shared else ledger.consents(charge.txid)):
            raise PrivacyError.about(
                "run", "was charged before without its silos' consent", "start another run", release=charge.txid
            )


def _each(silos: Iterable[SiloLedger]) -> list[SiloLedger]:
    """Each silo once, in order."""
    return list({silo.name: silo for silo in silos}.values())


def _said(claim: Claim) -> tuple[object, ...]:
    return (claim.plan, claim.epsilon, claim.delta, claim.unit, claim.adjacency, claim.events, claim.test)
