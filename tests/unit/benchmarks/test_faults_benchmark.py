"""The kill study sees what it looks for: each fault that is planted in what was sent, or in a ledger, is named."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from sordino.core.types import Adjacency, Unit
from sordino.experiment.config import read
from sordino.experiment.population import load
from sordino.experiment.remote.federation import Federation
from sordino.experiment.run import run
from sordino.experiment.site.member import Member
from sordino.federation.engines import flower
from sordino.federation.post import Letter, Within
from sordino.ledger import Account, Ledger
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import open_silo

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SITES = ("cleveland", "hungary", "switzerland", "va-long-beach")
SEED = "seed=3"


@pytest.fixture(scope="module", autouse=True)
def found():
    """Its own folder is on the path, as for any script."""
    paths = [str(BENCHMARKS), str(BENCHMARKS / "witness")]
    sys.path[:0] = paths
    yield
    for path in paths:
        sys.path.remove(path)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study's folder after a run of two rounds in which hungary was silent once, with what its witnesses wrote."""
    from faults import EXPERIMENT
    from faults_checks import Places

    home = tmp_path_factory.mktemp("study")
    (home / "kills.toml").write_text(EXPERIMENT.replace("rounds = 8", "rounds = 2"))
    (home / "witness").mkdir()
    (home / "fed/coordinator").mkdir(parents=True)
    key = SigningKey.generate("coordinator")
    key.save(home / "fed/coordinator/coordinator.pem")
    places, answering, keys = Places(home, SITES), {}, {}
    silos = []
    for name in SITES:
        account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 1000.0, 1e-2, test=True)
        keys[name] = enrol(places.site(name), account, coordinators=[key.public])
        silos.append(open_silo(places.site(name)))
        answering[name] = Member(silos[-1].__enter__(), places.site(name)).answer
    whole = answering["hungary"]
    answering["hungary"] = lambda letter: Letter("silent") if in_round(letter, 1) else whole(letter)
    plan, experiment = places.plan(SEED), read(places.file, (SEED,))
    told = Federation(experiment=experiment, post=Within(answering), key=key, silos=keys, wait=0.0)
    run(plan, load(experiment), "", home / "runs", base=home, federation=told)
    for silo in silos:
        silo.__exit__(None, None, None)
    write(places, plan)
    return places


def in_round(letter, number):
    return letter.action == "train" and letter.number("round") == number


def write(places, plan):
    """What witnesses of real processes would have written of that run."""
    from faults_checks import _published

    with Ledger(places.own, read_only=True) as ledger:
        consents = {charge.txid: ledger.consents(charge.txid) for charge in ledger.charges(plan.run)}
    with (places.home / "witness/all.jsonl").open("w") as file:
        for name in SITES:
            for txid, digest in _published(places.site(name) / "ledger.db").items():
                number = int(txid.rpartition("/")[2])
                line = {"plan": plan.digest, "round": number, "at": float(number), "sha256": digest}
                for by, way in ((name, "sent"), ("coordinator", "got")):
                    file.write(json.dumps({**line, "by": by, "way": way, "grant": consents[txid][name]}) + "\n")
        for number in range(2):
            model = {"by": "coordinator", "way": "sent", "sha256": f"m{number}", "plan": plan.digest}
            file.write(json.dumps({**model, "round": number, "at": float(number)}) + "\n")


@pytest.fixture
def planted(study, tmp_path):
    """A copy in which things may be broken."""
    shutil.copytree(study.home, tmp_path / "study")
    return replace(study, home=tmp_path / "study")


def test_a_sound_study_has_no_problems(study):
    from faults_checks import agreement, arrived, ledgers, publications

    digest = study.plan(SEED).digest
    assert [*ledgers(study), *agreement(study, set()), *publications(study, {digest})] == []
    assert arrived(study, digest) == {0: set(SITES), 1: set(SITES) - {"hungary"}}


def test_the_same_plan_with_the_same_silence_gives_the_same_model(study):
    from faults_checks import Undisturbed, arrived

    plan = study.plan(SEED)
    theirs = (study.home / "runs" / f"kills-{plan.digest[:8]}" / "model.safetensors").read_bytes()
    same = Undisturbed(study, 1000.0, 1e-2, arrived(study, plan.digest))
    assert same.model((SEED,))[0] == theirs
    assert replace(same, present={}).model((SEED,))[0] != theirs


FAULTS = {
    "with bytes that it had not committed": lambda line: {**line, "sha256": "0" * 64},
    "the model of round 0 has 2 versions": lambda line: {
        **{name: value for name, value in line.items() if name != "grant"},
        "by": "coordinator",
        "way": "sent",
        "sha256": "other",
        "round": 0,
    },
    "has 2 versions": lambda line: {**line, "sha256": "1" * 64},
}


@pytest.mark.parametrize("words", FAULTS)
def test_what_was_sent_otherwise_is_found(planted, words):
    from faults_checks import publications

    first = json.loads((planted.home / "witness/all.jsonl").read_text().splitlines()[0])
    (planted.home / "witness/other.jsonl").write_text(json.dumps(FAULTS[words](first)) + "\n")
    assert any(words in problem for problem in publications(planted, set()))


def test_a_silo_that_was_away_is_found_unless_it_is_said(planted):
    """
    Its ledger is that of another day: it knows nothing of the run.
    """
    from faults_checks import agreement, publications

    name, run_ = "cleveland", planted.plan(SEED).run
    shutil.rmtree(planted.site(name))
    account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 1000.0, 1e-2, test=True)
    enrol(planted.site(name), account, coordinators=[planted.key().public])
    problems = list(agreement(planted, set()))
    assert f"{name} and the coordinator claim different things of {run_}" in problems
    assert sum(problem.startswith(f"{name} does not know") for problem in problems) == 2
    assert list(agreement(planted, {(run_, name)})) == []
    assert len([problem for problem in publications(planted, set()) if "not committed" in problem]) == 4


def test_a_witness_writes_before_a_letter_leaves_and_nothing_of_what_it_says(tmp_path, monkeypatch):
    from faults_checks import crossed
    from sitecustomize import watch

    for name in ("letter_of", "message_of", "reply_of"):
        monkeypatch.setattr(flower, name, getattr(flower, name))

    def lost(*_):
        raise OSError

    monkeypatch.setattr(flower, "message_of", lost)
    watch("coordinator", tmp_path)
    with pytest.raises(OSError, match=r"^$"):
        flower.message_of(Letter("train", {"plan": "p", "round": 2}, np.ones(3, np.float32)), "query", 1, 1.0)
    (line,) = crossed(tmp_path)
    assert (line.by, line.way, line.plan, line.round, line.grant) == ("coordinator", "sent", "p", 2, "")
