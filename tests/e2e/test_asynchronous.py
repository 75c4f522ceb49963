"""Asynchronous rounds end to end: planned is charged, a crash changes nothing, and what is not sound is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from whole_runs import model, one_line, planned, ran, sordino

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import RoundPlan
from sordino.experiment import asynchrony
from sordino.experiment.build import build
from sordino.experiment.compare import compare
from sordino.experiment.folder import RunFolder
from sordino.experiment.run import run
from sordino.experiment.settings.training import plain_change
from sordino.federation.sampling.buffered import Buffered
from sordino.ledger import verify

ROUNDS = "rounds=9"
ARRIVE = "sampling={buffered={size=2, per_client=5, concurrency=4, spread=0.5}}"
CLIENT = (
    'privacy={unit="client", noise_at="coordinator", noise_multiplier=2.0, delta=0.01}',
    "stages=[{clip={norm=0.3}}]",
    ROUNDS,
    ARRIVE,
)
AT_SILO = (*CLIENT, 'privacy.noise_at="silo"')
RECORD = ("local.clip=0.3", "local.batch=0.5", "local.steps=2", ROUNDS, ARRIVE)
OPEN = ("privacy={non_private=true}", 'weights="uniform"', ROUNDS, ARRIVE)
SEEDED = "simulation.noise_seed=4"


@pytest.mark.parametrize("terms", [CLIENT, AT_SILO, RECORD], ids=["client", "client at silo", "record"])
def test_every_account_pays_for_its_own_updates(table, terms):
    """
    What the ledger charged is the schedule's count of each client's updates, at most the cap, times its releases.
    """
    result = ran(table, *terms)

    counts = Buffered(size=2, per_client=5, concurrency=4, spread=0.5).participations(6, 9)
    each = 2 if terms is RECORD else 1
    charged = {claim.account: sum(count for _, count in claim.events) for claim in result.claims}
    assert charged == {f"h{i}": each * count for i, count in enumerate(counts.tolist()) if count}
    assert max(charged.values()) <= 5 * each
    assert len(set(counts.tolist())) > 1
    assert verify(result.folder / "ledger.db").ok


def test_the_plan_says_it(table, capsys):
    """
    People read "asynchronous" and the cap, JSON has the figures, and the epsilon is of the busiest client alone.
    """
    arguments = [part for term in CLIENT for part in ("--set", term)]
    _, text, _ = sordino(capsys, "plan", table, *arguments)
    _, out, _ = sordino(capsys, "plan", table, "--json", *arguments)
    plan = json.loads(out)

    assert "asynchronous: one per 2 updates, 4 clients at work" in text
    assert "nothing is amplified" in text
    assert plan["asynchronous"]["participations"]["cap"] == 5
    assert plan["asynchronous"]["age"]["most"] > 0
    busiest = max(plan["silos"], key=lambda silo: silo["releases"])
    assert plan["epsilon"] == busiest["epsilon"]
    assert plan["adjacency"] == "zero_out"


def test_the_plan_says_who_pays_for_what_comes_first(table, capsys):
    """
    Nobody knows who will be done how often, so all pay for the same, and people read it.
    """
    arguments = [part for term in (*RECORD, "sampling.buffered.arrivals='first_come'") for part in ("--set", term)]
    code, text, _ = sordino(capsys, "plan", table, *arguments, "--set", "rounds=6")
    assert code == 0
    assert "the first 2 updates that come" in text
    assert "it pays for 5 times; nothing is amplified" in text


def by_hand(table) -> np.ndarray:
    """FedBuff as in the paper, over the same schedule: mean of s(τ)·Δ over each buffer, server learning rate 1."""
    plan, population = planned(table, *OPEN)
    built = build(plan, population)
    models = [built.start.astype(np.float64)]
    for number, flush in enumerate(Buffered(size=2, per_client=5, concurrency=4, spread=0.5).flushes(6, 9)):
        changes = []
        for client, version in zip(flush.clients.tolist(), flush.versions.tolist(), strict=True):
            announced = RoundPlan(version, 9, built.setup.layout.groups, 2.0)
            start = models[version].astype(np.float32)
            change = plain_change(built.setup, client, start, announced).vector
            changes.append((1 + number - version) ** -0.5 * change.astype(np.float64))
        models.append(models[-1] + np.mean(changes, axis=0))
    return models[-1]


def layouts(result) -> np.ndarray:
    """A finished run's model in the order of the layout: bias and weight, as `linear` has weight first."""
    from safetensors.numpy import load_file

    tensors = load_file(result.folder / "model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in ("linear.weight", "linear.bias") if name in tensors])


def test_clients_train_from_the_models_they_started_from(table, monkeypatch):
    """
    Without noise a run is the paper's algorithm, written anew; a twin that hands out the newest model is not.
    """
    wanted = by_hand(table)

    assert np.allclose(layouts(ran(table, *OPEN)), wanted, atol=1e-5)

    monkeypatch.setattr(asynchrony, "delayed", lambda setting, plan, state: setting)
    fresh = layouts(ran(table, *OPEN, "name='fresh'"))
    assert not np.allclose(fresh, wanted, atol=1e-3)


class Stop(Exception):
    """A crash that can be caught."""


def stopped_at(monkeypatch, number: int) -> None:
    """The process ends before it writes the checkpoint of a round."""
    sound = RunFolder.save

    def save(self, state):
        if state.round == number:
            raise Stop
        sound(self, state)

    monkeypatch.setattr(RunFolder, "save", save)


@pytest.mark.parametrize("terms", [CLIENT, RECORD], ids=["client", "record"])
@pytest.mark.parametrize("at", [1, 6])
def test_a_run_killed_at_a_flush_ends_as_if_it_had_not_been(table, monkeypatch, terms, at):
    """
    Models that clients are still at work on are in the checkpoint: the same bytes, model and claims after a resume.
    """
    whole = ran(table, *terms, SEEDED)
    plan, population = planned(table, *terms, SEEDED)
    with monkeypatch.context() as patch:
        stopped_at(patch, at)
        with pytest.raises(Stop):
            run(plan, population, "", table.parent / "again")

    result = run(plan, population, "", table.parent / "again")

    assert np.array_equal(model(result), model(whole))
    assert said(result) == said(whole)


def said(result) -> list[tuple]:
    """What a run's claims say, but for which ledger keeps them."""
    return [(claim.account, claim.epsilon, claim.delta, sorted(claim.events)) for claim in result.claims]


def test_a_checkpoint_without_old_models_cannot_go_on(table, monkeypatch):
    """
    Negative control: the models in the checkpoint are needed; a run that lost them stops and invents none.
    """
    plan, population = planned(table, *CLIENT, SEEDED)
    with monkeypatch.context() as patch:
        stopped_at(patch, 6)
        with pytest.raises(Stop):
            run(plan, population, "", table.parent / "runs")
    sound = RunFolder.load
    monkeypatch.setattr(RunFolder, "load", lambda self: dataclasses.replace(sound(self), versions={}))

    with pytest.raises(KeyError):
        run(plan, population, "", table.parent / "runs")


def test_a_round_lost_in_a_crash_keeps_its_number(table, monkeypatch):
    """
    Drawn and not committed: the charge stays, the model stands still for a round, and later rounds find their models.
    """
    from sordino.experiment.books import LedgerBooks

    sound = LedgerBooks.commit

    def commit(self, reservation, artefact):
        if reservation.txid.endswith("/4"):
            raise Stop
        sound(self, reservation, artefact)

    plan, population = planned(table, *CLIENT)
    with monkeypatch.context() as patch:
        patch.setattr(LedgerBooks, "commit", commit)
        with pytest.raises(Stop):
            run(plan, population, "", table.parent / "runs")

    result = run(plan, population, "", table.parent / "runs")

    assert result.summary["rounds_lost"] == 1
    assert result.summary["epsilon"] == plan.epsilon


def test_two_updates_of_one_client_in_a_buffer_are_refused(table, monkeypatch, unwatched):
    """
    Broken twin: a buffer that holds one client twice stops before it is charged.
    """
    plan, population = planned(table, *CLIENT)
    monkeypatch.setattr(Buffered, "draw", lambda self, n, t, source: np.array([3, 3]))

    with pytest.raises(PrivacyError, match="names a client twice"):
        run(plan, population, "", table.parent / "runs")


def test_a_cap_that_is_ignored_is_refused_by_the_ledger(table, monkeypatch, unwatched):
    """
    Broken twin: a run that asks the same two clients in every round is stopped when their charges are used up.
    """
    plan, population = planned(table, *CLIENT)
    monkeypatch.setattr(Buffered, "draw", lambda self, n, t, source: np.array([0, 1]))

    with pytest.raises((BudgetRefused, PrivacyError)) as stopped:
        run(plan, population, "", table.parent / "runs")
    counts = Buffered(size=2, per_client=5, concurrency=4, spread=0.5).participations(6, 9)
    assert counts[:2].max() < 9
    assert "h0" in str(stopped.value) or "h1" in str(stopped.value)


def test_a_weight_above_one_is_refused(table, monkeypatch, unwatched):
    """
    Broken twin: old updates that weigh more stop the run at the first old one, after its charge and before its noise.
    """
    plan, population = planned(table, *CLIENT)
    monkeypatch.setattr(Buffered, "discount", lambda self, age: 1.0 + age)

    with pytest.raises(PrivacyError, match="must lie in"):
        run(plan, population, "", table.parent / "runs")


REFUSED = {
    "fitted rounds": (*CLIENT, "rounds='fit'", "privacy.epsilon=9.0"),
    "at the sum": (*RECORD, 'privacy.noise_at="sum"', "simulation.secure_sum=true", "local.steps=1"),
    "zeroth order": (*RECORD, 'local.method="zeroth_order"'),
    "adaptive clip": (*CLIENT, "stages=[{adaptive_clip={norm=0.3}}]"),
    "a sum under one key": (*RECORD, "homomorphic={}"),
    "add or remove": (*CLIENT, 'privacy.adjacency="add_remove"'),
    "too many rounds": (*CLIENT, "rounds=16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asynchronous_is_refused_by_the_plan(table, capsys, name):
    """
    One line says why, and what would do.
    """
    arguments = [part for term in REFUSED[name] for part in ("--set", term)]
    code, _, error = sordino(capsys, "plan", table, *arguments)

    assert code == 2
    one_line(error)
    with pytest.raises((ConfigError, PrivacyError)):
        planned(table, *REFUSED[name])


@pytest.mark.parametrize("arrivals", ["schedule", "first_come"])
def test_a_comparison_has_a_row_for_each_silo_alone(table, arrivals):
    """
    Buffers of two mean nothing to a hospital by itself: its row takes all that there is.
    """
    plan, _ = planned(
        table, *RECORD, "compare={splits=1, epsilon=[8.0]}", "rounds=2", f"sampling.buffered.arrivals='{arrivals}'"
    )
    settings = [row.setting for row in compare(plan.experiment)]
    assert [setting.partition(" ")[2] for setting in settings[:6]] == ["alone, no privacy"] * 6
    assert settings[6:] == ["together, no privacy", "together, epsilon 8"]
