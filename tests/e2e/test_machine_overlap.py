"""Asynchronous rounds over machines: silos work while others are collected; whatever dies, nothing is drawn twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from machines import NAMES, Killed, Lines, Machines
from test_machine_faults import dies
from whole_runs import model, planned

from sordino.core.errors import ConfigError
from sordino.experiment import asynchrony
from sordino.experiment.folder import RunFolder
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.remote.signing import Signing, signed_only
from sordino.experiment.run import run
from sordino.experiment.site.member import Member
from sordino.experiment.site.outbox import Outbox
from sordino.federation.engines.overlapping import Overlapping
from sordino.federation.post import Letter
from sordino.federation.sampling.buffered import Buffered
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import SiloLedger

SIZE, ROUNDS = 2, 8
TERMS = (
    f"rounds={ROUNDS}",
    f"sampling={{ buffered={{ size={SIZE}, per_client=8, concurrency=3, spread=0.5, seed=1 }} }}",
)
SCHEDULE = Buffered(size=SIZE, per_client=8, concurrency=3, spread=0.5, seed=1)
CLIENTS = (
    *TERMS,
    "privacy={ unit='client', noise_at='coordinator', noise_multiplier=0.5, delta=1e-3, silos_per_person=1 }",
    "stages=[{ clip={ norm=0.5 } }]",
    "local={ lr=0.5, epochs=1 }",
    "simulation.noise_seed=3",
)


def rounds_of(name: str) -> list[int]:
    """The rounds whose buffer a silo is in."""
    place = NAMES.index(name)
    return [number for number, flush in enumerate(SCHEDULE.flushes(3, ROUNDS)) if place in flush.clients]


def committed(name: str) -> list[str]:
    return [f"{number} committed" for number in (rounds_of(name) if name else range(ROUNDS))]


def settled(machines, plan):
    """Every ledger has what the schedule says, and nothing else: all committed, and no account twice."""
    states = {
        name: sorted(found, key=lambda text: int(text.split()[0])) for name, found in machines.states(plan.run).items()
    }
    assert states == {name: committed(name) for name in ["", *NAMES]}


def elsewhere(machines):
    """Where a run in one process keeps a ledger of its own."""
    folder = machines.root / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def clients(hospitals):
    """The same silos, enrolled for whole clients and a coordinator's noise."""
    plan, _ = planned(hospitals.file, *CLIENTS)
    return Machines.enrolled(
        hospitals.file,
        NAMES,
        data=hospitals.data,
        unit=plan.experiment.privacy.unit,
        adjacency=plan.adjacency,
        test=True,
        epsilon=1e4,
        delta=0.1,
        folder="clients",
        noise_at="coordinator",
    )


