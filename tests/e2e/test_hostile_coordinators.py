"""A coordinator that has its key, its ledger and every letter, and wants more of a silo than was charged."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from machines import Machines, answers
from whole_runs import planned

from sordino.core import tables
from sordino.core.errors import VerificationError
from sordino.core.types import Unit
from sordino.experiment import declared
from sordino.experiment.approval import terms_of
from sordino.experiment.config import read
from sordino.experiment.site import member as site
from sordino.experiment.site.preparing import CENSUS_WANTED
from sordino.federation.post import Letter
from sordino.ledger import Account, Ledger
from sordino.ledger.approval import Approval

SEED = "simulation.noise_seed=5"
DRAWN = """
name = "drawn"
rounds = 2
[data.table]
path = "rows.csv"
label = "ill"
client = "hospital"
features = ["a"]
ranges = { a = [0, 1] }
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
unit = "client"
noise_at = "coordinator"
noise_multiplier = 4.0
delta = 0.01
[sampling.poisson]
rate = 0.5
[local]
lr = 0.5
epochs = 1
[[stages]]
clip = { norm = 1.0 }
[strategy.fedavg]
"""
SUMMED = ("privacy.noise_at='sum'", "privacy.mechanism='skellam'", "secure_sum={ bits = 32 }", SEED)
APART = """
name = "apart"
[data.table]
label = "ill"
features = ["a"]
ranges = { a = [0, 1] }
classes = ["0", "1"]
[model.logistic]
[privacy]
noise_multiplier = 2.0
delta = 1e-5
silos_per_person = 1
[local]
clip = 0.5
lr = 0.5
[strategy.fedavg]
[silos.east]
records = 44
[silos.north]
records = 50
"""


@dataclass
class Hostile:
    """Letters to one silo, and what it answers."""

    machines: Machines
    ledger: Ledger
    silo: site.Member
    ways: tuple[str, ...]
    fence: int = 1

    def join(self, approval: Approval, *overrides: str, **fields: object) -> Letter:
        experiment = read(self.machines.file, (*self.ways, *overrides))
        told = {
            "approval": approval.text,
            "experiment": json.dumps(tables.plain(experiment)),
            "fence": self.fence,
            **self.checkpoint(),
        }
        return self.silo.answer(Letter("join", told | fields))

    def ask(self, action: str, plan: str, vector: object = None, **fields: object) -> Letter:
        told = {"plan": plan, "fence": self.fence, **self.checkpoint(), **fields}
        return self.silo.answer(Letter(action, told, vector))

    def checkpoint(self) -> dict[str, object]:
        growth = self.ledger.growth(self.silo.silo.witness.size(self.machines.key.public.name))
        return {"checkpoint": growth.note, "since": growth.since, "proof": json.dumps(growth.proof)}


@pytest.fixture
def drawn(tmp_path, unwatched):
    """Four hospitals of which each round draws some: each pays for all rounds when it joins."""
    del unwatched
    rows = "".join(f"{i % 7 / 7:.3f},{i % 2},{'nesw'[i % 4]}\n" for i in range(40))
    (tmp_path / "rows.csv").write_text("a,ill,hospital\n" + rows)
    (tmp_path / "drawn.toml").write_text(DRAWN.replace("rows.csv", str(tmp_path / "rows.csv")))
    data = {"path": str(tmp_path / "rows.csv")}
    terms = {"epsilon": 100.0, "delta": 0.05, "test": True}
    return Machines.enrolled(
        tmp_path / "drawn.toml", tuple("nesw"), unit=Unit.CLIENT, noise_at="coordinator", data=data, **terms
    )


@contextmanager
def against(machines, *ways):
    first = machines.silos[0]
    with machines.members() as members, Ledger(machines.root / "own.db", key=machines.key) as ledger:
        account = members[first].silo.ledger.accounts()[0]
        ledger.open_accounts([Account("people", account.unit, account.adjacency, 9.0, 1e-3, test=True)])
        yield Hostile(machines, ledger, members[first], ways)


def test_terms_that_name_an_approved_plan_are_compared_every_time(drawn):
    """
    The silo has prepared the plan, and is shown cheap terms of the same digest: nothing is trained for them.
    """
    plan, _ = planned(drawn.file, SEED)
    terms = terms_of(plan)
    cheap = {drawn.silos[0]: {next(iter(terms.accounts["clients"])): 1}}
    with against(drawn, SEED) as hostile:
        assert hostile.join(Approval(terms), checkpoint="none").action == "refused"  # after the plan was prepared
        forged = replace(terms, shared=None, clients=(), accounts=cheap)
        assert hostile.join(Approval(forged)).action == "refused"
        model = np.zeros(plan.parameters, np.float32)
        assert hostile.ask("train", plan.digest, model, round=0, memory="{}").action == "refused"
        assert hostile.silo.silo.ledger.charges(plan.run) == []
        assert "grant" in hostile.join(Approval(terms)).fields
        assert hostile.ask("train", plan.digest, model, round=0, memory="{}").action == "train"


def test_no_round_is_trained_before_the_whole_plan_is_paid(drawn):
    """
    The silo freezes its account after the plan was admitted: it joins nothing, and trains nothing.
    """
    plan, _ = planned(drawn.file, SEED)
    with against(drawn, SEED) as hostile:
        books = hostile.silo.silo.ledger
        terms = terms_of(plan)
        asked = terms.events([drawn.silos[0]])
        books.admit(plan.run, plan.digest, asked, plan.delta, noise_at="coordinator", rounds=terms.rounds)
        books.freeze(drawn.silos[0])
        assert hostile.join(Approval(terms)).action == "refused"
        model = np.zeros(plan.parameters, np.float32)
        assert hostile.ask("train", plan.digest, model, round=0, memory="{}").action == "refused"


@pytest.mark.parametrize("number", [-1, 2, 10**6])
def test_a_plan_has_no_other_rounds(heart, number):
    machines = Machines.enrolled(heart, test=True, noise_at="sum")
    ways = (*SUMMED, "rounds=2")
    plan, _ = planned(heart, *ways)
    with against(machines, *ways) as hostile:
        assert hostile.join(Approval(terms_of(plan))).action == "join"
        asked = {"stage": "advertise", "request": b""}
        assert "is not one of the plan's 2" in hostile.ask("sum", plan.digest, round=number, **asked).fields["why"]
        spent = hostile.ask("forfeit", plan.digest, rounds=json.dumps([number]))
        assert "is not one of the plan's 2" in spent.fields["why"]
        assert hostile.silo.silo.ledger.charges(plan.run) == []
        assert hostile.ask("sum", plan.digest, round=0, **asked).action == "sum"


def test_an_approved_plan_opens_no_other_questions(tmp_path, monkeypatch):
    """
    Beside the terms of an approved plan comes another experiment, with a guess at a number of records. What the silo
    says does not depend on its records, and it does not look at them.
    """
    draw = np.random.default_rng(0).random(60)
    (tmp_path / "own.csv").write_text("a,ill\n" + "".join(f"{a:.4f},{int(a > 0.5)}\n" for a in draw))
    (tmp_path / "apart.toml").write_text(APART)
    machines = Machines.enrolled(
        tmp_path / "apart.toml", ("east", "north"), test=True, data={"path": str(tmp_path / "own.csv")}
    )
    plan, _ = planned(machines.file, SEED)
    looked = []
    own = declared._own
    monkeypatch.setattr(declared, "_own", lambda *given: looked.append(given) or own(*given))
    with against(machines, SEED) as hostile:
        approval = Approval(terms_of(plan))
        said = {
            hostile.join(approval, f"silos.east.records={guess}", "evaluation.split=1").fields["why"]
            for guess in range(40, 56)
        }
        assert len(said) == 1
        assert "is not what this experiment comes to here" in said.pop()
        other = hostile.join(approval, "data.table.features=['ill2']")
        base = hostile.join(approval, "model={ causal_lm = { base = '/etc' } }")
        assert all("is not what this experiment comes to here" in answer.fields["why"] for answer in (other, base))
        assert looked == []
        hostile.join(approval)
        assert len(looked) == 1


def test_a_wrong_number_is_answered_once(tmp_path):
    """
    Where a silo asks for no officer's signature, each plan is an approved one. The first wrong guess at its number of
    records is the last answer until its own people have counted.
    """
    draw = np.random.default_rng(0).random(60)
    (tmp_path / "own.csv").write_text("a,ill\n" + "".join(f"{a:.4f},{int(a > 0.5)}\n" for a in draw))
    (tmp_path / "apart.toml").write_text(APART)
    machines = Machines.enrolled(
        tmp_path / "apart.toml", ("east", "north"), test=True, data={"path": str(tmp_path / "own.csv")}
    )
    right = read(machines.file, (SEED,)).silos["east"].records
    with against(machines, SEED) as hostile:
        said = []
        for guess in (right + 1, right, right + 2):
            ways = (SEED, f"silos.east.records={guess}")
            plan, _ = planned(machines.file, *ways)
            said.append(hostile.join(Approval(terms_of(plan)), f"silos.east.records={guess}").fields["why"])
        assert "another number of records" in said[0]
        assert said[1] == said[2]
        assert "waits for its own people" in said[1]
        (hostile.silo.folder / CENSUS_WANTED).unlink()
        plan, _ = planned(machines.file, SEED)
        assert "waits" not in str(hostile.join(Approval(terms_of(plan))).fields)


def test_memory_names_no_other_stages(heart):
    """
    What a setting has learnt may change its stages' numbers, not which stages there are.
    """
    ways = (
        "privacy.unit='client'",
        "privacy.noise_at='coordinator'",
        "privacy.delta=0.01",
        "privacy.epsilon=30.0",
        "local={ lr = 0.5, epochs = 1 }",
        "stages=[{ clip = { norm = 1.0 } }]",
        SEED,
    )
    machines = Machines.enrolled(
        heart, unit=Unit.CLIENT, test=True, epsilon=100.0, delta=0.05, noise_at="coordinator", folder="clients"
    )
    plan, _ = planned(heart, *ways)
    with machines.members() as members:
        answering = {name: member.answer for name, member in members.items()}

        def other(letter):
            if letter.action == "train":
                fields = {**letter.fields, "memory": json.dumps({"stages": [{"weight": {"cap": 1000}}]})}
                letter = replace(letter, fields=fields)
            return answering["hungary"](letter)

        machines.run({**answering, "hungary": other}, *ways)
        assert members["hungary"].silo.ledger.claims(plan.run)[0].events  # charged as absent, nothing was trained
    assert any("are not the plan's stages" in line for line in machines.told)


def test_what_goes_wrong_is_logged_without_its_text(heart):
    """
    A library's error may quote a record: the silo's log says what it was and where.
    """
    machines = Machines.enrolled(heart, test=True)
    with machines.members() as members:
        member, lines = members["hungary"], []
        member._say = lines.append
        member._hello = lambda letter: int("Doe, John, positive")
        assert member.answer(Letter("hello")).action == "refused"
    assert lines == [lines[0]]
    assert lines[0].startswith("hello: ValueError in test_hostile_coordinators.py, line ")
    assert "Doe" not in lines[0]


def test_a_silos_ledger_that_was_put_back_draws_nothing_again(heart):
    """
    It knows less than the file beside it, and than the coordinator: either is enough.
    """
    machines = Machines.enrolled(heart, test=True)
    folder, plan = machines.root / "silos" / "hungary", planned(heart, SEED)[0]
    kept, crash = (folder / "ledger.db").read_bytes(), {"then": 2}

    def dies(answering):
        def answer(letter):
            if letter.action == "train" and letter.fields["round"] == crash["then"]:
                raise KeyboardInterrupt
            return answering(letter)

        return answer

    with machines.members() as members, pytest.raises(KeyboardInterrupt):
        machines.run(answers(members, cleveland=dies), SEED)
    for leftover in folder.glob("ledger.db*"):
        leftover.unlink()
    (folder / "ledger.db").write_bytes(kept)
    crash["then"] = -1
    with machines.members() as members:
        silo = members["hungary"]
        with pytest.raises(VerificationError, match=r"is not in its ledger.*put back"):
            silo._handed.require(plan.run, silo.silo)
        with pytest.raises(VerificationError, match=r"a charge that its ledger does not know.*put back"):
            machines.run(answers(members), SEED)
        assert silo.silo.ledger.charges(plan.run) == []
