"""The run's view of a ledger: one charge per round, for all accounts that the round touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.core.places import point
from sordino.core.registry import single
from sordino.experiment.accounts import CLIENTS
from sordino.experiment.config import Budget
from sordino.experiment.plan import Plan
from sordino.ledger import Account, Ledger, amounts
from sordino.ledger.approval import Approval
from sordino.ledger.divided import Divided, Payers, Read
from sordino.ledger.stores import Place
from sordino.privacy.permits import Line, Reservation


@dataclass(frozen=True)
class LedgerBooks:
    """Charges of one run in one ledger."""

    ledger: Ledger
    run: str
    fence: int
    payers: Payers = field(default_factory=Payers)

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002 - the noun
        lines: list[Line],
        purpose: str = "train",
    ) -> Reservation | None:
        paid = self.payers.lines(lines)
        own = self.ledger.reserve(txid, run=self.run, round=round, purpose=purpose, lines=paid)
        return Divided(own, self.payers) if self.payers.parts else own

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        if reservation is None:
            raise EngineError.about("ledger", "has nothing to commit")
        self.ledger.commit(reservation.own if isinstance(reservation, Divided) else reservation, artefact)

    def earlier(self, txid: str) -> bytes | bool | None:
        state = self.ledger.state(txid)
        if state != "committed":
            return None if state is None else True
        artefact = self.ledger.artefact(txid)
        if artefact is None:
            raise PrivacyError.about(
                "run",
                "was published before, and is never drawn again",
                "restore the checkpoint; if it is lost, what was spent stays spent, and another seed is another run",
                release=txid,
            )
        return artefact

    def published(self, txid: str) -> None:
        self.ledger.published(txid)


@contextmanager
def kept(
    plan: Plan, run: str, place: Place, approval: Approval | None = None
) -> Iterator[tuple[LedgerBooks | NoBooks, Ledger | None]]:
    """A run's books with the plan admitted, and their ledger; neither where nothing is protected.

    Raises:
        BudgetRefused: An account cannot pay for the whole plan; nothing has run.
    """
    if not plan.private:
        yield NoBooks(), None
        return
    with Ledger(place) as ledger:
        books = open_books(ledger, plan, run, approval, blocks=True)
        if any(ledger.consents(charge.txid) for charge in ledger.charges(run)[:1]):  # the first tells for all
            raise PrivacyError.about("run", "had the silos' consent so far", "keep [enforcement]", run=run)
        yield books, ledger


@dataclass(frozen=True)
class NoBooks:
    """Stands in where nothing is protected: charges nothing, claims nothing."""

    def reserve(
        self,
        txid: str,  # noqa: ARG002 - the protocol's
        round: int,  # noqa: A002, ARG002 - the noun
        lines: list[Line],  # noqa: ARG002 - the protocol's
        purpose: str = "train",  # noqa: ARG002 - the protocol's
    ) -> Reservation | None:
        return None

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        pass

    def earlier(self, txid: str) -> bytes | bool | None:  # noqa: ARG002 - the protocol's
        return None

    def published(self, txid: str) -> None:
        pass


def open_books(
    ledger: Ledger,
    plan: Plan,
    run: str,
    approval: Approval | None = None,
    *,
    forfeit: bool = True,
    blocks: bool = False,
) -> LedgerBooks:
    """Open the plan's accounts where they are missing, admit the plan, and take the run over.

    A silo whose account has blocks pays through those that hold what the plan reads.

    Args:
        ledger: Whose accounts.
        plan: What runs.
        run: Its name in the ledger.
        approval: The plan as officers signed it.
        forfeit: Count as spent what a crash left open. Left out only where whoever drew its noise may still hold the
            bytes, which the caller settles (`Ledger.found`).
        blocks: Let silos pay through their blocks. Left out where silos grant what is charged: they have one account.

    Raises:
        BudgetRefused: An account cannot pay for the whole plan; nothing has run.
        PrivacyError: The accounts are not of these people, or the plan reads records that lie in no block.
    """
    experiment = plan.experiment
    test = experiment.simulation.test
    budget = experiment.budget
    known = {account.name: account for account in ledger.accounts()}
    payers = Payers.of(known.values(), [account.name for account in plan.accounts], _read(plan))
    if payers.parts and not blocks:
        raise ConfigError.about(
            "ledger", "has blocks, which silos with ledgers of their own do not grant", accounts=sorted(payers.parts)
        )
    _refuse_second_budgets(known, plan, payers)
    missing = []
    for account in plan.accounts:
        if not account.charges:
            continue
        there = [known[name] for name in payers.each(account.name) if name in known]
        for payer in there:
            _check_terms(payer, plan, test=test)
        if there:
            continue
        limit = budget or Budget(
            epsilon=_payable(account.limit or account.epsilon, amounts.EPSILON),
            delta=_payable(plan.delta, amounts.DELTA),
        )
        missing.append(
            Account(
                name=account.name,
                unit=experiment.privacy.unit,
                adjacency=plan.adjacency,
                epsilon=limit.epsilon,
                delta=limit.delta,
                test=test,
            )
        )
    ledger.open_accounts(missing)
    ledger.admit(
        run,
        plan.digest,
        {payer: a.events for a in plan.accounts if a.charges for payer in payers.each(a.name)},
        plan.delta,
        noise_at=plan.experiment.privacy.noise_at,
        approval=None if approval is None else approval.order_for(ledger.policy()),
        rounds=experiment.count,
    )
    fence = ledger.open_run(run)
    if forfeit:
        ledger.forfeit_open(run)
    return LedgerBooks(ledger, run, fence, payers)


def _payable(price: float, places: int) -> float:
    """The least limit that pays a price, which a ledger rounds up to its grid."""
    return amounts.number(amounts.charge("plan", price, places), places)


def _read(plan: Plan) -> Read | None:
    """The records that a plan reads, where its data say so."""
    _, options = single("data", plan.experiment.data)
    if options.get("when") is None or options.get("until") is None:
        return None
    start = options.get("since")
    return Read(str(options["when"]), None if start is None else point(start), point(options["until"]))


def _refuse_second_budgets(known: Mapping[str, Account], plan: Plan, payers: Payers) -> None:
    """The same people must not have two budgets in one ledger.

    A client's guarantee covers each of its records, and `clients` covers each client, so accounts of another unit or
    of the other kind may stand for people that this run would charge elsewhere.
    """
    unit, names = plan.experiment.privacy.unit, {account.name for account in plan.accounts}
    known = {payers.whose(name): account for name, account in known.items()}
    shared = any(account.client is None for account in plan.accounts)
    for name, account in known.items():
        if account.unit is not unit or (name == CLIENTS) != shared:
            raise PrivacyError.about(
                "ledger",
                f"is kept per {account.unit}{'' if name == CLIENTS else ' by name'}, this run per {unit}"
                f"{'' if shared else ' by name'}: the same people would have two budgets",
                "use one unit and one kind of sampling per ledger",
                account=name,
            )
    if known and names - known.keys() and known.keys() - names:
        raise PrivacyError.about(
            "ledger",
            "are new to it, while others of its accounts are left out: the same people under other names?",
            "keep a federation's names and partition, or use another ledger",
            accounts=sorted(names - known.keys())[:3],
        )


def _check_terms(open_: Account, plan: Plan, *, test: bool) -> None:
    """An account that is open keeps its terms; this run must fit them."""
    asked = (plan.experiment.privacy.unit, plan.adjacency, test)
    if (open_.unit, open_.adjacency, open_.test) != asked:
        raise PrivacyError.about(
            "ledger",
            f"is open for {open_.unit}, {open_.adjacency}{', TEST' if open_.test else ''}",
            "use another ledger, or the account's terms",
            account=open_.name,
        )
