"""Runs whose noise is drawn in shares and whose sums are masked: price, noise, who may be lost, who is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import Machines, answers
from whole_runs import model, one_line, planned, ran, sordino

from sordino.core.errors import EngineError
from sordino.core.types import Unit
from sordino.experiment import summing
from sordino.experiment.build import build
from sordino.experiment.flower.local_grid import run_locally
from sordino.experiment.flower_app import client_app, server_app
from sordino.experiment.run import run
from sordino.experiment.settings import setting_of
from sordino.experiment.settings.shared_sum import SharedSum
from sordino.federation.engines.flower import GridPost
from sordino.federation.engines.inprocess import InProcess
from sordino.federation.post import Letter
from sordino.ledger import Ledger, verify
from sordino.ledger.rehearsal import rehearsal

RECORDS = (
    "privacy.noise_at='sum'",
    "privacy.mechanism='skellam'",
    "secure_sum={ bits = 32, minimum = 3, colluding = 0.25 }",
)
CLIENTS = (
    "privacy.unit='client'",
    "privacy.noise_at='sum'",
    "privacy.mechanism='skellam'",
    "privacy.delta=0.01",
    "secure_sum={ bits = 24, minimum = 3 }",
    "local={ lr = 0.5, epochs = 1 }",
    "stages=[{ clip = { norm = 1.0 } }]",
    "privacy.epsilon=30.0",
)
SEED = "simulation.noise_seed=5"


@pytest.fixture
def machines(heart):
    return Machines.enrolled(heart, test=True, noise_at="sum")


@pytest.mark.parametrize("ways", [RECORDS, (*RECORDS, "privacy.mechanism='discrete_gaussian'"), CLIENTS])
def test_in_process_and_over_letters_give_the_same_model(machines, ways):
    """
    The masks differ, the sums do not: bit by bit, at the same price.
    """
    if "privacy.unit='client'" in ways:
        machines = Machines.enrolled(
            machines.file, unit=Unit.CLIENT, test=True, epsilon=100.0, delta=0.05, folder="clients", noise_at="sum"
        )
    plan, population = planned(machines.file, *ways, SEED)
    alone = run(plan, population, "", machines.root / "alone")
    with machines.members() as members:
        apart = machines.run(answers(members), *ways, SEED)
    assert machines.told == []
    assert np.array_equal(model(alone), model(apart))
    assert alone.summary["epsilon"] == apart.summary["epsilon"] == plan.epsilon


def test_the_sum_is_of_the_planned_noise_when_all_are_there(heart):
    """
    Without data, what is opened is noise alone: at least that of the plan, by the surplus of those who are not lost.
    """
    plan, population = planned(heart, *RECORDS, "privacy.epsilon=8.0")
    setup = build(plan, population).setup
    setting = setting_of(setup)
    assert isinstance(setting, SharedSum)
    own = replace(setup, population=population)
    z = plan.accounts[0].noise_multiplier
    encoding = summing.encoding(own.experiment, z)
    drawn = []
    for number in range(60):
        lines = setting.lines(np.arange(4))
        charge = rehearsal(f"r{number}", lines)
        parts = [
            setting_of(setup).share(client, np.zeros(setup.layout.size, np.float32), _round(number, plan), charge)
            for client in range(4)
        ]
        words = np.zeros(encoding.length, np.uint64)
        for part in parts:
            part.masked(lambda w, words=words: np.add(words, w, out=words))
        opened = encoding.at(f"{plan.run}/{number}").decode(words & np.uint64(2**encoding.bits - 1))
        drawn.append(opened)
    spread = np.std(np.array(drawn), axis=0)
    planned_std = z * encoding.bound()[0] / encoding.scale
    expected = planned_std * np.sqrt(4 / summing.honest(own.experiment))
    assert np.mean(spread) == pytest.approx(expected, rel=0.05)
    assert np.mean(spread) > planned_std  # a twin with noise for all instead of the honest would fail here


def _round(number, plan):
    from sordino.core.types import RoundPlan

    return RoundPlan(number, plan.experiment.count, (), 4.0)


def test_the_plan_tells_sums_from_collusion(heart):
    """
    Whoever knows shares has less noise before them; the charge is for as many as are feared.
    """
    plan, _ = planned(heart, *RECORDS)
    views = plan.views
    together = views["coordinator and 1 of 4 silos together"]
    assert views["whoever sees only sums"] < together == plan.worst.epsilon
    assert views["coordinator, if secure summation fails"] == np.inf
    trusting, _ = planned(heart, *RECORDS[:2], "secure_sum={ bits = 32, minimum = 3 }")
    assert trusting.worst.noise_multiplier == pytest.approx(plan.worst.noise_multiplier, rel=1e-3)
    assert summing.honest(plan.experiment) == summing.honest(trusting.experiment) - 1


@pytest.mark.parametrize("mechanism", ["skellam", "discrete_gaussian"])
def test_whoever_drew_a_share_of_the_noise_sees_through_it(heart, mechanism):
    """
    Without collusion all four shares are charged; a silo knows one of them. With one share feared, it is in the charge.
    """
    ways = (*RECORDS[:2], f"privacy.mechanism='{mechanism}'")
    all_four, _ = planned(heart, *ways, "secure_sum={ bits = 32 }")
    views = all_four.views
    assert views["whoever sees only sums"] == pytest.approx(all_four.worst.epsilon)
    # With less noise in the same proportion: that of three shares out of four.
    noise = all_four.worst.noise_multiplier * np.sqrt(3 / 4)
    louder, _ = planned(
        heart, *ways, "secure_sum={ bits = 32 }", "privacy.epsilon=9.0", f"privacy.noise_multiplier={noise}"
    )
    assert views["another silo"] == pytest.approx(louder.worst.epsilon, rel=0.01)
    assert views["another silo"] > 1.1 * all_four.worst.epsilon
    feared, _ = planned(heart, *ways, "secure_sum={ bits = 32, colluding = 0.25 }")
    assert feared.views["another silo"] == pytest.approx(feared.worst.epsilon)


class Silent:
    """Answers nothing from some stage of some round on."""

    def __init__(self, answering, stage, number, until=10**9):
        self.answering, self.stage, self.number, self.until, self.gone = answering, stage, number, until, False

    def __call__(self, letter):
        if letter.action == "sum" and letter.fields["round"] >= self.number:
            self.gone = self.gone or letter.fields["stage"] == self.stage
            if self.gone and letter.fields["round"] <= self.until:
                return Letter("nothing")
        return self.answering(letter)


@pytest.mark.parametrize(
    ("stage", "number"), [("advertise", 0), ("share", 0), ("mask", 0), ("reveal", 0), ("mask", 1), ("reveal", 1)]
)
def test_a_silo_may_be_lost_in_any_stage(machines, stage, number):
    """
    Three of four are enough; the fourth comes back for the next round, and the ledgers agree at the end. Later rounds
    have begun beside the one before.
    """
    with machines.members() as members:
        wrapped = {"hungary": lambda answering: Silent(answering, stage, number, until=number)}
        done = machines.run(answers(members, **wrapped), *RECORDS, SEED)
    assert done.summary["silos_away"] == []
    assert any("without hungary" in line for line in machines.told) == (stage != "reveal")
    for place in [machines.root / "silos" / name / "ledger.db" for name in machines.silos]:
        with Ledger(place, read_only=True) as ledger:
            assert len(ledger.charges(planned(machines.file, *RECORDS, SEED)[0].run)) == 3
            assert verify(place).problems == ()


class Heard:
    """Keeps the round and stage of each letter of a sum, and does something after one of them."""

    def __init__(self, answering, after=None, then=lambda: None):
        self.answering, self.after, self.then, self.letters = answering, after, then, []

    def __call__(self, letter):
        answer = self.answering(letter)
        if letter.action == "sum":
            self.letters.append((letter.fields["round"], letter.fields["stage"]))
            if self.letters[-1] == self.after:
                self.then()
        return answer


FIRST, LATER = ("advertise", "share", "mask", "reveal"), ("mask", "reveal")


def test_two_letters_a_round_and_silo_once_the_first_is_over(machines):
    with machines.members() as members:
        asked = {name: Heard(answering) for name, answering in answers(members).items()}
        machines.run(asked, *RECORDS, SEED)
    expected = [(0, stage) for stage in FIRST] + [(number, stage) for number in (1, 2) for stage in LATER]
    assert all(one.letters == expected for one in asked.values())


def test_a_silo_that_forgot_what_it_began_loses_one_round_and_everybody_begins_anew(machines):
    """
    Its process was killed between two rounds, and nobody noticed: the keys that the others masked with are gone.
    """
    with machines.members() as members:
        asked = {}

        def forget():
            members["hungary"]._sums.forget()

        def heard(name):
            def kept(answering):
                asked[name] = Heard(answering, (0, "reveal") if name == "hungary" else None, forget)
                return asked[name]

            return kept

        done = machines.run(answers(members, **{name: heard(name) for name in members}), *RECORDS, SEED)
    assert done.summary["silos_away"] == []
    (line,) = [line for line in machines.told if "without" in line]
    assert "round 2: without hungary" in line
    assert "is not the sum that it began" in line
    assert [stage for number, stage in asked["cleveland"].letters if number == 1] == ["mask", "consent", "reveal"]
    assert [stage for number, stage in asked["hungary"].letters if number == 1] == ["mask"]
    assert all([stage for number, stage in one.letters if number == 2] == [*FIRST] for one in asked.values())


def test_a_silo_does_not_begin_beside_what_was_charged(machines):
    """
    A coordinator that had a round, and asks for its keys again beside another one, gets the other one's answer only.
    """
    with machines.members() as members:
        kept = []

        def again(answering):
            def answer(letter):
                if letter.action == "sum" and letter.fields["round"] == 1 and letter.fields["stage"] == "mask":
                    back = replace(letter, fields={**letter.fields, "round": 0, "stage": "advertise"})
                    assert answering(back).action == "refused"
                    kept.append(members["hungary"]._sums.beside(*again_of(members["hungary"], 0, letter)))
                return answering(letter)

            return answer

        machines.run(answers(members, hungary=again), *RECORDS, SEED)
    assert kept == [{}]


def again_of(member, number, letter):
    (joined,) = member._joined.values()
    return joined, number, "mask", replace(letter, fields={**letter.fields, "beside": b""})


def test_too_few_silos_open_nothing(machines):
    """
    Two of four: the run stops, and a later start goes on with the round given up.
    """
    with machines.members() as members:
        wrapped = {
            name: (lambda answering: Silent(answering, "mask", 1, until=1)) for name in ("hungary", "switzerland")
        }
        with pytest.raises(EngineError, match="fewer than the threshold of 3"):
            machines.run(answers(members, **wrapped), *RECORDS, SEED)
        done = machines.run(answers(members), *RECORDS, SEED)
    assert done.summary["rounds_lost"] == 1


def test_a_silo_masks_with_nobody_it_does_not_know(machines):
    """
    Keys of the others come from the silo's own folder: a coordinator cannot bring its own.
    """
    with machines.members() as members:
        members["hungary"]._sums._peers.pop("cleveland")
        with pytest.raises(EngineError, match=r"fewer than the threshold.*masks with nobody it does not know"):
            machines.run(answers(members), *RECORDS[:2], "secure_sum={ bits = 32 }", SEED)


def test_over_flowers_own_apps(machines):
    """
    The stages go through Flower's messages unchanged.
    """
    plan, population = planned(machines.file, *RECORDS, SEED)
    alone = run(plan, population, "", machines.root / "alone")
    found = []
    with machines.members() as members:
        apps = {number: client_app(member.answer) for number, member in enumerate(members.values(), 7)}
        federation = machines.federation({}, *RECORDS, SEED)

        def main(grid):
            over = replace(federation, post=GridPost(grid))
            found.append(run(plan, population, "", machines.root / "runs", base=machines.root, federation=over))

        run_locally(server_app(main), apps)
    assert np.array_equal(model(alone), model(found[0]))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("privacy.mechanism='skellam'",), "goes with [secure_sum]"),
        ((*RECORDS, "privacy.mechanism='gaussian'"), "goes with [secure_sum]"),
        ((*RECORDS, "privacy.noise_at='silo'"), "adds its noise at the sum"),
        ((*RECORDS, "local.batch=0.5"), "has no price with noise in whole numbers"),
        ((*RECORDS, "secure_sum.minimum=1"), "leave nobody whose noise is secret"),
        ((*RECORDS, "secure_sum={ bits = 32, minimum = 2 }"), "must be more than half of 4 members"),
        ((*RECORDS, "secure_sum={ bits = 32, minimum = 3, colluding = 0.5 }"), "must lie between 0 and 1"),
        ((*RECORDS, "secure_sum.bits=8"), "are too few for the noise"),
        ((*RECORDS, "simulation.secure_sum=true"), "drop one"),
    ],
)
def test_what_a_secure_sum_cannot_bear_is_refused_at_once(heart, capsys, overrides, said):
    """
    One line, exit code 2.
    """
    arguments = [argument for override in overrides for argument in ("--set", override)]
    code, _, error = sordino(capsys, "plan", heart, *arguments)
    assert code == 2
    assert said in one_line(error)


def test_a_real_run_is_no_test(heart):
    """
    Unlike the played sum: the claim holds if the secure summation does.
    """
    result = ran(heart, *RECORDS)
    assert result.summary["test"] is False
    assert result.summary["epsilon"] <= 2.0
    assert all(claim.noise_at == "sum" for claim in result.claims)


def test_engines_without_secure_sums_say_so(heart):
    """
    An engine that only carries updates one by one opens no sum.
    """
    from sordino.federation.engines import Engine

    class Plain(InProcess):
        summed = Engine.summed

    plan, population = planned(heart, *RECORDS)
    setup = replace(build(plan, population).setup, engine=Plain())
    setting = setting_of(setup)
    charge = rehearsal("r", setting.lines(np.arange(4)))
    with pytest.raises(EngineError, match="has no secure summation"):
        setting.release(_round(0, plan), np.arange(4), np.zeros(setup.layout.size, np.float32), charge)
