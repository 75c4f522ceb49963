"""Runs whose silos send under one key of their own: the same model and price, less for the coordinator to see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import Machines, answers
from whole_runs import model, one_line, planned, sordino

from sordino.core.errors import ConfigError, EngineError
from sordino.experiment import encrypting
from sordino.experiment.compare import _settings
from sordino.experiment.flower.local_grid import run_locally
from sordino.experiment.flower_app import client_app, server_app
from sordino.experiment.plan import make_plan
from sordino.experiment.run import run
from sordino.experiment.site.sealing import KEY
from sordino.federation.engines import encrypted
from sordino.federation.engines.flower import GridPost
from sordino.federation.post import Letter
from sordino.federation.secure.homomorphic import Key, encrypt

SEALED, SEED = "homomorphic={ bits = 30 }", "simulation.noise_seed=5"
CLIENTS = (
    "privacy.unit='client'",
    "privacy.delta=0.01",
    "local={ lr = 0.5, epochs = 1 }",
    "stages=[{ clip = { norm = 1.0 } }]",
    "privacy.epsilon=30.0",
)
ROUNDED = 1e-5
"""Models in single precision: sums whose last bits differ."""


@pytest.fixture
def machines(heart):
    made = Machines.enrolled(heart, test=True)
    shared(made)
    return made


def shared(machines: Machines) -> None:
    key = Key.generate().content
    for name in machines.silos:
        (machines.root / machines.folder / name / KEY).write_bytes(key)


@pytest.mark.parametrize("ways", [(), CLIENTS])
def test_the_same_model_and_price_as_in_the_clear(heart, ways, monkeypatch):
    """
    In process: what was released is summed to 2^-30, and the plan's price and views do not change.
    """
    clear, _ = planned(heart, *ways, SEED)
    sealed, population = planned(heart, *ways, SEED, SEALED)
    assert sealed.digest != clear.digest
    assert (sealed.accounts, sealed.views, sealed.delta) == (clear.accounts, clear.views, clear.delta)
    kept = []
    monkeypatch.setattr(encrypted, "encrypt", lambda *given: kept.append(encrypt(*given)) or kept[-1])
    hidden = run(sealed, population, "", heart.parent / "sealed")
    monkeypatch.setattr(encrypting, "around", lambda plan, engine: engine)
    plain = run(sealed, population, "", heart.parent / "clear")
    assert hidden.summary["epsilon"] == plain.summary["epsilon"]
    assert np.abs(model(plain) - model(hidden)).max() < ROUNDED
    # Each update went through the key: no two ciphertexts are alike, and none is as short as its numbers.
    assert len(set(kept)) == len(kept) == sealed.experiment.count * len(sealed.clients)
    assert min(map(len, kept)) > 100 * len(model(hidden))


@pytest.mark.parametrize("ways", [(), (SEALED,)])
def test_a_plan_says_who_holds_the_key_and_what_the_coordinator_sees(heart, capsys, ways):
    """
    Beside the place of the noise, and only where sums are encrypted.
    """
    arguments = [argument for override in ways for argument in ("--set", override)]
    _, text, _ = sordino(capsys, "plan", heart, *arguments)
    assert ("all silos hold the one key" in text) == ("sum of two or more updates" in text) == bool(ways)


class Lies:
    """Opens a sum to something else."""

    def __init__(self, answering):
        self.answering = answering

    def __call__(self, letter):
        answer = self.answering(letter)
        return replace(answer, vector=answer.vector + np.float32(1)) if letter.action == "open" else answer


def test_over_letters_and_over_flowers_own_apps(machines):
    """
    The messages of both engines are the same; none holds an update. A silo that lies about the sum is outvoted.
    """
    plan, population = planned(machines.file, SEED, SEALED)
    alone = run(plan, population, "", machines.root / "alone")
    found, seen = [], []

    def watched(answering):
        def answer(letter):
            seen.append(answering(letter))
            return seen[-1]

        return answer

    with machines.members() as members:
        apart = machines.run(answers(members, hungary=watched, cleveland=Lies), SEED, SEALED)
    assert machines.told == []
    assert np.abs(model(alone) - model(apart)).max() < ROUNDED
    sent = [letter.vector for letter in seen if letter.action == "train"]
    assert len(sent) == plan.experiment.count
    assert all(vector.dtype == np.uint8 for vector in sent)
    again = Machines.enrolled(machines.file, test=True, folder="again")
    shared(again)
    with again.members() as members:
        apps = {number: client_app(member.answer) for number, member in enumerate(members.values(), 7)}
        federation = again.federation({}, SEED, SEALED)

        def main(grid):
            over = replace(federation, post=GridPost(grid))
            found.append(run(plan, population, "", machines.root / "flower", base=machines.root, federation=over))

        run_locally(server_app(main), apps)
    assert np.abs(model(alone) - model(found[0])).max() < ROUNDED


def test_a_silo_without_the_key_or_with_another_stops_the_run_before_any_charge(machines):
    """
    Nobody could open the sums.
    """
    place = machines.root / machines.folder / "hungary" / KEY
    place.write_bytes(Key.generate().content)
    with machines.members() as members, pytest.raises(ConfigError, match="under different keys"):
        machines.run(answers(members), SEED, SEALED)
    place.unlink()
    with machines.members() as members:
        with pytest.raises(EngineError, match=r"hungary.*all silos need the same one"):
            machines.run(answers(members), SEED, SEALED)
        assert all(member.silo.ledger.balance(name).committed == 0 for name, member in members.items())


class Silent:
    """Does not answer one kind of letter, in one round."""

    def __init__(self, answering, action, number):
        self.answering, self.what = answering, (action, number)

    def __call__(self, letter):
        return Letter("nothing") if (letter.action, letter.fields.get("round")) == self.what else self.answering(letter)


def test_the_others_go_on_without_a_lost_silo_but_not_one_alone(machines):
    """
    A sum of one is that one's update: it is refused, and the run goes on later with what silos kept.
    """

    def lost(*names, action="train"):
        return {name.replace("-", "_"): lambda answering: Silent(answering, action, 1) for name in names}

    with machines.members() as members:
        with pytest.raises(EngineError, match="must be 2 to 4 silos"):
            machines.run(answers(members, **lost("hungary", "switzerland", "va-long-beach")), SEED, SEALED)
        with pytest.raises(EngineError, match="opened alike by fewer than two"):
            machines.run(
                answers(members, **lost("hungary", "switzerland", "va-long-beach", action="open")), SEED, SEALED
            )
        done = machines.run(answers(members, **lost("hungary")), SEED, SEALED)
    assert done.summary["rounds_lost"] == 0
    assert any("without hungary" in line for line in machines.told)
    assert done.summary["silos_away"] == []


def test_a_silo_opens_one_sum_for_each_update_that_it_sealed(machines):
    """
    A second sum of the same round would tell their difference.
    """
    letters = []

    def kept(answering):
        def answer(letter):
            if letter.action == "open":
                letters.append(letter)
            return answering(letter)

        return answer

    silent = {
        name: (lambda answering: Silent(answering, "open", 1)) for name in ("cleveland", "switzerland", "va_long_beach")
    }
    with machines.members() as members:
        with pytest.raises(EngineError, match="opened alike"):
            machines.run(answers(members, hungary=kept, **silent), SEED, SEALED)
        refused = members["hungary"].answer(letters[-1])
    assert refused.action == "refused"
    assert "opens one for each update" in refused.text("why")


def test_rows_of_a_comparison_are_not_encrypted(heart):
    """
    One silo alone, and training without protection, stand beside the run.
    """
    plan, population = planned(heart, SEED, SEALED, "compare={ epsilon = [1.0] }")
    rows = [(label, make_plan(one, cut(population))) for label, one, cut in _settings(plan.experiment, population)]
    assert len(rows) == 6
    assert all(row.experiment.homomorphic is None for _, row in rows)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("privacy.unit='client'", "privacy.noise_at='coordinator'", *CLIENTS[2:]), "would be all that protects"),
        (("privacy.noise_at='sum'", "simulation.secure_sum=true"), "would be all that protects"),
        (("privacy.epsilon=0", "privacy={ non_private = true }"), "would be all that protects"),
        (("sampling={ round_robin = { size = 2 } }",), "needs the same silos"),
        (("local.method='zeroth_order'",), "sums whole updates"),
        (("homomorphic.bits=50",), "must lie in 16"),
    ],
)
def test_what_would_rest_on_it_is_refused_at_once(heart, capsys, overrides, said):
    """
    One line, exit code 2.
    """
    arguments = [argument for override in (SEALED, *overrides) for argument in ("--set", override)]
    code, _, error = sordino(capsys, "plan", heart, *arguments)
    assert code == 2
    assert said in one_line(error)
