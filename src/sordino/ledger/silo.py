"""A silo's own side: its ledger decides for its own people, whatever a coordinator's database says.

check(plan) ─► join(plan, fence, checkpoint) ─► grant(request) ─► [noise is drawn] ─► hand_over(digest)
   rules, budget    admitted here, witnessed       reserved here         └── crash: forfeited at the next join

A coordinator whose ledger was put back, or copied, is refused: its checkpoint is older or another one, its fence was
here before, or its transaction was.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sordino.core.errors import BudgetRefused, PrivacyError
from sordino.ledger import officers, pricing
from sordino.ledger.approval import Approval, PlanTerms
from sordino.ledger.checkpoints import Growth
from sordino.ledger.grants import Grant, Request
from sordino.ledger.keys import SigningKey
from sordino.ledger.ledger import Ledger, transaction
from sordino.ledger.rules import Rules, read_rules
from sordino.ledger.stores import located
from sordino.ledger.witnesses import Witness
from sordino.privacy.permits import Line, Reservation

FILE = "silo.toml"
"""A silo's rules, in its folder."""

OPENED = ("name", "coordinators", "key", "ledger", "witness")
"""What of the rules was opened when the process began: another value needs another process."""


@dataclass(frozen=True)
class _Granted:
    grant: Grant
    reservation: Reservation


