"""Charges of a run whose rounds are whatever comes first: one for each update, kept here in the order of their coming.

free ─► reserve RUN/SILO/VERSION ─► letter ─► update + grant ─► commit with its bytes ─► in a round ─► published
                                      └ asked again after a crash of either: a silo sends what it kept

The ledger is the buffer. Which update is in which round follows from the order in which they were committed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from sordino.core.errors import EngineError
from sordino.core.types import RoundPlan, Vector
from sordino.experiment.asynchrony import update_of
from sordino.experiment.remote.attendance import GREETING_S, Terms
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.remote.roll import Greeting
from sordino.federation.engines import Announced
from sordino.federation.engines.first_come import Brought
from sordino.federation.post import REFUSED, Letter
from sordino.federation.sampling.buffered import Buffered
from sordino.ledger import Claim, Ledger
from sordino.ledger.grants import Request
from sordino.privacy.permits import Line, Reservation

LONGEST_S = 60.0
"""The longest rest of a silo that fails again and again, in seconds."""


@dataclass
class _Work:
    """An update that a silo works at.

    Args:
        txid: Its charge.
        version: The round that it starts from.
        lines: What it charges.
        reservation: None where an earlier process made it.
        told: The fence under which the silo was asked.
    """

    txid: str
    version: int
    lines: tuple[Line, ...]
    reservation: Reservation | None
    told: int = 0


@dataclass(frozen=True)
class _Come:
    silo: str
    version: int
    txid: str
    lost: bool


@dataclass
class Memory:
    """What is known of the updates of a run, all of it from the ledger.

    Args:
        work: Updates that silos work at, by silo.
        came: Updates that have come, in that order.
        fence: The coordinator's newest. A silo joins under it before it begins anew; who is at work is left alone.
        begun: How many each silo has begun.
        failed: How often in a row each silo has failed.
        rests: Until when who fails again and again is left alone, by this process's clock.
        held: Vectors that are in no saved model yet, by charge, as far as they were read.
    """

    work: dict[str, _Work] = field(default_factory=dict)
    came: list[_Come] = field(default_factory=list)
    fence: int = 0
    begun: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    rests: dict[str, float] = field(default_factory=dict)
    held: dict[str, Vector] = field(default_factory=dict)


def remembered(ledger: Ledger, terms: Terms, fence: int) -> Memory:
    """What a ledger knows of a run, for the process that has this fence."""
    memory = Memory(fence=fence)
    owner = {account: silo for silo, accounts in terms.accounts.items() for account in accounts}
    charges = {charge.txid: charge for charge in ledger.charges(terms.run) if charge.purpose == "train"}
    for txid, charge in charges.items():
        silo = owner[charge.lines[0].account]
        memory.begun[silo] += 1
        if charge.state == "reserved":
            memory.work[silo] = _Work(txid, cast("int", charge.round), charge.lines, None)
    for entry in ledger.history() if charges else []:
        if entry.kind in ("committed", "forfeited") and entry.txid in charges:
            charge = charges[entry.txid]
            silo, version = owner[charge.lines[0].account], cast("int", charge.round)
            memory.came.append(_Come(silo, version, entry.txid, entry.kind == "forfeited"))
    return memory


@dataclass(frozen=True)
class FirstComeBooks(RemoteBooks):
    """The coordinator's ledger, and what has come of whom.

    Args:
        sampler: Says how many updates make a round, and how many a silo may send.
        memory: What has come.
    """

    sampler: Buffered | None = None
    memory: Memory = field(default_factory=Memory)

    # ── the loop's side: a round charges nothing by itself ──

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002 - the noun
        lines: list[Line],
        purpose: str = "train",
    ) -> Reservation | None:
        if purpose != "train":
            self._under_one_fence()
            return self._charged(txid, round, lines, purpose)
        self.welcome_back()
        self._round.txid = ""
        if round:
            self.published(f"{self.terms.run}/{round - 1}")  # a crash may have come before
        return None

    def _under_one_fence(self) -> None:
        """Let all join anew where some are back or behind: one charge of all has one fence, and so have its grants."""
        back = super()._back()
        if back or any(fence < self.memory.fence for fence in self.fences.values()):
            self._enter(back | self._greet(self.fences, self._patience))
            self._tell_of(back)

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        if self._round.txid:
            super().commit(reservation, artefact)
        else:  # before the round is saved: another process of the run may have gone on meanwhile
            self.own.ledger.require_owned(self.terms.run)

    def earlier(self, txid: str) -> bytes | bool | None:
        return None if self._number(txid) is not None else super().earlier(txid)

    def published(self, txid: str) -> None:
        number = self._number(txid)
        if number is None:
            super().published(txid)
            return
        for come in self.memory.came[number * self._how.size : (number + 1) * self._how.size]:
            self._drop(come)

    def _drop(self, come: _Come) -> None:
        """The bytes of an update are in a saved model, or are needed no more."""
        known = self.memory.held.pop(come.txid, None) is not None
        if known or self.own.ledger.artefact(come.txid) is not None:
            self.own.published(come.txid)

    def _number(self, txid: str) -> int | None:
        name = txid.removeprefix(f"{self.terms.run}/")
        return int(name) if name.isdecimal() else None

    @property
    def _how(self) -> Buffered:
        return cast("Buffered", self.sampler)

    # ── the engine's side ──

    def welcome_back(self) -> None:
        """Let silos that are back join, and them only: who is at work goes on under the fence that it has."""
        back = self._back()
        if back:
            self.memory.fence = self.own.ledger.open_run(self.terms.run, held=True)
            self._let_in(back, self.memory.fence)
            self._tell_of(back)

    def _back(self) -> dict[str, Greeting]:
        now = time.monotonic()
        resting = {silo for silo, until in self.memory.rests.items() if now < until}
        away = [s for s in self.terms.clients if s not in self.fences and s not in self.refused and s not in resting]
        return self._greet(away, GREETING_S) if away else {}

    def due(
        self, plan: RoundPlan, size: int, starts: Callable[[int], Announced], lines: Callable[[int], Sequence[Line]]
    ) -> Mapping[str, Letter]:
        waiting = {come.silo for come in self.memory.came[plan.round * size :]}
        letters = {}
        for client, silo in enumerate(self.terms.clients):
            if silo not in self.fences:
                continue
            free = silo not in self.memory.work and silo not in waiting
            if free and self.memory.begun[silo] < self._how.per_client and self._joins(silo):
                self._begin(silo, plan, tuple(lines(client)))
            work = self.memory.work.get(silo)
            if work is not None and silo in self.fences and work.told != self.fences[silo]:
                work.told, start = self.fences[silo], starts(work.version)
                told = {**self.addressed(silo), "round": work.version, "memory": json.dumps(start.memory)}
                letters[self.roll.addresses[silo]] = Letter("train", told, start.model)
        return letters

    def _joins(self, silo: str) -> bool:
        """Whether a free silo has joined under the newest fence, which is that of all charges from now on."""
        if self.fences[silo] < self.memory.fence:
            greeted = self._greet([silo], self.roll.timeout)
            self.fences.pop(silo)
            self._let_in(greeted, self.memory.fence)
        return silo in self.fences

    def _begin(self, silo: str, plan: RoundPlan, lines: tuple[Line, ...]) -> None:
        """Charge an update here, before its silo may draw for it. A version that it lost is not begun again."""
        txid = update_of(self.terms.run, silo, plan.round)
        if self.own.ledger.state(txid) is None:
            reservation = self.own.reserve(txid, plan.round, list(lines))
            self.memory.work[silo] = _Work(txid, plan.round, lines, reservation)
            self.memory.begun[silo] += 1

    def brought(self, plan: RoundPlan, address: str, asked: Letter, answer: Letter, width: int) -> Brought | None:
        silo = self._at(address)
        work, state = self.memory.work.get(silo), self._round
        if work is None or asked.number("round") != work.version:
            return None  # the second answer to what was asked twice
        if answer.action == REFUSED and asked.number("fence") != work.told:
            return None  # it was asked anew since
        request = Request(
            work.txid, self.terms.run, work.version, self.terms.plan, self.fences.get(silo, 1), work.lines
        )
        # A silo may have drawn under an earlier fence than the one it has now: it keeps what it drew.
        state.continued, state.requests, state.grants, state.lost = True, {silo: request}, {}, set()
        try:
            vector = self.read(replace(plan, round=work.version), self.terms.clients.index(silo), answer, width).vector
        except EngineError as problem:
            if silo not in state.lost:
                raise
            self.tell(f"without an update of {silo}: {problem}")
            vector = None
        return Brought(silo, vector, state.grants[silo].text)

    def keep(self, brought: Brought) -> None:
        silo, vector, ledger = brought.silo, brought.vector, self.own.ledger
        work = self.memory.work[silo]
        consents = {line.account: brought.grant for line in work.lines}
        if vector is None:
            ledger.forfeit_open(self.terms.run, [work.txid])
            for account, text in consents.items():
                ledger.consent(work.txid, account, text)
        elif work.reservation is None:
            ledger.found(work.txid, vector.tobytes(), consents)
        else:
            ledger.commit(work.reservation, vector.tobytes(), consents)
        del self.memory.work[silo], self.memory.failed[silo]
        self.memory.came.append(_Come(silo, work.version, work.txid, vector is None))
        if vector is not None:
            self.memory.held[work.txid] = vector

    def silent(self, address: str, why: str) -> None:
        silo = self._at(address)
        self.tell(f"without {silo} for now: {why}")
        if silo in self.memory.work:  # it has to join again: it may have restarted, or be behind
            self.fences.pop(silo, None)
            self.memory.failed[silo] += 1
            # Once is a restart. Who fails again and again is asked less and less often.
            pause = 2.0 ** self.memory.failed[silo] if self.memory.failed[silo] > 1 else 0.0
            self.memory.rests[silo] = time.monotonic() + min(pause, LONGEST_S)

    def come(self, first: int, last: int) -> Sequence[tuple[int, Vector | None]]:
        return [(come.version, None if come.lost else self._vector(come.txid)) for come in self.memory.came[first:last]]

    def _vector(self, txid: str) -> Vector:
        if txid not in self.memory.held:
            kept = self.own.ledger.artefact(txid)
            if kept is None:
                raise EngineError.about("run", "was published, and its round is not in the checkpoint", update=txid)
            self.memory.held[txid] = np.frombuffer(kept, np.float32)
        return self.memory.held[txid]

    def at_work(self) -> frozenset[int]:
        return frozenset(work.version for work in self.memory.work.values())

    def _at(self, address: str) -> str:
        return next(silo for silo, at in self.roll.addresses.items() if at == address)

    def agree(self, claims: tuple[Claim, ...], model: Vector) -> tuple[str, ...]:
        # What silos are still at work on is spent, and nobody waits for it. What came after the last round is in no
        # model: its bytes go, too. Those are the last that came, and no two of them are of one silo.
        self.own.ledger.forfeit_open(self.terms.run)
        self.memory.work.clear()
        for come in self.memory.came[-len(self.terms.clients) :]:
            self._drop(come)
        return super().agree(claims, model)
