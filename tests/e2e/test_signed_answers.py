"""A server that changes what it carries: nothing of it is counted, the reason is said, and the run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from machines import Lines, trains
from whole_runs import model, planned

from sordino.core.errors import BudgetRefused, EngineError
from sordino.experiment.remote.signing import SEAL, TO, Signing, signed_only
from sordino.federation.post import BY, Letter, refusal


@dataclass
class Signed:
    """A site's process, as `sordino silo serve` wraps it."""

    site: object

    def answer(self, letter: Letter) -> Letter | None:
        silo = self.site.member.silo
        return signed_only(self.site.answer, lambda: silo.rules, silo.key)(letter)


@dataclass
class Server(Lines):
    """Flower's server in the wrong hands: it reads and keeps everything, and holds no key."""

    seen: list[tuple[str, Letter, Letter]] = field(default_factory=list)

    def ask(self, letters, timeout):
        for address, answer in super().ask(letters, timeout):
            self.seen.append((address, letters[address], answer))
            yield address, answer

    def earlier(self, address, number):
        """An answer of an earlier round."""
        return next(a for at, letter, a in self.seen if at == address and trains(letter, number))


@contextmanager
def serving(hospitals, faults: Mapping):
    with hospitals.sites() as sites:
        yield Server({name: Signed(site) for name, site in sites.items()}, faults)


def run(hospitals, server, *terms, **options):
    return hospitals.run(Signing(server, hospitals.key, hospitals.keys()), *terms, **options)


def swapped(answer, *_):
    return replace(answer, vector=np.zeros_like(answer.vector))


def replayed(answer, letter, server):
    """The first round's vector beside this round's grant: all but the signature holds."""
    return replace(answer, vector=server.earlier("east", 0).vector)


def unsigned(answer, *_):
    return replace(answer, fields={name: value for name, value in answer.fields.items() if name not in (BY, SEAL)})


LIES = {
    1: swapped,
    2: replayed,
    3: lambda _, letter, server: server.earlier("east", 0),
    4: lambda _, letter, server: server.sites["north"].answer(letter),
    5: lambda _, letter, server: server.sites["north"].site.answer(letter),
    6: unsigned,
    7: lambda *_: refusal(BudgetRefused("ledger: it has no budget left")),
    8: lambda answer, *_: replace(answer, action="lost"),
    9: lambda answer, *_: replace(answer, vector=None),
}
WHY = {
    4: "is not whom this letter is to",
    5: "lacks the field 'by'",
    6: "lacks the field 'by'",
    7: "nobody signed this",
}
"""Of all others the signature does not hold."""


def lying(servers, lies=LIES):
    def fault(letter, answering):
        answer = answering(letter)
        lie = lies.get(letter.number("round")) if letter.action == "train" else None
        return lie(answer, letter, servers[0]) if lie else answer

    return {"east": fault}


def of_east(counted):
    return [number for number, silo in counted if silo == "east"]


def test_what_the_server_changes_is_not_counted(hospitals, draws, counted):
    """
    East signed and handed over every round. Each lie is said, none is counted, and both sides agree on what was spent.
    """
    rounds, servers = len(LIES) + 2, []
    terms = (f"rounds={rounds}", "privacy.noise_multiplier=20.0")
    plan, _ = planned(hospitals.file, *terms)
    with serving(hospitals, lying(servers)) as server:
        servers.append(server)
        result = run(hospitals, server, *terms)
    for number in LIES:
        (words,) = [line for line in hospitals.told if line.startswith(f"round {number + 1}: without east: ")]
        assert WHY.get(number, "is dropped: signature: key='east' is not by this key") in words
    assert of_east(counted) == [0, rounds - 1]
    assert np.isfinite(model(result)).all()
    assert result.summary["silos_away"] == []
    committed = [f"{number} committed" for number in range(rounds)]
    assert list(hospitals.states(plan.run).values()) == [committed] * 4
    assert len(draws) == 3 * rounds
    hospitals.hold(plan.run, draws)
    for _, letter, answer in server.seen:
        assert letter.action == "hello" or letter.text(TO) == answer.fields.get(BY, "east")


def test_a_coordinator_that_checks_no_answer_counts_what_the_server_made_up(hospitals, draws, counted, monkeypatch):
    """
    Broken twin: the grants are all in order, and so nothing else would have noticed two other vectors.
    """
    monkeypatch.setattr(Signing, "_check", lambda *_: None)
    servers = []
    with serving(hospitals, lying(servers, {1: swapped, 2: replayed})) as server:
        servers.append(server)
        run(hospitals, server)
    assert of_east(counted) == [0, 1, 2]
    assert hospitals.told == []
    del draws


@pytest.mark.parametrize("action", ["check", "join", "leave"])
def test_a_changed_answer_to_anything_else_stops_the_run_and_the_same_command_goes_on(hospitals, draws, action):
    """
    At the beginning and at the end all have to answer. It is a failing network, and no silo's word.
    """
    plan, _ = planned(hospitals.file)

    def fault(letter, answering):
        answer = answering(letter)
        lie = Letter("refused", {**answer.fields, "kind": "BudgetRefused", "why": "spent"})
        return lie if letter.action == action else answer

    with serving(hospitals, {"east": fault}) as server, pytest.raises(EngineError, match=r"east.*is dropped"):
        run(hospitals, server)
    with serving(hospitals, {}) as server:
        assert run(hospitals, server).summary["silos_away"] == []
    assert list(hospitals.states(plan.run).values()) == [[f"{number} committed" for number in range(3)]] * 4
    hospitals.hold(plan.run, draws)


def test_a_site_whose_greeting_is_not_signed_is_not_found_and_the_reason_is_told(hospitals):
    """
    One of an older version signs nothing: nothing is charged, and the error quotes what came instead.
    """

    def fault(letter, answering):
        answer = answering(letter)
        return unsigned(answer) if letter.action == "hello" else answer

    with serving(hospitals, {"east": fault}) as server, pytest.raises(EngineError) as error:
        run(hospitals, server)
    assert "sites=['east'] have not answered" in str(error.value)
    assert "lacks the field 'by'" in str(error.value)
    assert not (hospitals.root / "federation.db").exists()


def test_a_silo_that_joins_again_may_be_slandered_and_is_asked_again(hospitals, draws, counted):
    """
    Lost in the first round; when it comes back, the server refuses in its name; in the next round it takes part.
    """
    joins = []

    def fault(letter, answering):
        if trains(letter, 0):
            return None
        answer = answering(letter)
        joins.extend([letter] * (letter.action == "join"))
        return refusal(BudgetRefused("spent")) if letter.action == "join" and len(joins) == 2 else answer

    plan, _ = planned(hospitals.file)
    with serving(hospitals, {"east": fault}) as server:
        assert run(hospitals, server).summary["silos_away"] == []
    assert any("east stays away" in line and "nobody signed this" in line for line in hospitals.told)
    assert of_east(counted) == [2]
    hospitals.hold(plan.run, draws)
