"""Run a plan here: admit it in the ledger, loop, resume after a crash, and end with claims and a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.core.types import Unit, Vector
from sordino.experiment.books import NoBooks, open_books
from sordino.experiment.build import Built, build
from sordino.experiment.folder import RunFolder
from sordino.experiment.metrics import metrics
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.render import finite, plan_json
from sordino.experiment.rounds import State
from sordino.experiment.settings import setting_of
from sordino.ledger import Claim, Ledger
from sordino.privacy import events
from sordino.privacy.silos import federation_epsilon

if TYPE_CHECKING:
    from sordino.local.layout import Layout


@dataclass(frozen=True)
class Progress:
    """What may be shown after a round: public and released numbers only."""

    round: int
    rounds: int
    spent: float
    limit: float


@dataclass(frozen=True)
class Result:
    """A finished run.

    Args:
        folder: The run folder.
        summary: The stable JSON of `sordino run --json`.
        claims: The guarantees, minted by the ledger.
        fresh: False when the folder already held the finished run.
    """

    folder: Path
    summary: dict[str, Any]
    claims: tuple[Claim, ...]
    fresh: bool


def run(
    plan: Plan,
    population: Population,
    toml: str,
    runs: Path,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Result:
    """Run a plan, or go on with one that was interrupted, or read one that is finished.

    Args:
        plan: What to run. Its digest names the folder.
        population: The data it was planned for.
        toml: The experiment file as the user wrote it.
        runs: Where run folders live.
        progress: Called after every round.

    Raises:
        BudgetRefused: The ledger cannot pay; nothing was released.
        PrivacyError: A precondition of the guarantee does not hold; nothing was released.
    """
    folder = RunFolder(runs / f"{plan.experiment.name}-{plan.digest[:8]}")
    finished = folder.read("summary.json")
    if finished is not None:
        with _ledger(plan, folder) as ledger:
            return Result(folder.path, finished, _claims(ledger, plan), fresh=False)
    built = build(plan, population)
    folder.begin(toml, plan_json(plan))
    with _ledger(plan, folder) as ledger:
        books = open_books(ledger, plan, _name(plan)) if ledger is not None else NoBooks()
        spent = _Spent(plan, ledger)

        def seen(state: State) -> None:
            line = spent.at(state.round)
            folder.log(_line(line, built, state))
            progress(line)

        loop = built.loop(books, _name(plan), folder.save, seen)
        state = loop.rounds(folder.load() or loop.start(built.start), setting_of(built.setup))
        model = loop.average.result(state.average)
        claims = _claims(ledger, plan)
        summary = _summary(plan, built, model, claims, folder)
        folder.save_model(_tensors(built.setup.layout, model), {"digest": plan.digest})
        folder.write("summary.json", summary)
        return Result(folder.path, summary, claims, fresh=True)


@dataclass(frozen=True)
class _Spent:
    """Epsilon so far of the account with the weakest guarantee; an upper bound that is cheap to show."""

    plan: Plan
    ledger: Ledger | None

    def at(self, round_: int) -> Progress:
        rounds = self.plan.experiment.count
        if self.ledger is None:
            return Progress(round_, rounds, math.inf, math.inf)
        worst = self.plan.worst
        return Progress(round_, rounds, self.ledger.spent(_name(self.plan), worst.name), worst.epsilon)


def _line(progress: Progress, built: Built, state: State) -> dict[str, Any]:
    line: dict[str, Any] = {"round": progress.round}
    if built.setup.plan.private:
        line |= {"epsilon_spent": progress.spent, "epsilon_left": max(0.0, progress.limit - progress.spent)}
    every = built.setup.experiment.evaluation.every
    if every and progress.round % every == 0:
        line["metrics"] = metrics(built.setup, state.server.model).to_plain()
    return line


def _summary(plan: Plan, built: Built, model: Vector, claims: tuple[Claim, ...], folder: RunFolder) -> dict[str, Any]:
    by_name = {claim.account: claim for claim in claims}
    summary = plan_json(plan)
    summary["epsilon"] = finite(claimed_epsilon(plan, claims)) if claims else None
    summary["test"] = any(claim.test for claim in claims)
    for silo in summary["silos"]:
        claim = by_name.get(silo["name"])
        silo["epsilon"] = claim.epsilon if claim is not None else silo["epsilon"]
    summary["metrics"] = metrics(built.setup, model).to_plain()
    summary["ledger_sha256"] = claims[0].ledger_sha256 if claims else None
    summary["run_folder"] = str(folder.path)
    return summary


def claimed_epsilon(plan: Plan, claims: tuple[Claim, ...]) -> float:
    """What one person risks, from the claims alone: composed over as many silos as a person can be in."""
    if plan.experiment.privacy.unit is Unit.CLIENT:
        return max(claim.epsilon for claim in claims)
    charged = {c.account: [(events.from_key(key), count) for key, count in c.planned] for c in claims}
    return federation_epsilon(
        charged, plan.delta, adjacency=plan.adjacency, silos_per_person=plan.experiment.privacy.silos_per_person
    )


def _claims(ledger: Ledger | None, plan: Plan) -> tuple[Claim, ...]:
    return tuple(ledger.claims(_name(plan))) if ledger is not None else ()


def _tensors(layout: Layout, model: Vector) -> dict[str, Any]:
    """The flat model under its parameters' names."""
    pairs = zip(layout.groups, layout.shapes, strict=True)
    return {group.name: model[group.start : group.stop].reshape(shape) for group, shape in pairs}


def _name(plan: Plan) -> str:
    return f"{plan.experiment.name}-{plan.digest[:16]}"


@contextmanager
def _ledger(plan: Plan, folder: RunFolder) -> Iterator[Ledger | None]:
    if not plan.private:
        yield None
        return
    path = Path(plan.experiment.ledger) if plan.experiment.ledger else folder.ledger
    ledger = Ledger(path)
    try:
        yield ledger
    finally:
        ledger.close()
