"""Sites that send what does not hold: it is never counted, the reason is said, and the run goes on without it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from machines import Lines, trains
from whole_runs import model, planned

from sordino.federation.post import Letter
from sordino.ledger.grants import Grant
from sordino.ledger.keys import SigningKey

OTHER = SigningKey.generate("east")


def told(**fields):
    return lambda answer, *_: replace(answer, fields={**answer.fields, **fields})


def sent(change):
    return lambda answer, *_: replace(answer, vector=change(answer.vector))


def granting(change):
    """Its own grant, changed and signed again with the site's key, or another."""

    def lie(answer, _, key):
        grant, signer = change(Grant.parse(answer.text("grant")), key)
        return replace(answer, fields={**answer.fields, "grant": grant.signed(signer).text})

    return lie


def text(change):
    """Its grant's text, changed."""
    return lambda answer, *_: replace(answer, fields={**answer.fields, "grant": change(answer.text("grant"))})


def spoilt(value):
    def spoil(vector):
        return np.concatenate([vector[:-1], np.array([value], np.float32)])

    return sent(spoil)


LIES = {
    "another plan": (told(plan="0" * 64), "another plan or round"),
    "another round": (told(round=99), "another plan or round"),
    "a round of another kind": (told(round="1"), "lacks the field 'round'"),
    "not a number": (spoilt(np.nan), "not finite"),
    "infinity": (spoilt(np.inf), "not finite"),
    "too short": (sent(lambda vector: vector[:-1]), r"float32 of shape \(2,\)"),
    "too long": (sent(lambda vector: np.append(vector, np.float32(0))), r"float32 of shape \(2,\)"),
    "another shape": (sent(lambda vector: vector.reshape(2, -1)), r"float32 of shape \(2,\)"),
    "float64": (sent(lambda vector: vector.astype(np.float64)), r"float32 of shape \(2,\)"),
    "nothing": (sent(lambda _: None), r"float32 of shape \(2,\)"),
    "an earlier answer": (lambda _, earlier, __: earlier, "another plan or round"),
    "an earlier update under this round's number": (
        lambda answer, earlier, _: replace(earlier, fields={**earlier.fields, "round": answer.number("round")}),
        "is for another charge",
    ),
    "no grant": (text(lambda _: "{}"), "not a grant's text"),
    "a grant beyond all numbers": (text(lambda grant: grant.replace('"expires":', '"expires":1e999,"x":')), "not a gr"),
    "a grant without a bottom": (text(lambda _: "[" * 100_000), "not a grant's text"),
    "a forged grant": (granting(lambda grant, _: (grant, OTHER)), "is forged"),
    "a grant by another key of its name": (
        granting(lambda grant, _: (replace(grant, key=OTHER.public.number().hex()), OTHER)),
        "is not by east",
    ),
    "a grant by another silo": (granting(lambda grant, key: (replace(grant, silo="north"), key)), "is not by east"),
    "a grant of another charge": (granting(lambda grant, key: (replace(grant, txid="x"), key)), "another charge"),
    "a grant for a later coordinator": (granting(lambda grant, key: (replace(grant, fence=9), key)), "another charge"),
    "a grant for an earlier one": (granting(lambda grant, key: (replace(grant, fence=0), key)), "another charge"),
    "a grant of less": (
        granting(lambda g, key: (replace(g, lines=(replace(g.lines[0], account="north"),)), key)),
        "another charge",
    ),
    "a grant that has expired": (granting(lambda grant, key: (replace(grant, expires=1), key)), "has expired"),
    "something else": (lambda *_: Letter("hello"), "does not answer 'train'"),
    "an unknown refusal": (lambda *_: Letter("refused", {"kind": "SystemExit", "why": "no"}), "refuses: no"),
}


def lying(hospitals, lies):
    """A fault: the true answer of the first round, then each of these in the rounds that follow."""
    key, before = SigningKey.load(hospitals.at("east") / "key.pem"), []

    def fault(letter, answering):
        answer = answering(letter)
        if letter.action != "train":
            return answer
        before.append(answer)
        number = letter.number("round")
        return lies[number - 1](answer, before[0], key) if 0 < number <= len(lies) else answer

    return {"east": fault}


