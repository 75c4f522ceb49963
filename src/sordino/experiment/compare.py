"""Settings side by side over several splits: only for published research data.

On private data every row would be a release, and the table would cost the sum of them; so it is refused there.
Each private row charges a ledger of its own all the same: no epsilon without a charge.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from sordino.core import tables
from sordino.data.federation import FederatedData
from sordino.experiment import config
from sordino.experiment.books import kept
from sordino.experiment.build import build
from sordino.experiment.claimed import claimed_epsilon
from sordino.experiment.config import Experiment, Local, Privacy
from sordino.experiment.folder import RunFolder
from sordino.experiment.metrics import Metrics, metrics
from sordino.experiment.plan import make_plan
from sordino.experiment.population import Population, load, require_public
from sordino.experiment.settings import setting_of


@dataclass(frozen=True)
class Row:
    """One setting's figures over the splits.

    Args:
        setting: What was trained.
        epsilon: As claimed by the ledger; None without privacy.
        figures: Per metric: mean and standard error over splits.
    """

    setting: str
    epsilon: float | None
    figures: dict[str, tuple[float, float]]

    def to_plain(self) -> dict[str, Any]:
        """JSON-able."""
        figures = {name: {"mean": mean, "standard_error": error} for name, (mean, error) in self.figures.items()}
        return {"setting": self.setting, "epsilon": self.epsilon, **figures}


def compare(experiment: Experiment, *, progress: Callable[[str], None] = lambda _: None) -> list[Row]:
    """The rows that `[compare]` asks for.

    Raises:
        PrivacyError: The data are not public.
    """
    wanted = experiment.compare
    if wanted is None:
        return []
    populations = [load(config.changed(experiment, evaluation__split=s)) for s in range(wanted.splits)]
    require_public(populations[0])
    rows = []
    for label, changed, cut in _settings(experiment, populations[0]):
        progress(label)
        results = [trial(changed, cut(population), population) for population in populations]
        rows.append(Row(label, results[0][0], _figures([result for _, result in results])))
    return rows


Cut = Callable[[Population], Population]


def _settings(experiment: Experiment, population: Population) -> Iterator[tuple[str, Experiment, Cut]]:
    wanted = experiment.compare
    if wanted is None:
        return
    # Rows are judged without noise, whoever may see what.
    experiment = config.changed(experiment, evaluation__release=None, homomorphic=None)
    # What nobody protects takes the better gradients, whatever the private rows can afford.
    local = replace(experiment.local, method="gradient", directions=1, radius=Local.radius)
    local = replace(local, people="mean", records_per_person=None)
    open_ = replace(experiment, privacy=Privacy(non_private=True), local=local, silos={}, stages=())
    if wanted.alone:
        one = replace(open_, sampling={"all": {}})  # a cohort of two, or a buffer, has no meaning for one
        for index, name in enumerate(population.names):
            yield f"{name} alone, no privacy", one, partial(_alone, index=index)
    if wanted.non_private:
        yield "together, no privacy", open_, lambda p: p
    for epsilon in wanted.epsilon:
        private = config.changed(experiment, privacy__epsilon=epsilon, silos={})
        yield f"together, epsilon {epsilon:g}", private, lambda p: p


def kept_comparison(
    experiment: Experiment, folder: RunFolder, *, progress: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """The rows as JSON, kept in a run folder; made anew when something else is asked for."""
    asked, known = tables.plain(experiment.compare), folder.read("compare.json")
    if known is not None and known["asked"] == asked:
        rows: list[dict[str, Any]] = known["rows"]
        return rows
    rows = [row.to_plain() for row in compare(experiment, progress=progress)]
    folder.write("compare.json", {"asked": asked, "rows": rows})
    return rows


def trial(experiment: Experiment, population: Population, judged_on: Population) -> tuple[float | None, Metrics]:
    """One training with a ledger of its own, for public data only: the claimed epsilon, and the figures.

    Args:
        experiment: What to train.
        population: Whom to train on.
        judged_on: Whose test records judge the model.
    """
    plan = make_plan(experiment, population, check_learning=False)
    built = build(plan, population, probe=False)
    with tempfile.TemporaryDirectory() as folder, kept(plan, "compare", Path(folder) / "ledger.db") as (books, ledger):
        loop = built.loop(books, "compare", lambda _: None, lambda _: None)
        state = loop.rounds(loop.start(built.start), setting_of(built.setup))
        claims = ledger.claims("compare") if ledger is not None else []
    judge = replace(built.setup, population=judged_on)
    epsilon = claimed_epsilon(plan, tuple(claims)) if claims else None
    return epsilon, metrics(judge, loop.average.result(state.average))


def _alone(population: Population, index: int) -> Population:
    """A federation of one: what a hospital could do by itself, judged on everyone's test records."""
    data = population.train
    own = FederatedData(data.examples, (data.names[index],), (data.rows[index],))
    return replace(population, train=own, units=(population.units[index],))


def _figures(results: list[Metrics]) -> dict[str, tuple[float, float]]:
    columns: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.to_plain().items():
            if isinstance(value, float):
                columns.setdefault(name, []).append(value)
    return {name: (fmean(values), _error(values)) for name, values in columns.items()}


def _error(values: list[float]) -> float:
    return float(stdev(values) / np.sqrt(len(values))) if len(values) > 1 else 0.0
