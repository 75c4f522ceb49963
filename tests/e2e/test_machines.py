"""The same experiment with silos that answer letters: same updates, same epsilon, and their own ledgers decide."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from machines import Machines, answers
from whole_runs import model, planned

from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Unit
from sordino.experiment.config import read
from sordino.experiment.flower.local_grid import run_locally
from sordino.experiment.flower_app import client_app, server_app
from sordino.experiment.population import load
from sordino.experiment.run import run
from sordino.federation.engines.flower import GridPost

DRAWN = (
    "privacy.unit='client'",
    "privacy.noise_at='coordinator'",
    "privacy.delta=0.01",
    "privacy.epsilon=30.0",
    "local={ lr = 0.5, epochs = 1 }",
    "stages=[{ clip = { norm = 1.0 } }]",
    "rounds=6",
    "simulation.noise_seed=5",
)


@pytest.fixture
def machines(heart):
    return Machines.enrolled(heart, test=True)


def test_same_plan_and_seeds_same_model_as_in_process(machines):
    """
    Bit by bit, and the same claims.
    """
    plan, population = planned(machines.file, "simulation.noise_seed=5")
    alone = run(plan, population, "", machines.root / "alone")
    with machines.members() as members:
        apart = machines.run(answers(members), "simulation.noise_seed=5")
    assert machines.told == []
    assert np.array_equal(model(alone), model(apart))
    assert apart.summary["epsilon"] == alone.summary["epsilon"]
    assert apart.summary["metrics"] == alone.summary["metrics"]


def test_flowers_own_apps_carry_the_same_letters(machines):
    """
    One ServerApp and four ClientApps, in this process: the same model as without Flower.
    """
    plan, population = planned(machines.file, "simulation.noise_seed=5")
    alone = run(plan, population, "", machines.root / "alone")
    found = []
    with machines.members() as members:
        apps = {number: client_app(member.answer) for number, member in enumerate(members.values(), 7)}
        federation = machines.federation({}, "simulation.noise_seed=5")

        def main(grid):
            over = replace(federation, post=GridPost(grid))
            found.append(run(plan, population, "", machines.root / "runs", base=machines.root, federation=over))

        run_locally(server_app(main), apps)
    assert np.array_equal(model(alone), model(found[0]))


def test_a_drawn_cohort_is_paid_for_when_silos_join(machines):
    """
    One account stands for all clients, and each silo pays the whole plan in its own. Who is not drawn hears nothing.
    """
    ways = (*DRAWN, "sampling={ poisson = { rate = 0.5 } }")
    own = Machines.enrolled(
        machines.file, unit=Unit.CLIENT, test=True, epsilon=100.0, delta=0.05, folder="clients", noise_at="coordinator"
    )
    plan, population = planned(machines.file, *ways)
    alone = run(plan, population, "", machines.root / "alone")
    with own.members() as members:
        apart = own.run(answers(members), *ways)
        spent = {name: member.silo.ledger.claims(plan.run) for name, member in members.items()}
    assert np.array_equal(model(alone), model(apart))
    assert {claim.epsilon for claims in spent.values() for claim in claims} == {apart.summary["epsilon"]}
    assert apart.summary["silos_away"] == []


def test_an_experiment_names_no_file_of_a_silos_machine(machines):
    """
    Which files are read is the silo's to say: its settings, or nothing. Test data are the coordinator's to open.
    """
    with pytest.raises(PrivacyError, match="is named by the experiment, not by the silo"):
        load(read(machines.file, ("data={ heart = { path = '/etc/passwd' } }",)), {}, "cleveland")
    named = read(machines.file, ("evaluation={ data = { heart = { path = '/etc/passwd' } } }",))
    with pytest.raises(ConfigError, match="has no column"):
        load(named)
    population = load(named, {}, "cleveland")
    assert (len(population.test), len(population.test.elsewhere)) == (0, 4)
    copied = read(machines.file, ("evaluation={ data = { heart = {} } }", "audit={ canaries=5, kind='mislabelled' }"))
    with pytest.raises(PrivacyError, match="not every machine has"):
        load(copied, {}, "cleveland")


def test_a_ledger_put_back_in_the_middle_of_drawn_cohorts_does_not_start(machines):
    """
    The silos' own ledgers have paid for all rounds and see none; what they keep of the coordinator's tells.
    """
    ways = (*DRAWN, "sampling={ poisson = { rate = 0.9 } }", "ledger='federation.db'")
    own = Machines.enrolled(
        machines.file, unit=Unit.CLIENT, test=True, epsilon=100.0, delta=0.05, folder="clients", noise_at="coordinator"
    )
    place, early = machines.root / "federation.db", {}

    def dies(answering):
        def answer(letter):
            if letter.action == "train" and letter.fields["round"] == 2 and not early:
                with sqlite3.connect(place) as live, sqlite3.connect(machines.root / "early.db") as copy:
                    live.backup(copy)
                early["taken"] = True
            if letter.action == "train" and letter.fields["round"] == 4:
                raise KeyboardInterrupt
            return answering(letter)

        return answer

    with own.members() as members, pytest.raises(KeyboardInterrupt):
        own.run(answers(members, cleveland=dies), *ways)
    for leftover in machines.root.glob("federation.db*"):
        leftover.unlink()
    (machines.root / "early.db").rename(place)
    with own.members() as members, pytest.raises(VerificationError, match=r"put back|seen"):
        own.run(answers(members), *ways)


@pytest.mark.parametrize(("noise_at", "waits"), [("silo", True), ("coordinator", False)])
def test_only_noised_updates_wait_on_a_silos_disk(machines, noise_at, waits):
    """
    Where the coordinator draws the noise, what a silo sends is raw, and is nowhere written down.
    """
    found = []

    def watched(answering):
        def answer(letter):
            sent = answering(letter)
            if letter.action == "train":
                found.append(any((own.root / own.folder / "cleveland" / "outbox").glob("*.npz")))
            return sent

        return answer

    own, ways = machines, ("simulation.noise_seed=5",)
    if noise_at == "coordinator":
        ways = (*DRAWN, "sampling={ all = {} }")
        own = Machines.enrolled(
            machines.file, unit=Unit.CLIENT, test=True, epsilon=100.0, delta=0.05, folder="clients", noise_at=noise_at
        )
    with own.members() as members:
        own.run(answers(members, cleveland=watched), *ways)
    assert found
    assert set(found) == {waits}
