"""Whole zeroth-order runs: they learn, they send a few bytes a step, and what makes no sense is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from whole_runs import model, one_line, planned, ran, sordino

from sordino.experiment.books import kept
from sordino.experiment.build import build
from sordino.experiment.compare import compare
from sordino.experiment.run import run
from sordino.experiment.settings import setting_of
from sordino.experiment.settings.zeroth_at_silo import ZerothAtSilo
from sordino.federation.engines import Engine

ZEROTH = (
    "privacy.epsilon=8.0",
    "local={ method = 'zeroth_order', directions = 8, clip = 2.0, lr = 0.3, steps = 2 }",
)


class Watched(Engine):
    """An engine that keeps what each silo sends."""

    def __init__(self, inner):
        self.inner, self.sent = inner, []

    def run(self, *arguments):
        for update in self.inner.run(*arguments):
            self.sent.append(update.vector)
            yield update


class Copying:
    """Books that keep the committed bytes."""

    def __init__(self, inner):
        self.inner, self.committed = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def commit(self, reservation, artefact):
        self.committed.append(artefact)
        self.inner.commit(reservation, artefact)


@pytest.mark.parametrize("parameters", ["{ logistic = {} }", "{ mlp = { hidden = [64] } }"])
def test_a_step_costs_at_most_64_bytes_each_way(heart, tmp_path, parameters):
    """
    Measured on what silos send and what the ledger commits: 4 bytes a direction, whatever the size of the model.
    """
    plan, population = planned(heart, *ZEROTH, f"model={parameters}", "local.directions=16", "local.momentum=0.5")
    built = build(plan, population)
    engine = Watched(built.setup.engine)
    built = dataclasses.replace(built, setup=dataclasses.replace(built.setup, engine=engine))
    with kept(plan, "bytes", tmp_path / "ledger.db") as (books, _):
        copying = Copying(books)
        loop = built.loop(copying, "bytes", lambda _: None, lambda _: None)
        state = loop.rounds(loop.start(built.start), setting_of(built.setup))

    rounds, silos, steps = 3, 4, 2
    assert len(engine.sent) == rounds * silos
    assert {sent.nbytes / steps for sent in engine.sent} == {64}
    assert {len(artefact) / steps for artefact in copying.committed} == {64}
    assert len(copying.committed) == rounds
    assert state.server.model.size == plan.parameters
    assert not np.array_equal(state.server.model, built.start)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_learns_above_chance(heart, mechanism):
    """
    Heart disease in four hospitals at epsilon 8: the AUC is far above a half, with either noise.
    """
    result = ran(
        heart, *ZEROTH, "local.batch=0.5", "rounds=15", f"privacy.mechanism={mechanism}", "simulation.noise_seed=1"
    )

    assert result.summary["metrics"]["auc"] > 0.8
    assert result.summary["epsilon"] <= 8
    assert result.summary["mechanism"] == mechanism


def test_persons_are_protected_too(table, capsys):
    """
    The unit user, from the command line, without a seed.
    """
    code, _, error = sordino(
        capsys, "run", table, "--runs", table.parent / "runs", "--json",
        "--set", "privacy.unit=user", "--set", ZEROTH[1],
    )  # fmt: skip
    assert code == 0, error


def test_a_round_is_replayed_from_its_bytes(heart, monkeypatch, tmp_path):
    """
    A run that stops after a commit goes on from the committed numbers, and ends where an undisturbed run ends.
    """
    terms = (*ZEROTH, "simulation.noise_seed=1")
    whole = model(ran(heart, *terms, runs=tmp_path / "whole"))
    plan, population = planned(heart, *terms)

    class Crash(BaseException):
        pass

    settle = ZerothAtSilo.settle
    monkeypatch.setattr(ZerothAtSilo, "settle", lambda *_: (_ for _ in ()).throw(Crash()))
    with pytest.raises(Crash):
        run(plan, population, "", tmp_path / "halted")
    monkeypatch.setattr(ZerothAtSilo, "settle", settle)

    assert np.array_equal(model(run(plan, population, "", tmp_path / "halted")), whole)


@pytest.mark.parametrize(
    "change",
    [
        "local.directions=17",
        "local.radius=0.0",
        "local.noise_walk=0.9",
        "local.engine='oracle'",
        "local.people='records'",
        "local.clipping='automatic'",
        "objective={ fedprox = { mu = 0.1 } }",
        "privacy={ epsilon = 8.0, noise_at = 'sum', silos_per_person = 1 }",
        "privacy={ epsilon = 8.0, unit = 'client', noise_at = 'coordinator' }",
        "privacy={ non_private = true }",
        "local={ clip = 0.5, lr = 0.1, directions = 2 }",
        "local={ clip = 0.5, lr = 0.1, radius = 0.1 }",
    ],
)
def test_what_it_does_not_offer_is_refused(heart, capsys, change):
    """
    One line, before anything runs: nothing is silently without effect.
    """
    terms = [item for term in (*ZEROTH, change) for item in ("--set", term)]

    code, out, error = sordino(capsys, "plan", heart, *terms)

    assert (code, out) == (2, "")
    one_line(error)


def test_comparisons_take_gradients_where_nobody_is_protected(heart):
    """
    The rows without privacy are plain training, as for any other method.
    """
    plan, _ = planned(heart, *ZEROTH, "rounds=1", "compare={ epsilon = [8.0], alone = false }")

    assert [row.setting for row in compare(plan.experiment)] == ["together, no privacy", "together, epsilon 8"]