def test_silos_begin_before_they_are_asked(hospitals, draws):
    """
    Who is in a later buffer gets the model as soon as it is there, is charged for in advance at both ends, and is sent
    no model again.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    early, bare = [], Counter()

    def watched(letter, answering):
        if letter.action == "begin":
            early.append((letter.number("round"), open_at_coordinator(hospitals, plan)))
        if letter.action == "train":
            bare[letter.vector is None] += 1
        return answering(letter)

    with hospitals.sites() as sites:
        hospitals.run(Lines(sites, dict.fromkeys(NAMES, watched)), *TERMS)

    late = sum(flush.versions.tolist().count(number) for number, flush in enumerate(SCHEDULE.flushes(3, ROUNDS)))
    assert bare == {True: SIZE * ROUNDS - late, False: late}
    assert len(early) == bare[True]
    assert all(number in reserved for number, reserved in early)
    settled(hospitals, plan)
    assert len(draws) == SIZE * ROUNDS
    hospitals.hold(plan.run, draws)


def open_at_coordinator(machines, plan):
    return [int(text.split()[0]) for text in machines.states(plan.run)[""] if text.endswith("reserved")]


KILLS = {
    "before it reserves": lambda m, n: dies(m, RemoteBooks, "reserve", at(n), after=False),
    "before it asks": lambda m, n: dies(m, RemoteBooks, "reserve", at(n), after=True),
    "after it let silos begin": lambda m, n: dies(m, Lines, "send", lambda *_: True, after=True),
    "before it commits": lambda m, n: dies(
        m, RemoteBooks, "commit", lambda b, *_: at(n)(b, b._round.txid), after=False
    ),
    "before it saves": lambda m, n: dies(m, RunFolder, "save", lambda _, state: state.round == n + 1, after=False),
    "before it publishes": lambda m, n: dies(m, RemoteBooks, "published", at(n), after=False),
}


def at(number):
    return lambda _, txid, *__: txid.endswith(f"/{number}")


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("moment", KILLS)
def test_a_coordinator_that_is_killed_loses_no_update(hospitals, draws, monkeypatch, moment, number):
    """
    Rounds that silos had begun are open in its ledger: the same command asks for what they keep.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    with hospitals.sites() as sites:
        with monkeypatch.context() as patch:
            KILLS[moment](patch, number)
            with pytest.raises(Killed):
                hospitals.run(Lines(sites), *TERMS)
        result = hospitals.run(Lines(sites), *TERMS)
    settled(hospitals, plan)
    assert (result.summary["silos_away"], result.summary["rounds_lost"]) == ([], 0)
    assert len(draws) == SIZE * ROUNDS
    hospitals.hold(plan.run, draws)


FIRST = next(r for r in rounds_of("east") if r not in SCHEDULE.flush(3, r).versions[SCHEDULE.flush(3, r).clients == 0])
"""The first round that east begins ahead of it."""

MOMENTS = {
    "granted": lambda m: dies(m, SiloLedger, "grant", lambda s, r: (s.name, r.round) == ("east", FIRST), after=True),
    "drawn": lambda m: dies(
        m, Member, "_update", lambda s, _, number, __: (s.silo.name, number) == ("east", FIRST), after=True
    ),
    "kept": lambda m: dies(
        m, Outbox, "keep", lambda s, txid, _: s.folder.parent.name == "east" and at(FIRST)(0, txid), after=True
    ),
    "handed over": lambda m: dies(
        m, SiloLedger, "hand_over", lambda s, txid, _: s.name == "east" and at(FIRST)(0, txid), after=True
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_silo_that_is_killed_at_work_costs_its_own_update_only(hospitals, draws, monkeypatch, moment):
    """
    What the others had begun stays theirs under the new fence, and comes when it is asked for.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    MOMENTS[moment](monkeypatch)
    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites), *TERMS)
    states = {
        name: sorted(found, key=lambda t: int(t.split()[0])) for name, found in hospitals.states(plan.run).items()
    }
    lost = {text for text in states.pop("east") if text.endswith("forfeited")}
    assert len(lost) <= 1 if moment == "handed over" else lost
    assert {name: states[name] for name in NAMES[1:]} == {name: committed(name) for name in NAMES[1:]}
    assert result.summary["silos_away"] == []
    hospitals.hold(plan.run, draws)


def test_a_silo_that_is_away_for_a_while_leaves_the_others_at_work(hospitals, draws):
    """
    All join anew when it is back. Updates that were begun under the old fence are charged once and used.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    missed = rounds_of("east")[2]
    quiet = [0]

    def away(letter, answering):
        if letter.action == "train" and letter.number("round") == missed:
            quiet[0] = 3
        quiet[0] -= 1
        return None if quiet[0] > 0 else answering(letter)

    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites, {"east": away}), *TERMS)
    assert "east is back" in hospitals.told
    assert [told for told in hospitals.told if "without" in told and "without east" not in told] == []
    assert result.summary["silos_away"] == []
    hospitals.hold(plan.run, draws)


