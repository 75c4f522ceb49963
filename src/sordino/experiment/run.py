"""Run a plan here: admit it in the ledger, loop, resume after a crash, and end with claims and a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.audit.sensor.start import require
from sordino.core.errors import PrivacyError, SordinoError, VerificationError
from sordino.core.types import Vector
from sordino.experiment import adapter, asynchrony, released_metrics
from sordino.experiment.approval import approved
from sordino.experiment.audits import sensor
from sordino.experiment.books import kept
from sordino.experiment.build import Built, build
from sordino.experiment.claimed import account_of, claimed_epsilon
from sordino.experiment.folder import RunFolder
from sordino.experiment.metrics import figures, metrics
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.progress import Progress, Spent
from sordino.experiment.released_metrics import Drawing
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.remote.federation import Federation
from sordino.experiment.remote.figures import Judging
from sordino.experiment.render import finite, plan_json
from sordino.experiment.rounds import Books, State
from sordino.experiment.settings import setting_of
from sordino.experiment.silos import SiloBooks, consenting
from sordino.federation.engines import Engine
from sordino.ledger import Claim, Ledger
from sordino.ledger.stores import Place, label, located

if TYPE_CHECKING:
    from sordino.audit.sensor.report import Report
    from sordino.local.layout import Layout


@dataclass(frozen=True)
class Result:
    """A finished run.

    Args:
        folder: The run folder.
        summary: The stable JSON of `sordino run --json`.
        claims: The guarantees, minted by the ledger.
        fresh: False when the folder already held the finished run.
        resumed_at: Rounds that an interrupted run had done before this one went on.
    """

    folder: Path
    summary: dict[str, Any]
    claims: tuple[Claim, ...]
    fresh: bool
    resumed_at: int = 0


def run(
    plan: Plan,
    population: Population,
    toml: str,
    runs: Path,
    *,
    base: Path = Path(),
    progress: Callable[[Progress], None] = lambda _: None,
    sensed: Callable[[Report], None] = lambda _: None,
    federation: Federation | None = None,
) -> Result:
    """Run a plan, or go on with one that was interrupted, or read one that is finished.

    A private run first drives its own steps on made-up records, and starts only if they release what they declare.

    Args:
        plan: What to run. Its digest names the folder.
        population: The data it was planned for.
        toml: The experiment file as the user wrote it.
        runs: Where run folders live.
        base: Where a relative `ledger` path starts: the experiment file's folder.
        progress: Called after every round.
        sensed: Called with what the sensor audit at the start measured, before anything is charged.
        federation: The silos, where they are other machines; left out, they are played in this process.

    Raises:
        BreakerOpen: The sensor audit failed; nothing was charged or released.
        BudgetRefused: The ledger cannot pay; nothing was released.
        PrivacyError: A precondition of the guarantee does not hold; nothing was released.
        ConfigError: Records are elsewhere, and no federation is given.
    """
    if federation is None:
        population.train.require_here()
    folder = RunFolder(runs / f"{plan.experiment.name}-{plan.digest[:8]}")
    finished = folder.finished(plan.digest)
    if finished is not None:
        claims = claims_of(plan, _ledger_of(plan, folder, base))
        return Result(folder.path, finished | _claimed(plan, finished["silos"], claims), claims, fresh=False)
    built = build(plan, population, together=federation is None)
    report = sensor.at_start(built.setup)
    if report is not None:
        sensed(report)
        require(report)
    setting_of(built.setup)  # tried before anything is opened or charged
    with _opened(plan, folder, toml, _ledger_of(plan, folder, base), base, federation) as (books, ledger, engine):
        built = built if engine is None else replace(built, setup=replace(built.setup, engine=engine))
        if report is not None:
            folder.write("sensor.json", report.to_plain())
        if population.canaries is not None:  # coins are fixed, and kept, before anything is trained
            folder.write("canaries.json", population.canaries.to_plain())
        spent = Spent(plan)

        def seen(state: State) -> None:
            line = spent.at(state.round)
            folder.log(_line(line, built, state))
            progress(line)

        def lost(number: int) -> bool:
            return ledger is not None and ledger.state(f"{_name(plan)}/{number}") == "forfeited"

        checked = adapter.moved(built.setup, built.start, seen, lost)
        loop = built.loop(books, _name(plan), folder.save, checked)
        before = folder.load()
        begun = time.process_time()
        state = loop.rounds(before or loop.start(built.start), setting_of(built.setup))
        took = time.process_time() - begun
        model = loop.average.result(state.average)
        released = released_metrics.release(built.setup, books, _name(plan), model, _drawing(books))
        claims = tuple(ledger.claims(_name(plan))) if ledger is not None else ()
        _compare_with_plan(plan, claims)
        summary = plan_json(plan) | {"rounds_lost": _lost(ledger, plan)}
        away = _agreed(books, claims, model)
        summary |= _claimed(plan, summary["silos"], claims)
        summary |= {"metrics": figures(built.setup, model), "run_folder": str(folder.path)}
        summary |= {"released_metrics": None if released is None else released.to_plain()}
        if population.spec.per_position and not population.test.elsewhere:  # what the pretrained base could do before
            summary |= {"metrics_at_start": metrics(built.setup, built.start).to_plain()}
        folder.save_model(_tensors(built.setup.layout, model), {"digest": plan.digest})
        summary |= adapter.exported(built.setup, model, folder)
        summary |= {} if federation is None else {"silos_away": list(away)}
        summary |= {"sensor": None if report is None else report.counted()}
        # Apart from the summary: how long a training takes depends on the records that were drawn.
        folder.write("timing.json", {"visibility": "local", "cpu_seconds": _whole(took, plan.experiment.count, before)})
        folder.finish(summary)
        if released is not None:  # the summary keeps them
            books.published(released_metrics.name_of(_name(plan)))
        return Result(folder.path, summary, claims, fresh=True, resumed_at=before.round if before else 0)


@contextmanager
def _opened(
    plan: Plan, folder: RunFolder, toml: str, place: Place, base: Path, federation: Federation | None
) -> Iterator[tuple[Books, Ledger | None, Engine | None]]:
    """The run's folder and books, the plan admitted. A plan that is refused leaves no run folder."""
    fresh = folder.begin(toml, plan_json(plan))
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(_books(plan, place, base, federation))
        except SordinoError:
            if fresh:
                folder.discard()
            raise
        yield opened


