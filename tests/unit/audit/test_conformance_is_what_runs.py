"""The suite drives our stages and doors with given updates: to the bit what a run's own setting releases of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from sordino.audit.conformance.adapters._clients import Clients
from sordino.audit.conformance.adapters._exits import Repeating
from sordino.audit.conformance.adapters._flat import named
from sordino.core.types import RoundPlan, Update
from sordino.experiment.books import open_books
from sordino.experiment.build import build
from sordino.experiment.config import read
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.settings import setting_of
from sordino.federation.engines import Engine
from sordino.ledger import Ledger

CLIENTS = """
name = "clients"
rounds = 2
[data.heart]
[model.logistic]
[privacy]
unit = "client"
noise_at = "coordinator"
noise_multiplier = 1.0
silos_per_person = 1
[simulation]
noise_seed = 3
[local]
lr = 0.1
[[stages]]
weight = { cap = 300 }
[[stages]]
clip = { norm = 1.0 }
[sampling.all]
[strategy.fedavg]
"""


@dataclass(frozen=True)
class Given(Engine):
    """An engine whose clients answer with these."""

    updates: list
    pipeline: object

    def run(self, plan, cohort, model, work, together=None):
        for update in self.updates:
            yield self.pipeline.client(update, plan)


@pytest.mark.parametrize("hostile", [1e6, float("nan")])
def test_a_run_releases_what_the_suite_measures(tmp_path, hostile):
    """
    Same updates, weights and noise: ClientAtCoordinator and the suite's target agree to the bit.
    """
    file = tmp_path / "clients.toml"
    file.write_text(CLIENTS, encoding="utf-8")
    experiment = read(file)
    population = load(experiment)
    plan = make_plan(experiment, population)
    setup = build(plan, population).setup
    count, size = len(population), setup.layout.size
    rng = np.random.default_rng(1)
    vectors = [rng.normal(size=size).astype(np.float32) for _ in range(count)]
    vectors[-1][0] = hostile
    records = [30 * (i + 1) for i in range(count)]

    setting = setting_of(replace(setup, source=Repeating(5)))
    updates = [Update(vector, records=n) for vector, n in zip(vectors, records, strict=True)]
    setting = setting.at(replace(setting.setup, engine=Given(updates, setting.pipeline)))
    announced = RoundPlan(0, 2, setup.layout.groups, float(count))
    with Ledger(tmp_path / "ledger.db") as ledger:
        books = open_books(ledger, plan, "r")
        reservation = books.reserve("r/0", 0, setting.lines(np.arange(count)))
        released = setting.release(announced, np.arange(count), np.zeros(size, np.float32), reservation)
    theirs, _ = setting.settle(released, announced)

    target = Clients("the same", ({"weight": {"cap": 300}}, {"clip": {"norm": 1.0}}), cohort=count)
    model = named(setup.layout, np.zeros(size, np.float32))
    ours = target.release(model, [named(setup.layout, v) for v in vectors], records, 5)

    assert np.array_equal(np.concatenate([ours[name].ravel() for name in model]), theirs)
