"""A silo's answers to its coordinator: its own rules, ledger, data and noise decide, whatever the letter says.

hello ─► who I am, what I have seen          check ─► by my rules I would, model and data loaded once
join  ─► plan admitted in my ledger
train ─► reserve here, train, keep, hand over, send      forfeit ─► count as spent, never draw      leave ─► the end
begin ─► as `train`, sending nothing yet: for a later round, where rounds overlap
judge ─► as `train`, for figures on held-out records

Only this reads the silo's records. What leaves is a released update with a signed grant, or the reason for none.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core.errors import EngineError, PrivacyError, SordinoError
from sordino.core.types import Vector
from sordino.experiment import encrypting
from sordino.experiment.settings import Setup, setting_of
from sordino.experiment.site.handed import Handed
from sordino.experiment.site.joined import Joined
from sordino.experiment.site.judging import judged
from sordino.experiment.site.once import Once
from sordino.experiment.site.outbox import Kept, Outbox
from sordino.experiment.site.preparing import Preparing
from sordino.experiment.site.sealing import Sealing
from sordino.experiment.site.sums import Sums
from sordino.experiment.site.training import model_of, update
from sordino.federation.post import BY, Field, Letter, refusal
from sordino.ledger import Claim
from sordino.ledger.approval import Approval
from sordino.ledger.checkpoints import Growth
from sordino.ledger.keys import VerifyKey
from sordino.ledger.silo import SiloLedger

GREETING, ASKING = b"sordino hello\n", b"sordino check\n"


class Member:
    """A silo that answers letters, one at a time.

    Args:
        silo: Its ledger, key and rules.
        folder: Its own; released updates wait there, and a run's model and local figures end there.
        peers: Public keys of the other silos, by name: whom it masks with. Needed for secure sums only.
        data: Options of the data set that hold here, whatever the experiment says: its path above all.
        say: Told each step, for the silo's own log: public facts only.
    """

    def __init__(
        self,
        silo: SiloLedger,
        folder: Path,
        *,
        peers: Mapping[str, VerifyKey] | None = None,
        data: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.silo, self.folder, self._say = silo, folder, say
        self._outbox, self._sealing = Outbox(folder / "outbox"), Sealing(folder)
        self._handed = Handed(folder / "handed.log")
        self._once = Once(silo, self._outbox, self._handed)
        self._preparing = Preparing(silo.name, folder, dict(data or {}), self._sealing, self._say)
        self._sums = Sums(silo, {**(peers or {}), silo.name: silo.key.public}, self._handed, say)
        self._begun: dict[str, Vector] = {}
        self._joined: dict[str, Joined] = {}

    def answer(self, letter: Letter) -> Letter:
        """The answer to a letter: what it asks for, or the reason why not."""
        actions = {
            "hello": self._hello,
            "check": self._check,
            "join": self._join,
            "begin": self._begin,
            "train": self._train,
            "sum": self._sum,
            "open": self._open,
            "judge": self._judge,
            "forfeit": self._forfeit,
            "leave": self._leave,
        }
        if letter.action not in actions:
            return refusal(EngineError.about("site", f"is none of {', '.join(actions)}", action=letter.action))
        try:
            return actions[letter.action](letter)
        except Exception as problem:  # noqa: BLE001 - whatever happens, the coordinator gets an answer without records
            self._say(f"{letter.action}: {_told(problem)}")
            return refusal(problem)

    def _hello(self, letter: Letter) -> Letter:
        run, (size, note) = letter.text("run"), self.silo.seen(letter.text("origin"))
        charges = [charge for charge in self.silo.ledger.charges(run) if charge.round is not None]
        told: dict[str, Field] = {
            "silo": self.silo.name,
            "seen": size,
            "note": note or "",
            "handed": json.dumps([charge.txid for charge in charges if charge.state == "committed"]),
            "charged": json.dumps([charge.txid for charge in charges]),
        }
        return Letter("hello", {**told, "signature": self.silo.key.sign(greeting(letter.content("nonce"), told))})

    def _check(self, letter: Letter) -> Letter:
        """Whether the silo would take part, for a coordinator that its rules name. Writes nothing."""
        text, origin = letter.text("approval"), letter.text("origin")
        self.silo.rules.known(origin, ASKING + text.encode(), letter.text("signature"))
        self._checked(Approval.parse(text), letter)
        return Letter("check")

    def _checked(self, approval: Approval, letter: Letter) -> Setup:
        self.silo.check(approval)  # the rules come first: nothing else of the letter is looked at before
        return self._preparing.setup(approval, letter)

    def _join(self, letter: Letter) -> Letter:
        approval = Approval.parse(letter.text("approval"))
        setup = self._checked(approval, letter)
        growth = _growth(letter)
        fence, run = letter.number("fence"), approval.terms.run
        self._handed.require(run, self.silo)
        signature = self.silo.join(approval, fence, growth)
        told: dict[str, Field] = {"signature": signature}
        if setup.plan.shared:  # its people pay for every round, in the cohort or not, and before any is trained
            told["grant"] = self.silo.grant_whole(run).text
        if setup.experiment.homomorphic is not None:
            told["key"] = self._sealing.key.name
        client = setup.plan.clients.index(self.silo.name)
        self._sums.forget()
        by, clip = letter.fields.get(BY), self.silo.rules.clip
        self._joined = {run: Joined(setup, setting_of(setup), client, fence, None if by is None else str(by), clip)}
        self._say(f"joined {run}: epsilon {approval.terms.epsilon:.4g} at delta {approval.terms.delta:g}")
        return Letter("join", told)

    def _of(self, letter: Letter) -> Joined:
        digest, fence = letter.text("plan"), letter.number("fence")
        for joined in self._joined.values():
            if (joined.setup.plan.digest, joined.fence, joined.by) == (digest, fence, letter.fields.get(BY)):
                return joined
        raise PrivacyError.about(
            f"silo {self.silo.name!r}", "is not joined by this coordinator", "join", plan=digest[:16], fence=fence
        )

    def _train(self, letter: Letter) -> Letter:
        joined = self._of(letter)
        number = joined.planned(letter.number("round"))
        if joined.setup.plan.shared:  # paid for when it joined; the noise is the coordinator's
            # Its checkpoint is kept before anything is sent: a ledger that is put back to before it does not start.
            growth = _growth(letter)
            signature = self.silo.witness.see(growth.note, growth.proof)
            sent = self._sent(joined, number, Kept("", update(joined, number, letter, None)))
            return replace(sent, fields={**sent.fields, "signature": signature})
        kept = self._released(joined, number, letter)
        return self._lost(joined.txid(number)) if kept is None else self._sent(joined, number, kept)

    def _begin(self, letter: Letter) -> Letter:
        """Work at the update of a later round. It leaves when it is asked for by `train`."""
        joined = self._of(letter)
        number = joined.planned(letter.number("round"))
        if joined.noised:
            self._released(joined, number, letter)
        elif joined.txid(number) not in self._begun:  # raw: charged when it leaves, and on no disk
            self._begun = {joined.txid(number): self._update(joined, number, letter)}
        return Letter("begin", joined.answering(number))

    def _released(self, joined: Joined, number: int, letter: Letter) -> Kept | None:
        """A round's update, charged and handed over; None if it is lost."""

        def draw() -> Vector:
            return self._update(joined, number, letter) if begun is None else begun

        txid = joined.txid(number)
        begun = self._begun.pop(txid, None)
        if begun is None and letter.vector is None and self.silo.ledger.state(txid) is None:
            raise EngineError.about(
                "site", "was not begun here: its own log says why", "nothing was charged", txid=txid
            )
        # Without noise of its own an update is nothing to leave on a disk, and nobody asks for it again: the round is
        # lost with its coordinator.
        fresh = self.silo.ledger.state(txid) is None
        kept = self._once.released(joined.request(number), draw, keep=joined.noised)
        if kept is not None and fresh:
            self._say(f"round {number + 1} of {joined.setup.experiment.count}: charged and handed over")
        return kept

    def _judge(self, letter: Letter) -> Letter:
        """The plan's figures on held-out records. Their noise is the silo's, wherever that of training comes from."""
        joined = self._of(letter)
        number = joined.charged(joined.setup.experiment.count)
        kept = self._once.released(joined.request(number), partial(self._figures, joined, number, letter), keep=True)
        if kept is None:
            return self._lost(joined.txid(number))
        self._say("figures on held-out records: charged and handed over")
        return Letter("judge", {**joined.answering(number), "grant": kept.grant}, kept.vector)

    def _figures(self, joined: Joined, number: int, letter: Letter) -> Vector:
        return judged(joined, model_of(joined, letter), self.silo.reservation(joined.txid(number)))

    def _lost(self, txid: str) -> Letter:
        """A release that is charged here and never drawn again, with the consent to its charge."""
        return Letter("lost", {"grant": next(iter(self.silo.ledger.consents(txid).values()))})

    def _sent(self, joined: Joined, number: int, kept: Kept) -> Letter:
        plan, told = joined.setup.plan, {**joined.answering(number), "grant": kept.grant}
        if plan.experiment.homomorphic is None:
            return Letter("train", told, kept.vector)
        terms = encrypting.terms(plan, joined.round(number), len(kept.vector))
        return Letter("train", told, np.frombuffer(self._sealing.sealed(terms, kept.vector), np.uint8))

    def _open(self, letter: Letter) -> Letter:
        """The sum of a round's sealed updates: it was released, update by update, before."""
        joined, number = self._of(letter), letter.number("round")
        if letter.vector is None:
            raise EngineError.about("site", "brings no sum", round=number)
        return Letter(
            "open", joined.answering(number), self._sealing.opened(joined.txid(number), letter.vector.tobytes())
        )

    def _sum(self, letter: Letter) -> Letter:
        return self._sums.answer(self._of(letter), letter)

    def _update(self, joined: Joined, number: int, letter: Letter) -> Vector:
        return update(joined, number, letter, self.silo.reservation(joined.txid(number)) if joined.noised else None)

    def _forfeit(self, letter: Letter) -> Letter:
        """Rounds that the coordinator charged and that never came from here: spent here too, so that both agree."""
        joined, grants = self._of(letter), {}
        for number in map(joined.charged, letter.plain("rounds", tuple[int, ...])):
            if self.silo.ledger.state(joined.txid(number)) in (None, "reserved"):
                self.silo.forfeit(joined.request(number))
            grants[number] = self.silo.ledger.consents(joined.txid(number))
        return Letter("forfeit", {"grants": json.dumps(grants)})

    def _leave(self, letter: Letter) -> Letter:
        joined = self._of(letter)
        growth = _growth(letter)
        signature = self.silo.witness.see(growth.note, growth.proof)
        claims = [said(claim) for claim in self.silo.ledger.claims(joined.run)]
        if letter.vector is not None:
            self._end(joined, np.asarray(letter.vector, dtype=np.float32))
        self._outbox.clear()
        self._begun.clear()
        del self._joined[joined.run]
        self._say(f"left {joined.run}")
        return Letter("leave", {"signature": signature, "claims": json.dumps(claims)})

    def _end(self, joined: Joined, model: Vector) -> None:
        """The silo's copy of the model, and how it does on held-out records that only the silo sees."""
        from sordino.experiment.site.ending import ended

        ended(joined.setup, self.silo.name, model, self.folder / "runs" / joined.run)


def _growth(letter: Letter) -> Growth:
    """The coordinator's checkpoint in a letter, with the proof that its history has only grown."""
    return Growth(letter.text("checkpoint"), letter.number("since"), tuple(json.loads(letter.text("proof"))))


def _told(problem: Exception) -> str:
    """An error for the silo's log. Ours is about public things; of any other, what it is and where, not its text."""
    if isinstance(problem, SordinoError):
        return str(problem)
    at = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__} in {Path(at.filename).name}, line {at.lineno}"


def greeting(nonce: bytes, told: Mapping[str, Field]) -> bytes:
    """What a silo signs of what it says of itself, for this occasion."""
    return GREETING + nonce + json.dumps(dict(sorted(told.items()))).encode()


def said(claim: Claim) -> dict[str, Any]:
    """What a claim says, in plain values: two ledgers that agree say the same."""
    names = ("account", "plan", "epsilon", "delta", "unit", "adjacency", "events", "test")
    plain: dict[str, Any] = json.loads(json.dumps({name: getattr(claim, name) for name in names}))
    return plain
