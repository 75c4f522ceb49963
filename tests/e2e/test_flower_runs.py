"""A whole run over real processes on loopback: the figures of one process, nothing private in logs, and a kill."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from deployed import command, folders, up
from machines import SILOS, Machines
from whole_runs import planned, ran

pytest.importorskip("flwr")

from sordino.experiment.deploy import local
from sordino.experiment.population import load
from sordino.ledger.keys import SigningKey

pytestmark = pytest.mark.flower
PUBLIC = re.compile(
    r"site [a-z-]+ is ready|loaded tiny-\w+: model and data|joined tiny-\w+: epsilon [\d.]+ at delta [\de.-]+"
    r"|left tiny-\w+|round \d+ of \d+: charged and handed over"
    r"|train: silo '[a-z-]+': plan='\w+' fence=\d+ is not joined by this coordinator; join"
)
"""All that a trainer says."""


HEART = """
name = "tiny"
rounds = 3
ledger = "federation.db"
[budget]
epsilon = 100.0
delta = 1e-3
[data.heart]
[model.logistic]
[privacy]
epsilon = 2.0
delta = 1e-5
silos_per_person = 1
[local]
clip = 0.3
noise_walk = 0.9
[strategy.fedavg]
"""


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    """Four sites and their coordinator, up; afterwards down, and no process left."""
    home = tmp_path_factory.mktemp("heart")
    with up(folders(home, SILOS, "epsilon = 8\ndelta = 1e-4\n"), least=10) as running:  # the keeper, too
        yield running


@pytest.fixture(scope="module")
def shared(fed):
    """The experiment; its ledger lasts as long as the federation, or no site would take part a second time."""
    file = fed.parent / "heart.toml"
    file.write_text(HEART)
    return file


def logs(fed) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (fed / "logs").glob("*.log")}


def hold(fed, file, *overrides):
    """All five ledgers hold, and tell of the same run."""
    machines = Machines(file, SigningKey.load(fed / "coordinator/coordinator.pem"), folder=str(fed / "sites"))
    machines.hold(planned(file, *overrides)[0].run, {})
    return machines.states(planned(file, *overrides)[0].run)


def test_the_figures_of_one_process_and_nothing_private_in_logs(fed, shared):
    done = subprocess.run(command(fed, shared), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    alone = ran(shared, f"ledger='{shared.parent / 'alone.db'}'").summary
    assert summary["epsilon"] == alone["epsilon"]
    assert (summary["silos_away"], summary["metrics"]["auc"] > 0.6) == ([], True)
    assert (Path(summary["run_folder"]) / "model.safetensors").exists()
    assert hold(fed, shared) == dict.fromkeys(["", *SILOS], rounds(3))
    said = logs(fed)
    for name in SILOS:
        lines = said[f"{name}-trainer"].splitlines()
        assert [line for line in lines if not PUBLIC.fullmatch(line)] == []
        assert sum(line.startswith("loaded ") for line in lines) == 1
        assert (fed / "sites" / name / "runs" / planned(shared)[0].run / "model.safetensors").exists()
    records = load(planned(shared)[0].experiment).train.examples.x
    values = {text for row in records.tolist() for text in (f"{value:.5g}" for value in row) if len(text) > 5}
    assert len(values) > 20
    found = {value for value in values for text in (*said.values(), done.stderr) if value in text}
    assert found == set()


def rounds(count):
    return [f"{number} committed" for number in range(count)]


def test_a_trainer_that_is_killed_and_a_command_that_is_killed(fed, shared):
    """
    One site's trainer dies by SIGKILL and starts again by itself, later the command dies; given again, it ends the run.
    """
    terms = ("seed=2", "rounds=5")
    with subprocess.Popen(command(fed, shared, *terms), stdout=subprocess.DEVNULL) as first:
        until(first, fed, "hungary-trainer", "round 1 of 5")
        local.kill(fed, "hungary trainer")
        until(first, fed, "cleveland-trainer", "round 3 of 5")
        first.kill()
    done = subprocess.run(command(fed, shared, *terms), capture_output=True, text=True, timeout=420, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["silos_away"] == []
    states = hold(fed, shared, *terms)
    hungary = states.pop("hungary")
    assert set(map(tuple, states.values())) == {tuple(rounds(5))}
    assert [line.partition(" ")[0] for line in hungary] == [str(number) for number in range(5)]
    assert sum("forfeited" in line for line in hungary) <= 2  # while it was down


@pytest.mark.parametrize("arrivals", ["schedule", "first_come"])
def test_rounds_that_do_not_wait(fed, shared, arrivals):
    """
    Letters that are answered in their own time, through Flower's server: all sites' ledgers agree in the end.
    """
    terms = (
        "rounds=4",
        "privacy.epsilon=1.0",
        f"sampling={{ buffered={{ size=2, per_client=4, concurrency=4, arrivals='{arrivals}' }} }}",
    )
    done = subprocess.run(command(fed, shared, *terms), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["silos_away"], summary["rounds_lost"]) == ([], 0)
    own = hold(fed, shared, *terms)[""]
    committed = sum("committed" in line for line in own)
    assert committed == 4 if arrivals == "schedule" else committed >= 2 * 4


def until(process, fed, log, words):
    while words not in logs(fed).get(log, ""):
        assert process.poll() is None
        time.sleep(0.1)