def test_raw_updates_are_charged_when_they_leave(clients, draws):
    """
    Where the coordinator draws, a silo that begins charges nothing and writes nothing: after a kill it trains again.
    """
    plan, population = planned(clients.file, *CLIENTS)
    alone = run(plan, population, "", clients.root / "alone", base=elsewhere(clients))
    charged = []

    def watched(letter, answering):
        answer = answering(letter)
        if letter.action == "begin":
            charged.append(f"{letter.number('round')} committed" in clients.states(plan.run)["east"])
            assert not list((clients.at("east") / "outbox").glob("*"))
        return answer

    with clients.sites() as sites:
        apart = clients.run(Lines(sites, {"east": watched}), *CLIENTS)
    assert charged
    assert not any(charged)
    settled(clients, plan)
    assert (model(alone) == model(apart)).all()
    clients.hold(plan.run, {})


def test_a_coordinator_that_draws_loses_the_round_in_progress_only(clients, monkeypatch):
    """
    Killed between its draw and its commit: that round is spent, and what was begun for later ones is not.
    """
    plan, _ = planned(clients.file, *CLIENTS)
    with clients.sites() as sites:
        with monkeypatch.context() as patch:
            KILLS["before it commits"](patch, 3)
            with pytest.raises(Killed):
                clients.run(Lines(sites), *CLIENTS)
        result = clients.run(Lines(sites), *CLIENTS)
    states = clients.states(plan.run)
    assert sorted(states.pop(""))[3] == "3 forfeited"
    assert sum(text.endswith("forfeited") for text in clients.states(plan.run)[""]) == 1
    assert {name: len(found) for name, found in states.items()} == {name: len(rounds_of(name)) for name in NAMES}
    assert result.summary["rounds_lost"] == 1
    clients.hold(plan.run, {})


def test_a_silo_follows_the_schedule_and_not_the_letter(hospitals, draws):
    """
    Asked for a round that is not its own, or twice for one version, it refuses before it charges anything.
    """
    plan, _ = planned(hospitals.file, *TERMS)
    foreign = next(number for number in range(ROUNDS) if number not in rounds_of("east"))
    refused = []

    def asked(letter, answering):
        if letter.action == "train" and not refused:
            for action in ("train", "begin", "forfeit"):
                fields = {**letter.fields, "round": foreign, "rounds": f"[{foreign}]"}
                refused.append(answering(type(letter)(action, fields, letter.vector)).fields["why"])
        return answering(letter)

    with hospitals.sites() as sites:
        hospitals.run(Lines(sites, {"east": asked}), *TERMS)
    assert all("is not one that this client takes part in" in why for why in refused)
    assert len(refused) == 3
    settled(hospitals, plan)


TIGHT = tuple(term.replace("norm=0.5", "norm=0.05") for term in CLIENTS)


@pytest.mark.parametrize("stages", [[{"clip": {"norm": 1e6}}], [{"adaptive_clip": {"norm": 0.05}}], [{}]])
def test_a_coordinator_does_not_choose_the_clip_of_what_it_sees_raw(clients, stages):
    """
    What a round has learnt travels in its letters; the clip of the plan is nothing that is learnt.
    """
    norms, refused = [], []

    def bent(letter, answering):
        if letter.action == "train" and letter.vector is not None:
            asked = replace(letter, fields={**letter.fields, "memory": json.dumps({"stages": stages})})
            refused.append(answering(asked).fields.get("why", ""))
        answer = answering(letter)
        norms.append(0.0 if letter.action != "train" or answer.vector is None else np.linalg.norm(answer.vector))
        return answer

    with clients.sites() as sites:
        clients.run(Lines(sites, {"east": bent}), *TIGHT)
    assert refused
    assert all("stages" in why or "stage" in why for why in refused)
    assert max(norms) <= 0.05 + 1e-6


