"""A federation of machines, as `run` needs it: books that silos consent to, and the engine that asks them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from sordino.core import tables
from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import NoiseAt
from sordino.experiment import asynchrony, encrypting
from sordino.experiment.approval import terms_of
from sordino.experiment.books import LedgerBooks, open_books
from sordino.experiment.config import Experiment
from sordino.experiment.plan import Plan
from sordino.experiment.remote.attendance import Terms
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.remote.first_come import FirstComeBooks, remembered
from sordino.experiment.remote.roll import Greeting, Roll, Telling
from sordino.experiment.remote.sealed import SealedBooks
from sordino.experiment.site.member import ASKING
from sordino.federation.engines.encrypted import EncryptedFlower
from sordino.federation.engines.first_come import FirstCome
from sordino.federation.engines.flower import Flower
from sordino.federation.post import Letter, Post
from sordino.ledger import Ledger
from sordino.ledger.approval import Approval
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.stores import Place, exists


@dataclass(frozen=True)
class Federation:
    """The silos on other machines, and how this coordinator deals with them.

    Args:
        experiment: The experiment as written: silos plan it again for themselves.
        post: Carries letters.
        key: The coordinator's private key: it signs checkpoints of its ledger, which the silos keep.
        silos: Every silo's public key, by its name.
        minimum: Least number of silos whose updates make a round; with fewer the run stops, and goes on later.
        wait: How long to wait at the start until all silos are there, in seconds.
        timeout: How long a round waits for a silo, in seconds.
        answer: How long to wait for what costs no training, in seconds.
        tell: Told in words what goes wrong at the silos.
    """

    experiment: Experiment
    post: Post
    key: SigningKey
    silos: Mapping[str, VerifyKey]
    minimum: int = 1
    wait: float = 120.0
    timeout: float = 3600.0
    answer: float = 120.0
    tell: Telling = lambda _: None

    @contextmanager
    def opened(
        self, plan: Plan, approval: Approval | None, place: Place
    ) -> Iterator[tuple[RemoteBooks, Flower, Ledger]]:
        """A run's books with the plan admitted here and by every silo, the engine, and the coordinator's ledger.

        Raises:
            VerificationError: The coordinator's ledger was put back or copied: a silo has seen more.
            PrivacyError: A silo refuses the plan.
            BudgetRefused: A silo, or the coordinator, cannot pay for it.
            EngineError: A silo does not answer.
        """
        approval = approval or Approval(terms_of(plan))
        self._check(plan, approval)
        terms = _terms(plan, self.experiment, approval, self.key.name)
        roll = Roll(self.post, self.silos, self.answer, self.timeout, self.wait, tell=self.tell)
        # It starts with all of them. One that is lost later does not keep the others from going on.
        least = self.minimum if _begun(place, plan.run) else len(plan.clients)
        found = roll.gather(plan.clients, plan.run, self.key.name, wait=self.wait, least=least)
        with Ledger(place, key=self.key) as ledger:
            _put_back(ledger, found, terms)
            self._ask_whether(roll, terms, found)
            # What an earlier process charged is asked for again where silos draw: they keep what they have drawn.
            own = open_books(
                ledger, plan, plan.run, approval, forfeit=plan.experiment.privacy.noise_at is not NoiseAt.SILO
            )
            books, engine = self._asking(plan, own, terms, roll)
            here = [silo for silo in plan.clients if silo in found]
            for silo in sorted(set(plan.clients) - found.keys()):
                self.tell(f"goes on without {silo}, which has not answered within {self.wait:g} s")
            books.join({silo: ledger.growth(found[silo].seen) for silo in here}, own.fence)
            books.catch_up(here)
            yield books, engine, ledger

    def _asking(self, plan: Plan, own: LedgerBooks, terms: Terms, roll: Roll) -> tuple[RemoteBooks, Flower]:
        """The books and the engine: those that read updates, or those that add them unread."""
        if asynchrony.first_come(plan.experiment):
            sampler, memory = asynchrony.schedule(plan.experiment), remembered(own.ledger, terms, own.fence)
            each = FirstComeBooks(own, terms, roll, self.minimum, self.tell, sampler=sampler, memory=memory)
            return each, FirstCome(self.post, each, self.timeout, mail=self.post.mail())
        if plan.experiment.homomorphic is None:
            books = RemoteBooks(own, terms, roll, self.minimum, self.tell)
            return books, Flower(self.post, books, self.timeout)
        sealed = SealedBooks(own, terms, roll, self.minimum, self.tell)
        agreed = partial(encrypting.terms, plan)
        return sealed, EncryptedFlower(self.post, sealed, self.timeout, terms=agreed)

    def _ask_whether(self, roll: Roll, terms: Terms, silos: Iterable[str]) -> None:
        """Return only if all would take part, before anybody holds budget for the plan; they load it meanwhile."""
        signature = self.key.sign(ASKING + terms.approval.encode())
        told = {"approval": terms.approval, "experiment": terms.experiment, "origin": terms.origin}
        roll.ask(dict.fromkeys(silos, Letter("check", {**told, "signature": signature})), patient=True)

    def _check(self, plan: Plan, approval: Approval) -> None:
        if approval.terms != replace(terms_of(plan), code=approval.terms.code):
            raise PrivacyError.about("approval", "is not of this plan, word for word", "let officers sign it again")
        unknown = sorted(set(plan.clients) - self.silos.keys())
        if unknown:
            raise ConfigError.about("run", "are no sites of this federation", "add their public keys", silos=unknown)
        if plan.experiment.simulation.secure_sum:  # else the coordinator trains alone, and no site is asked
            rule = "plays all silos in one process"
            raise ConfigError.about("simulation", rule, "use the table [secure_sum] over machines", secure_sum=True)
        sampler = asynchrony.schedule(plan.experiment)
        most, what = (len(plan.clients), "silos") if sampler is None else (sampler.size, "updates of a round")
        if not self.minimum <= most:
            raise ConfigError.about("run", f"is more than the {most} {what}", minimum=self.minimum)


def _terms(plan: Plan, experiment: Experiment, approval: Approval, origin: str) -> Terms:
    accounts: dict[str, list[str]] = {name: [] for name in plan.clients}
    for account in plan.accounts:
        if account.client is not None and account.charges:
            accounts[plan.clients[account.client]].append(account.name)
    return Terms(
        run=plan.run,
        plan=plan.digest,
        approval=approval.text,
        experiment=json.dumps(tables.plain(experiment)),
        origin=origin,
        clients=plan.clients,
        accounts={name: tuple(names) for name, names in accounts.items()},
        noise_at=plan.experiment.privacy.noise_at,
        shared=plan.shared,
        overlapping=asynchrony.schedule(plan.experiment) is not None,
    )


def _begun(place: Place, run: str) -> bool:
    """Whether rounds of the run were charged before."""
    if not exists(place):
        return False
    with Ledger(place, read_only=True) as ledger:
        return bool(ledger.charges(run))


def _put_back(ledger: Ledger, found: Mapping[str, Greeting], terms: Terms) -> None:
    """Refuse a coordinator's ledger of which a silo has seen more, and a silo's of which the coordinator has.

    Raises:
        VerificationError: A silo keeps a later checkpoint, or has handed over a round that the ledger does not know; or
            it has consented to a charge here that its own ledger does not know.
    """
    notes: Sequence[str] = [greeting.note for greeting in found.values() if greeting.note]
    ledger.compare_with(notes)
    for silo, greeting in found.items():
        for txid in greeting.handed:
            if ledger.state(txid) is None:
                raise VerificationError.about(
                    "ledger",
                    f"does not know what silo {silo!r} has handed over: it was put back, or is a copy",
                    "nothing was released; find the newer ledger",
                    txid=txid,
                )
    for charge in ledger.charges(terms.run):
        consents = ledger.consents(charge.txid)
        for silo, greeting in found.items():
            if consents.keys() & set(terms.accounts[silo]) and charge.txid not in greeting.charged:
                raise VerificationError.about(
                    f"site {silo!r}",
                    "has consented to a charge that its ledger does not know: its ledger was put back",
                    "find the newer one; it would draw again what was drawn",
                    txid=charge.txid,
                )
