"""Held-out figures that leave a silo: each silo releases one small noised vector at the end, charged like all else.

held-out records ──► a row per unit: right − ½, loss/bound − ½, 1 ──clip──► sum ──Door──► accuracy, loss, count
                                                       (reserved as `metric`)      └──► pooled: sums of those

Figures without noise (`metrics.py`) are for the machine that holds the records, and stay there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import BudgetRefused, ConfigError
from sordino.core.types import Adjacency, Unit, Vector
from sordino.experiment.config import Experiment, MetricRelease
from sordino.experiment.figures import Figures, Released
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.mechanisms.laplace import Laplace
from sordino.privacy.doors import Door
from sordino.privacy.kernel import BoundedSum, Private
from sordino.privacy.permits import Line, Reservation
from sordino.privacy.relations import moves

if TYPE_CHECKING:
    from sordino.experiment.plan import Plan
    from sordino.experiment.rounds import Books
    from sordino.experiment.settings import Setup
    from sordino.privacy.events import Events


def check(experiment: Experiment) -> None:
    """Refuse a release that nobody could pay for, or that is of nobody's records.

    Raises:
        ConfigError: Whole clients are protected, or groups; or the test records are a data set of their own.
        BudgetRefused: It costs an account all that it has.
    """
    release = experiment.evaluation.release
    if release is None:
        return
    if experiment.privacy.unit is Unit.CLIENT or experiment.groups:
        raise ConfigError.about(
            "evaluation.release",
            "is offered for records or persons, without groups",
            "drop it",
            unit=experiment.privacy.unit,
        )
    if experiment.evaluation.data is not None:
        raise ConfigError.about(
            "evaluation.release", "is of no silo's records", "drop it or evaluation.data", data=True
        )
    own = [silo.epsilon for silo in experiment.silos.values()]
    least = min((e for e in [experiment.privacy.epsilon, *own] if e is not None), default=math.inf)
    if release.epsilon is not None and release.epsilon >= least:
        raise BudgetRefused.about(
            "evaluation.release", f"leaves nothing of {least:g} to train with", "lower it", epsilon=release.epsilon
        )


def refuse(experiment: Experiment) -> None:
    """Refuse a release where nothing is protected.

    Raises:
        ConfigError: It is asked for.
    """
    if experiment.evaluation.release is not None:
        raise ConfigError.about("evaluation.release", "needs a private run", "drop it", non_private=True)


def charged(experiment: Experiment, adjacency: Adjacency) -> Events:
    """What the release costs each account: one event, or none."""
    release = experiment.evaluation.release
    return () if release is None else ((mechanism_of(release, adjacency).event(), 1),)


def mechanism_of(release: MetricRelease, adjacency: Adjacency) -> Laplace | Gaussian:
    """The noise: Laplace of exactly the pure ε that is asked for under the plan's relation, or a given Gaussian."""
    if release.noise_multiplier is not None:
        return Gaussian(release.noise_multiplier)
    return Laplace(moves(adjacency) / (release.epsilon or 0.0))


def name_of(run: str) -> str:
    """The release's name in the books."""
    return f"{run}/metrics"


class Drawing(Protocol):
    """Draws what is released under a charge: here, or where the silos are."""

    def __call__(
        self, setup: Setup, asked: MetricRelease, model: Vector, charge: Reservation | None
    ) -> NDArray[np.float32]:
        """Every silo's noised sum, shape (silos, 2 or 3); not a number where a silo gives nothing.

        Raises:
            Lost: Nothing can be drawn any more.
        """
        ...


def release(setup: Setup, books: Books, run: str, model: Vector, draw: Drawing | None = None) -> Released | None:
    """Release every silo's figures on its held-out records: charged, drawn, committed.

    Args:
        setup: The run's fixed parts.
        books: Where it is charged.
        run: The run's name there.
        model: What is judged. Shape (d,).
        draw: Left out, all silos draw in this process.

    Returns:
        The figures; None where none are asked for, or where a crash came between their charge and their bytes: they
        are paid for and never drawn again.
    """
    from sordino.experiment.rounds import Lost

    asked = setup.experiment.evaluation.release
    if asked is None:
        return None
    artefact = books.earlier(name_of(run))
    if artefact is True:
        return None
    n, width = len(setup.population), 2 if asked.loss is None else 3
    if isinstance(artefact, bytes):
        vectors = np.frombuffer(artefact, dtype=np.float32).reshape(n, width)
    else:
        try:
            charge = books.reserve(name_of(run), setup.experiment.count, lines(setup), purpose="metric")
            vectors = (draw or drawn)(setup, asked, model, charge)
        except Lost:
            return None
        books.commit(charge, vectors.tobytes())
    std = noise_std(asked, setup.plan.adjacency)
    rows = dict(zip(setup.population.names, vectors, strict=True))
    away = tuple(name for name, row in rows.items() if not np.isfinite(row).all())
    given = (Figures(name, tuple(row.tolist()), std, asked.loss) for name, row in rows.items() if name not in away)
    return Released(tuple(given), away)


def lines(setup: Setup, client: int | None = None) -> list[Line]:
    """One release for every silo, whether it holds out anybody or not: that nobody is there must not show.

    Args:
        setup: The run's fixed parts.
        client: The only silo that is meant; left out, all.
    """
    from sordino.privacy import events

    ((event, count),) = charged(setup.experiment, setup.plan.adjacency)
    clients = range(len(setup.population)) if client is None else [client]
    return [Line(setup.account(each).name, setup.unit, events.key(event), count) for each in clients]