def test_what_does_not_hold_is_not_counted(hospitals, draws, counted):
    """
    A run of as many rounds as there are lies: each is said and not counted, and both sides agree in the end.
    """
    rounds = len(LIES) + 2
    terms = (f"rounds={rounds}", "privacy.noise_multiplier=20.0")
    plan, _ = planned(hospitals.file, *terms)
    with hospitals.sites() as sites:
        result = hospitals.run(Lines(sites, lying(hospitals, [lie for lie, _ in LIES.values()])), *terms)
    for number, (name, (_, why)) in enumerate(LIES.items(), 1):
        (words,) = [line for line in hospitals.told if line.startswith(f"round {number + 1}: without east: ")]
        assert re.search(why, words), (name, words)
    assert [number for number, silo in counted if silo == "east"] == [0, rounds - 1]
    assert len(counted) == 2 * rounds + 2
    assert np.isfinite(model(result)).all()
    committed = [f"{number} committed" for number in range(rounds)]
    assert list(hospitals.states(plan.run).values()) == [committed] * 4
    assert len(draws) == 3 * rounds
    hospitals.hold(plan.run, draws)


def test_a_coordinator_that_believes_every_signature_is_found(hospitals, draws, counted, monkeypatch):
    """
    Broken twin: it counts an update under a forged grant, and whoever verifies its ledger with the silos' keys sees it.
    """
    with monkeypatch.context() as patch, hospitals.sites() as sites:
        patch.setattr(Grant, "check_signature", lambda *_: None)
        hospitals.run(Lines(sites, lying(hospitals, [LIES["a forged grant"][0]])))
    assert (1, "east") in counted
    assert any("is forged" in problem for problem in hospitals.problems())
    del draws


@pytest.mark.parametrize(
    ("field", "value"), [("handed", "[" * 100_000), ("note", "x"), ("silo", "north"), ("seen", ""), ("signature", "")]
)
def test_a_greeting_that_does_not_hold_is_nobody_s(hospitals, field, value):
    """
    A site that lies about itself is not found; nothing is charged, and the error says who is missing.
    """

    def fault(letter, answering):
        answer = answering(letter)
        return replace(answer, fields={**answer.fields, field: value}) if letter.action == "hello" else answer

    with hospitals.sites() as sites, pytest.raises(Exception, match=r"sites=\['east'\]|note") as error:
        hospitals.run(Lines(sites, {"east": fault}))
    assert error.type.__module__ == "sordino.core.errors"
    assert not (hospitals.root / "runs").exists() or not list((hospitals.root / "runs").iterdir())


def test_claims_that_differ_are_said(hospitals):
    """
    A silo's ledger that tells of another guarantee ends the run with an error; the same command tells it again.
    """

    def fault(letter, answering):
        answer = answering(letter)
        if letter.action != "leave":
            return answer
        claims = json.loads(answer.text("claims"))
        claims[0]["epsilon"] = 99.0
        return replace(answer, fields={**answer.fields, "claims": json.dumps(claims)})

    with hospitals.sites() as sites:
        for _ in range(2):
            with pytest.raises(Exception, match=r"accounts=\['east'\] are claimed otherwise"):
                hospitals.run(Lines(sites, {"east": fault}))
        assert hospitals.run(Lines(sites)).summary["silos_away"] == []


class TestExpiry:
    def test_a_silo_draws_nothing_under_a_grant_that_has_expired(self, hospitals, draws):
        """
        Its clock moves on between the grant and the draw; the round is charged there, and never drawn.
        """
        plan, _ = planned(hospitals.file)
        hours = iter([0.0] + [2.0] * 9)
        with hospitals.sites() as sites:
            east = sites["east"]

            def fault(letter, answering):
                if trains(letter):
                    east.member.silo._clock = lambda: time.time() + 3600 * next(hours)
                answer = answering(letter)
                if trains(letter):
                    east.member.silo._clock = time.time
                return answer

            hospitals.run(Lines(sites, {"east": fault}))
        assert any("without east" in line and "nothing is drawn under it" in line for line in hospitals.told)
        assert len(draws) == 8
        assert hospitals.states(plan.run)["east"] == ["0 committed", "1 forfeited", "2 committed"]
        hospitals.hold(plan.run, draws)

    def test_a_grant_of_yesterday_is_not_accepted(self, hospitals, draws, counted):
        """
        A silo whose clock is wrong grants what has expired: round after round it is told so, and not counted.
        """
        plan, _ = planned(hospitals.file)
        with hospitals.sites() as sites:
            sites["east"].member.silo._clock = lambda: time.time() - 86_400
            hospitals.run(Lines(sites))
        assert sum("without east" in line and "has expired" in line for line in hospitals.told) == 3
        assert {silo for _, silo in counted} == {"north", "south"}
        hospitals.hold(plan.run, draws)
