"""The killing of `ledger_kills.py` where each run's silo keeps a ledger of its own, and draws.

    take over ─► ask what the silo holds ─► found, or forfeit ─► late grant
    reserve ─► silo: grant ─► draw ─► keep the bytes ─► hand over ─► commit with its grant ─► publish

What must hold beside the rest: a draw is paid in both ledgers, what the coordinator committed is what the silo handed
over, `verify` agrees with both and with the silo's signatures, and the silo never spends more than its limit.

    python benchmarks/ledger_kills_silos.py --kills 1000 --database sqlite
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ledger_kills import DELTA, KEY, OWNER, ROUNDS, Mine, World, main, publish
from sqlalchemy import event

from sordino.core import code
from sordino.core.errors import BudgetRefused
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, transaction, verify
from sordino.ledger.approval import Approval, PlanTerms
from sordino.ledger.enrolment import enrol
from sordino.ledger.grants import Request
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import SiloLedger, open_silo
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line

BETWEEN = ("before reserve", "after reserve", "after grant", "after draw", "after keeping it", "after hand-over")
INSIDE = ("in take-over", "in settling", "in reserve", "in grant", "in hand-over", "in commit", "in noting it")
LATER = ("after commit", "before publish", "after publish")


def approved(run: str) -> Approval:
    """The plan of a run: its silo alone."""
    plan = PlanTerms(
        run=run,
        digest="digest",
        epsilon=1.0,
        delta=DELTA,
        unit=Unit.RECORD,
        noise_at=NoiseAt.SILO,
        adjacency=Adjacency.ADD_REMOVE,
        mechanism="gaussian",
        rounds=ROUNDS,
        accounts={run: {KEY: ROUNDS}},
        data={},
        code=code.digest(),
    )
    return Approval(plan)


class Silos(World):
    """One coordinator's ledger, and a silo's for each run."""

    @property
    def steps(self) -> tuple[str, ...]:
        return (*BETWEEN, *INSIDE, *LATER)

    def silo(self, run: str) -> Path:
        """Its folder."""
        return self.folder / f"silo-{run}"

    def prepare(self) -> None:
        super().prepare()
        for run in self.runs:
            account = Account(run, Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 2 * DELTA)
            enrol(self.silo(run), account, coordinators=[OWNER.public])
            (self.silo(run) / "held").mkdir()

    def live(self, run: str, step: str | None, passes: int) -> None:
        """One life of a coordinator and its silo, which die together."""
        mine = Mine(self, step, passes)
        with self.open() as ledger, open_silo(self.silo(run)) as silo:
            mine.lay(ledger)
            event.listen(silo.ledger._store.engine, "commit", lambda _: mine.at(mine.inside))  # noqa: SLF001 - the seam
            fence = ledger.open_run(run)
            growth = ledger.growth(silo.seen(OWNER.name)[0])
            ledger.witnessed(growth.note, silo.join(approved(run), fence, growth), silo.key.public)
            with mine.within("in settling"):
                self._settle(ledger, silo, run)
            for charge in ledger.charges(run):
                publish(self, ledger, charge.txid, mine)
            for number in range(len(ledger.charges(run)), ROUNDS):
                if not self._round(
                    ledger, silo, mine, Request(self._name(run, number), run, number, "digest", fence, _lines(run))
                ):
                    break

    def _name(self, run: str, number: int) -> str:
        return transaction(run, number, "train", "digest")

    def _round(self, ledger: Ledger, silo: SiloLedger, mine: Mine, asked: Request) -> bool:
        mine.at("before reserve")
        with mine.within("in reserve"):
            try:
                lines = [*asked.lines, Line("pool", Unit.RECORD, KEY, 1)]
                held = ledger.reserve(asked.txid, asked.run, asked.round, "train", lines)
            except BudgetRefused:
                return False
        mine.at("after reserve")
        with mine.within("in grant"):
            grant = silo.grant(asked)
        mine.at("after grant")
        noise = SystemNoise().normal(silo.reservation(asked.txid).take([asked.run], KEY), 1.0, 2).tobytes()
        self.note("drawn", asked.txid)
        mine.at("after draw")
        (self.silo(asked.run) / "held" / asked.txid).write_bytes(noise)
        mine.at("after keeping it")
        with mine.within("in hand-over"):
            silo.hand_over(asked.txid, hashlib.sha256(noise).hexdigest())
        mine.at("after hand-over")
        with mine.within("in commit"):
            ledger.commit(held, noise, {asked.run: grant.text}, ["pool"])
        mine.at("after commit")
        publish(self, ledger, asked.txid, mine)
        return True

    def _settle(self, ledger: Ledger, silo: SiloLedger, run: str) -> None:
        """What the last life left open: bytes that the silo handed over are committed, the rest is lost."""
        for charge in ledger.charges(run):
            kept = self.silo(run) / "held" / charge.txid
            if charge.state == "reserved" and silo.ledger.state(charge.txid) == "committed":
                ledger.found(charge.txid, kept.read_bytes(), silo.ledger.consents(charge.txid), ["pool"])
        ledger.forfeit_open(run)
        for charge in ledger.charges(run):
            text = silo.ledger.consents(charge.txid).get(run)
            if charge.state == "forfeited" and text is not None:
                ledger.consent(charge.txid, run, text)

    def audit(self) -> Iterator[str]:
        keys = [SigningKey.load(self.silo(run) / "key.pem").public for run in self.runs]
        yield from (f"verify, with silos: {problem}" for problem in verify(self.place, silos=keys).problems)
        drawn = {txid for (txid,) in self.notes("drawn")}
        with Ledger(self.place, read_only=True) as own:
            for run in self.runs:
                place = self.silo(run) / "ledger.db"
                yield from (f"verify of {run}: {problem}" for problem in verify(place, silos=keys).problems)
                with Ledger(place, read_only=True) as silo:
                    yield from _differ(own, silo, run, drawn)


def _differ(own: Ledger, silo: Ledger, run: str, drawn: set[str]) -> Iterator[str]:
    balance = silo.balance(run)
    if balance.held or balance.epsilon_used > balance.epsilon_limit:
        yield f"the silo of {run} holds something, or is overspent"
    theirs = {charge.txid: charge.state for charge in silo.charges(run)}
    digests = {entry.txid: entry.body["sha256"] for entry in silo.history() if entry.kind == "committed"}
    handed = {entry.txid: entry.body["sha256"] for entry in own.history() if entry.kind == "committed"}
    for charge in own.charges(run):
        if charge.txid in drawn and theirs.get(charge.txid) not in ("committed", "forfeited"):
            yield f"drawn and not paid by its silo: {charge.txid}"
        if charge.state == "committed" and digests.get(charge.txid) != handed[charge.txid]:
            yield f"committed and not handed over by its silo: {charge.txid}"
    yield from (f"granted and unknown to the coordinator: {txid}" for txid in theirs.keys() - _names(own, run))


def _names(ledger: Ledger, run: str) -> set[str]:
    return {charge.txid for charge in ledger.charges(run)}


def _lines(run: str) -> tuple[Line, ...]:
    return (Line(run, Unit.RECORD, KEY, 1),)


if __name__ == "__main__":
    main(kind=Silos)