@pytest.mark.parametrize("action", ["train", "forfeit", "leave"])
def test_a_run_is_of_the_coordinator_that_joined_it(clients, action):
    """
    A silo of two coordinators: the other one's signature gets no update, and ends nothing, in a run that is not its.
    """
    other, got = SigningKey.generate("other"), []
    for name in NAMES:
        file = clients.at(name) / "silo.toml"
        own = f'coordinators = ["{clients.key.public}"'
        assert own in file.read_text()
        file.write_text(file.read_text().replace(own, f'{own}, "{other.public}"'))

    with clients.sites() as sites:
        signed = {name: Signed(site) for name, site in sites.items()}

        def thief(letter, answering):
            if letter.action == "train" and not got:
                bare = {k: v for k, v in letter.fields.items() if k not in ("by", "seal", "once")}
                forged = Letter(action, {**bare, "rounds": "[0]"}, letter.vector)
                got.append(answering(Signing(Lines(signed), other, clients.keys()).signed({"east": forged})["east"]))
            return answering(letter)

        clients.run(Signing(Lines(signed, {"east": thief}), clients.key, clients.keys()), *CLIENTS)
    assert [("is not joined by this coordinator" in one.fields["why"], one.vector) for one in got] == [(True, None)]


class Signed:
    """A site that takes signed letters only."""

    def __init__(self, site):
        self.site = site

    def answer(self, letter):
        silo = self.site.member.silo
        return signed_only(self.site.answer, lambda: silo.rules, silo.key)(letter)


def test_a_bare_letter_charges_nothing_where_nothing_was_begun(hospitals, draws):
    """
    A silo that was told to begin and could not is left out of the round, with the reason; the rest goes on.
    """
    plan, _ = planned(hospitals.file, *TERMS)

    def deaf(letter, answering):
        return None if letter.action == "begin" else answering(letter)

    with hospitals.sites() as sites:
        hospitals.run(Lines(sites, {"east": deaf}), *TERMS)
    assert any("was not begun here" in told for told in hospitals.told)
    hospitals.hold(plan.run, draws)


class Unsent(Lines):
    """A post that never reaches anybody without waiting for an answer."""

    def send(self, letters, timeout):
        del letters, timeout
        return ()


def test_who_cannot_be_told_to_begin_begins_when_it_is_asked(hospitals, draws):
    """
    Then every letter has its model, and the run is the one in which all began ahead.
    """
    terms = (*TERMS, "simulation.noise_seed=3")
    plan, population = planned(hospitals.file, *terms)
    alone = model(run(plan, population, "", hospitals.root / "alone", base=elsewhere(hospitals)))
    draws.clear()
    machines = Machines.enrolled(
        hospitals.file, NAMES, data=hospitals.data, test=True, folder="unsent", epsilon=1e4, delta=0.1
    )
    bare = Counter()

    def watched(letter, answering):
        if letter.action == "train":
            bare[letter.vector is None] += 1
        return answering(letter)

    with machines.sites() as sites:
        result = machines.run(Unsent(sites, dict.fromkeys(NAMES, watched)), *terms)
    assert bare == {False: SIZE * ROUNDS}
    assert np.array_equal(model(result), alone)
    settled(machines, plan)
    machines.hold(plan.run, draws)


def test_a_twin_that_starts_from_the_newest_model_is_found(hospitals, monkeypatch):
    """
    Broken twin: where nobody begins, and old models are forgotten for the newest, another model comes out.
    """
    terms = (*TERMS, "simulation.noise_seed=3")
    plan, population = planned(hospitals.file, *terms)
    alone = model(run(plan, population, "", hospitals.root / "alone", base=elsewhere(hospitals)))
    monkeypatch.setattr(Overlapping, "_begin", lambda self, starts: None)
    newest = lambda setup, state: dict.fromkeys(range(state.round + 1), state.server.model)  # noqa: E731
    monkeypatch.setattr(asynchrony, "kept", newest)
    machines = Machines.enrolled(
        hospitals.file, NAMES, data=hospitals.data, test=True, folder="twins", epsilon=1e4, delta=0.1
    )
    with machines.sites() as sites:
        assert not (model(machines.run(Lines(sites), *terms)) == alone).all()


def test_a_minimum_above_the_buffer_is_refused(hospitals):
    """
    No round could ever have as many updates.
    """
    with hospitals.sites() as sites, pytest.raises(ConfigError, match="minimum=3"):
        hospitals.run(Lines(sites), *TERMS, minimum=3)