@contextmanager
def _books(
    plan: Plan, place: Place, base: Path, federation: Federation | None
) -> Iterator[tuple[Books, Ledger | None, Engine | None]]:
    """The books of a run; those of its silos too where they keep some. And the engine, where they are elsewhere."""
    approval = approved(plan, base)
    if federation is not None:
        with federation.opened(plan, approval, place) as (remote, engine, ledger):
            yield remote, ledger, engine
    elif plan.experiment.enforcement is None or not plan.private:
        with kept(plan, _name(plan), place, approval) as opened:
            yield *opened, None
    else:
        with consenting(plan, approval, plan.experiment.enforcement, place, base) as asked:
            yield *asked, None


def _agreed(books: Books, claims: tuple[Claim, ...], model: Vector) -> tuple[str, ...]:
    """Compare the claims with the silos' own ledgers, where they keep some; those that could not be asked."""
    if isinstance(books, SiloBooks):
        books.agree(claims)
    return books.agree(claims, model) if isinstance(books, RemoteBooks) else ()


def _drawing(books: Books) -> Drawing | None:
    """How silos on other machines draw their figures; None where all are in this process."""
    return Judging(books) if isinstance(books, RemoteBooks) else None


def claims_of(plan: Plan, place: Place) -> tuple[Claim, ...]:
    """The guarantees of a run that has ended, from its ledger as it is now.

    Raises:
        VerificationError: The ledger knows no charge of it.
    """
    if not plan.private:
        return ()
    with Ledger(place, read_only=True) as ledger:
        claims = tuple(ledger.claims(_name(plan)))
    if not claims:
        raise VerificationError.about(
            "run", "has a result whose ledger knows no charge for it", "restore the ledger", ledger=label(place)
        )
    return claims


def _line(progress: Progress, built: Built, state: State) -> dict[str, Any]:
    line: dict[str, Any] = {"round": progress.round}
    if built.setup.plan.private:
        line |= {"epsilon_spent": progress.spent, "epsilon_left": max(0.0, progress.limit - progress.spent)}
    every = built.setup.experiment.evaluation.every
    if every and progress.round % every == 0:
        line["metrics"] = metrics(built.setup, state.server.model).to_plain()
    return line


def _claimed(plan: Plan, silos: list[dict[str, Any]], claims: tuple[Claim, ...]) -> dict[str, Any]:
    """Every number of a summary that is a guarantee, from the claims."""
    by_name = {account_of(plan, claim.account): claim for claim in claims}
    paid = [silo | {"epsilon": by_name[silo["name"]].epsilon} if silo["name"] in by_name else silo for silo in silos]
    return {
        "epsilon": finite(claimed_epsilon(plan, claims)) if claims else None,
        "delta": max((claim.delta for claim in claims), default=plan.delta),
        "test": any(claim.test for claim in claims) or plan.experiment.simulation.test,
        "silos": paid,
        "ledger_sha256": claims[0].ledger_sha256 if claims else None,
    }


def _whole(took: float, rounds: int, before: State | None) -> float | None:
    """What the whole training takes, from the part that ran now: an audit that repeats it says so beforehand."""
    done = rounds - (before.round if before else 0)
    return round(took * rounds / done, 3) if done else None


def _lost(ledger: Ledger | None, plan: Plan) -> int:
    """Rounds that were charged and whose release was lost in a crash: never drawn again."""
    charges = ledger.charges(_name(plan)) if ledger is not None else []
    return sum(charge.state == "forfeited" and charge.purpose == "train" for charge in charges)


def _compare_with_plan(plan: Plan, claims: tuple[Claim, ...]) -> None:
    """What ran is what was accounted: every planned release was charged, and nothing else."""
    planned = {account.name: sorted(account.charges) for account in plan.accounts if account.charges}
    charged: dict[str, list[Any]] = {}
    for claim in claims:  # a silo whose records lie in blocks has one for each of them
        charged.setdefault(account_of(plan, claim.account), []).append(sorted(claim.events))
    if asynchrony.first_come(plan.experiment):  # as many as came in time, and no more than were planned
        differ = sorted(name for name, all_ in charged.items() if any(not _within(e, planned.get(name)) for e in all_))
    else:
        names = planned.keys() | charged.keys()
        differ = sorted(n for n in names if any(events != planned.get(n) for events in charged.get(n, [None])))
    if differ:
        raise PrivacyError.about("run", "were charged for other releases than the plan's", accounts=differ)


def _within(events: list[Any], planned: list[Any] | None) -> bool:
    most = dict(planned or ())
    return all(count <= most.get(event, 0) for event, count in events)


def _tensors(layout: Layout, model: Vector) -> dict[str, Any]:
    """The flat model under its parameters' names."""
    pairs = zip(layout.groups, layout.shapes, strict=True)
    return {group.name: model[group.start : group.stop].reshape(shape) for group, shape in pairs}


def _name(plan: Plan) -> str:
    return plan.run


def _ledger_of(plan: Plan, folder: RunFolder, base: Path) -> Place:
    return located(plan.experiment.ledger, base) if plan.experiment.ledger else folder.ledger