def noise_std(asked: MetricRelease, adjacency: Adjacency) -> float:
    """Standard deviation of the noise on each released number."""
    mechanism, (l1, l2) = mechanism_of(asked, adjacency), bounds(asked)
    spread = math.sqrt(2) if isinstance(mechanism, Laplace) else 1.0
    return spread * mechanism.scale(l2, l1)


def bounds(asked: MetricRelease) -> tuple[float, float]:
    """How far one unit's row reaches, in L1 and in L2: ½ for each figure, which is centred, and 1 for the count."""
    figures = 1 if asked.loss is None else 2
    return 1 + figures / 2, math.sqrt(1 + figures / 4)


def bounded(rows: NDArray[np.float64], unit: Unit, asked: MetricRelease) -> BoundedSum:
    """The sum of the rows with its bound, in the norm that the noise is measured against."""
    l1, l2 = bounds(asked)
    private = Private(rows, unit)
    return private.clip(l1=l1) if asked.noise_multiplier is None else private.clip(l2=l2)


def rows_of(
    right: NDArray[np.float64], loss: NDArray[np.float64], owners: NDArray[Any] | None, asked: MetricRelease
) -> NDArray[np.float64]:
    """One row per protected unit: of a record, or the mean over a person's records. Shape (units, 2 or 3).

    Args:
        right: Share of right targets of each record, in [0, 1].
        loss: Mean loss of each record, any number; what is none counts as the bound.
        owners: The person of each record, where persons are protected.
        asked: Which figures.
    """
    figures = [right]
    if asked.loss is not None:
        known = np.where(np.isfinite(loss), loss, asked.loss)
        figures.append(np.clip(known, 0.0, asked.loss) / asked.loss)
    table = np.stack(figures, axis=1)
    if owners is not None:
        people, index = np.unique(owners, return_inverse=True)
        sums = np.zeros((len(people), table.shape[1]))
        np.add.at(sums, index, table)
        table = sums / np.bincount(index, minlength=len(people))[:, None]
    return np.concatenate([table - 0.5, np.ones((len(table), 1))], axis=1)


def drawn(setup: Setup, asked: MetricRelease, model: Vector, charge: Reservation | None) -> NDArray[np.float32]:
    """Every silo's noised sum under a charge. Shape (silos, 2 or 3)."""
    from sordino.experiment.settings.setup import paid

    setup.layout.restore(setup.module, model)
    return np.stack([_noised(setup, asked, client, paid(charge)) for client in range(len(setup.population))])


def drawn_by(setup: Setup, asked: MetricRelease, client: int, model: Vector, charge: Reservation) -> Vector:
    """One silo's noised sum, drawn where its records are. Shape (2 or 3,)."""
    setup.layout.restore(setup.module, model)
    return _noised(setup, asked, client, charge)


def _noised(setup: Setup, asked: MetricRelease, client: int, charge: Reservation) -> Vector:
    mechanism = mechanism_of(asked, setup.plan.adjacency)
    payer = (setup.account(client).name,)
    return Door(mechanism, mechanism.event(), payer, charge, setup.source)(_held_out(setup, client, asked))


def _held_out(setup: Setup, client: int, asked: MetricRelease) -> BoundedSum:
    """A silo's private sum; of a silo that holds out nobody, zero."""
    from sordino.local import evaluate

    test, name = setup.population.test, setup.population.names[client]
    width = 2 if asked.loss is None else 3
    if name not in test.names:
        return bounded(np.zeros((0, width)), setup.unit, asked)
    silo = test.silo(test.index(name))
    right, loss = evaluate.each(setup.module, silo.x, silo.y)
    return bounded(rows_of(right, loss, _owners(setup.unit, silo.user), asked), setup.unit, asked)


def _owners(unit: Unit, user: NDArray[Any] | None) -> NDArray[Any] | None:
    return user if unit is Unit.USER else None


def planned(plan: Plan) -> dict[str, Any] | None:
    """What will be released and at which price, JSON-able."""
    asked = plan.experiment.evaluation.release
    if asked is None:
        return None
    return {
        "figures": ["accuracy"] if asked.loss is None else ["accuracy", "loss"],
        "mechanism": "laplace" if asked.noise_multiplier is None else "gaussian",
        "noise_multiplier": mechanism_of(asked, plan.adjacency).noise_multiplier,
        "error": round(noise_std(asked, plan.adjacency), 6),
        "held_out_epsilon": held_out(plan),
    }


def held_out(plan: Plan) -> float | None:
    """What a record risks that is held out, and so never trained on; None where only the account's price holds.

    A record is held out or trained on. Added, removed or zeroed out it moves either the training or the figures. One
    that is replaced may leave the one and join the other; and a person of public data may have records in both.
    """
    from sordino.privacy.accounting import best_epsilon

    if plan.adjacency is Adjacency.REPLACE_ONE or plan.experiment.privacy.unit is not Unit.RECORD:
        return None
    return best_epsilon(charged(plan.experiment, plan.adjacency), plan.delta, adjacency=plan.adjacency).epsilon