class SiloLedger:
    """A silo's ledger with its key and its rules. One object belongs to one process of the silo.

    Args:
        ledger: The silo's own.
        key: Signs its grants and countersignatures.
        rules: Which plans it takes part in.
        witness: What it has seen of coordinators' ledgers.
        clock: Seconds since 1970.
        written: The rules as they stand in the silo's file now; left out, they never change.
    """

    def __init__(
        self,
        ledger: Ledger,
        key: SigningKey,
        rules: Rules,
        witness: Witness,
        clock: Callable[[], float] = time.time,
        written: Callable[[], Rules] | None = None,
    ) -> None:
        self.ledger, self.key, self.rules, self.witness, self._clock = ledger, key, rules, witness, clock
        self._written = written
        self._joined: dict[str, tuple[PlanTerms, int]] = {}
        self._before: set[str] = set()
        self._granted: dict[str, _Granted] = {}

    @property
    def name(self) -> str:
        """The silo's."""
        return self.rules.name

    def check(self, approval: Approval) -> None:
        """Return only if the silo would take part: by its rules, and by what its accounts have left. Writes nothing.

        The rules are those that stand in its file now: who edits it need not know that a process read it long ago.

        Raises:
            PrivacyError: Its rules forbid the plan, it is not approved, or an account protects something else.
            BudgetRefused: Its accounts cannot pay.
            ConfigError: Its rules cannot be read.
        """
        terms = approval.terms
        self._look_again()
        self.rules.check(approval)
        installed = self.ledger.policy()
        admitted = self.ledger.admitted(terms.run) == terms.digest
        if installed is not None and installed.policy.approves and not admitted:
            order = approval.order_for(installed)
            officers.check(installed, order, "approve", terms.run, {"plan": terms.digest})
            # The order names a digest, which nobody can compute from the terms: they must be signed themselves.
            installed.policy.signed_by("approve", terms.message, approval.signatures)
        known = {account.name: account for account in self.ledger.accounts()}
        for name, asked in terms.events(self.rules.accounts(terms)).items():
            where = f"silo {self.name!r}"
            account = known.get(name)
            if account is None:
                raise PrivacyError.about(where, "is not open in its ledger", "let the silo open it", account=name)
            if (account.unit, account.adjacency, account.test) != (terms.unit, terms.adjacency, terms.test):
                raise PrivacyError.about(
                    where,
                    f"protects a {account.unit} under {account.adjacency}{', for tests' if account.test else ''}; "
                    f"the plan a {terms.unit} under {terms.adjacency}{', as a test' if terms.test else ''}",
                    account=name,
                )
            price = pricing.price(pricing.counts(asked), terms.delta, terms.adjacency).epsilon
            balance = self.ledger.balance(name)
            if not admitted and (price > balance.epsilon_left or terms.delta > balance.delta_left):
                raise BudgetRefused.about(
                    where,
                    f"the plan needs epsilon={price:.6g} at delta={terms.delta:g}; "
                    f"{balance.epsilon_left:.6g} at {balance.delta_left:.3g} is left",
                    "ask for less",
                    account=name,
                )

    def _look_again(self) -> None:
        if self._written is None:
            return
        now = self._written()
        for name in OPENED:
            if getattr(now, name) != getattr(self.rules, name):
                rule = f"its rules name another `{name}` than when its process began"
                raise PrivacyError.about(f"silo {self.name!r}", rule, "let the silo start its process again")
        self.rules = now

    def seen(self, origin: str) -> tuple[int, str | None]:
        """How many events of a coordinator's ledger it has seen, and the last note of it."""
        return self.witness.size(origin), self.witness.seen(origin)

    def join(self, approval: Approval, fence: int, growth: Growth) -> str:
        """Take part in a run: keep the coordinator's checkpoint, admit the plan, adopt the fence.

        What an earlier process of the run left open is forfeited.

        Args:
            approval: The signed plan.
            fence: The coordinator's for this run.
            growth: The coordinator's newest checkpoint, from what the silo has seen on (`Ledger.growth`).

        Returns:
            The silo's countersignature of the checkpoint.

        Raises:
            VerificationError: The coordinator's ledger was put back, rewritten or forked.
            PrivacyError: The plan is not allowed, or another coordinator was here with this fence or a higher one.
            BudgetRefused: The silo's accounts cannot pay.
        """
        self.check(approval)
        signature = self.witness.see(growth.note, growth.proof)
        terms = approval.terms
        self.ledger.admit(
            terms.run,
            terms.digest,
            terms.events(self.rules.accounts(terms)),
            terms.delta,
            noise_at=terms.noise_at,
            approval=approval.order_for(self.ledger.policy()),
            rounds=terms.rounds,
        )
        self.ledger.open_run(terms.run, given=fence)
        self.ledger.forfeit_open(terms.run)
        self._before.update(charge.txid for charge in self.ledger.charges(terms.run))
        self._joined[terms.run] = (terms, fence)
        return signature

    def knows(self, txid: str) -> bool:
        """Whether it was here before its run was joined: it is not granted again."""
        return txid in self._before

    def grant(self, request: Request) -> Grant:
        """Reserve in the silo's own ledger and say so. The same request gets the same grant.

        Raises:
            BudgetRefused: The silo's accounts do not cover it; nothing was written.
            PrivacyError: It is not of the joined plan or coordinator, its transaction was here before, or it expired.
        """
        self._check(request)
        earlier = self._granted.get(request.txid)
        if earlier is not None:
            if not earlier.grant.answers(request):
                raise self._refused("was granted for something else", request)
            if self._clock() > earlier.grant.expires:
                raise self._refused("was granted and has expired: it is not granted again", request)
            return earlier.grant
        expires = int(self._clock()) + self.rules.valid_s
        grant = Grant.of(request, self.key.public, expires=expires).signed(self.key)
        reservation = self.ledger.reserve(
            request.txid,
            request.run,
            request.round,
            request.purpose,
            request.lines,
            consents={line.account: grant.text for line in request.lines},
        )
        self._granted[request.txid] = _Granted(grant, reservation)
        return grant

    def grant_whole(self, run: str) -> Grant:
        """Charge all rounds of a joined plan at once, and say so: where one account stands for all clients.

        Whether the silo is in a round's cohort is secret, and its people pay for every round, as the price supposes.
        So nobody asks it round by round. A restarted coordinator gets a grant for its own fence, of the same charge.

        Raises:
            BudgetRefused: The silo's account does not cover it; nothing was written.
            PrivacyError: The run was not joined, or its silos pay round by round.
        """
        terms, fence = self._joined.get(run, (None, 0))
        if terms is None or terms.shared is None:
            rule = "was not joined" if terms is None else "is charged to its silos round by round"
            raise PrivacyError.about(f"silo {self.name!r}", rule, "nothing was granted", run=run)
        lines = tuple(Line(self.name, terms.unit, key, count) for key, count in terms.accounts[terms.shared].items())
        request = Request(
            transaction(run, None, "train", terms.digest, self.name), run, None, terms.digest, fence, lines
        )
        if self.ledger.state(request.txid) is None:
            grant = self.grant(request)
            # Its people's part in every round is paid from now on; the noise is the coordinator's to draw.
            self.hand_over(request.txid, hashlib.sha256(grant.message).hexdigest())
            return grant
        expires = int(self._clock()) + self.rules.valid_s
        return Grant.of(request, self.key.public, expires=expires).signed(self.key)

    def _check(self, request: Request) -> None:
        terms, fence = self._joined.get(request.run, (None, 0))
        if terms is None:
            raise self._refused("is of a run that was not joined", request)
        if request.plan != terms.digest:
            raise self._refused("is of another plan than the approved one", request)
        if request.fence != fence:
            raise self._refused(f"has fence {request.fence}; the coordinator here has {fence}", request)
        mine = self.rules.accounts(terms)
        if any(line.account not in mine for line in request.lines):
            raise self._refused("charges accounts that are not the silo's", request)

    def _refused(self, rule: str, request: Request) -> PrivacyError:
        return PrivacyError.about(f"silo {self.name!r}", rule, "nothing was granted", txid=request.txid)

    def reservation(self, txid: str) -> Reservation:
        """The silo's reservation behind a grant, under which it draws its noise.

        Raises:
            PrivacyError: There is none, or it has expired.
        """
        granted = self._granted.get(txid)
        if granted is None:
            raise PrivacyError.about(f"silo {self.name!r}", "has not been granted", txid=txid)
        if self._clock() > granted.grant.expires:
            raise PrivacyError.about(f"silo {self.name!r}", "has expired: nothing is drawn under it", txid=txid)
        return granted.reservation

    def hand_over(self, txid: str, digest: str) -> None:
        """Settle a charge; only then may leave what was drawn under it.

        Args:
            txid: The charge.
            digest: SHA-256 of what leaves, in hexadecimal. The coordinator keeps the bytes.
        """
        if txid not in self._granted:
            raise PrivacyError.about(f"silo {self.name!r}", "has not been granted", txid=txid)
        self.ledger.hand_over(self._granted[txid].reservation, digest)
        del self._granted[txid]

    def abort(self, txid: str) -> None:
        """Give back what a grant holds: only if no noise was permitted under it (see `Ledger.abort`)."""
        self.ledger.abort(self.reservation(txid))
        del self._granted[txid]

    def forfeit(self, request: Request) -> None:
        """Count a charge as spent, granted or not, and never draw it: its coordinator lost track of it."""
        if self.ledger.state(request.txid) is None:
            self.grant(request)
        self.ledger.forfeit_open(request.run)
        self._granted.pop(request.txid, None)


@contextmanager
def open_silo(folder: Path, *, clock: Callable[[], float] = time.time) -> Iterator[SiloLedger]:
    """A silo from its folder, as `sordino silo enroll` makes it.

    Raises:
        ConfigError: The folder is not a silo's.
    """
    rules = read_rules(folder / FILE)
    key = SigningKey.load(folder / rules.key)
    with Ledger(located(rules.ledger, folder)) as ledger:
        witness = Witness(folder / rules.witness, key, rules.coordinator_keys)
        yield SiloLedger(ledger, key, rules, witness, clock, lambda: read_rules(folder / FILE))
