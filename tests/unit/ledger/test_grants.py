"""Grants: what a silo signed holds for one charge, plan, coordinator and time, and nothing can be changed in it."""

from __future__ import annotations

import dataclasses

import pytest

from sordino.core.errors import PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.grants import Grant, Request, problems
from sordino.ledger.keys import SigningKey
from sordino.privacy import events
from sordino.privacy.permits import Line

KEY = SigningKey.generate("north")
LINES = (Line("north", Unit.RECORD, "event", 2), Line("north/a", Unit.RECORD, "event", 1))
ASKED = Request("t1", "run", 3, "digest", 1, LINES)
GRANT = Grant.of(ASKED, KEY.public, expires=200).signed(KEY)


def test_a_grant_allows_what_was_asked():
    """
    Control: it survives its text, in any order of the lines, until the second in which it ends.
    """
    found = Grant.parse(GRANT.text)

    assert found == GRANT
    found.check(KEY.public, dataclasses.replace(ASKED, lines=LINES[::-1]), now=200)


@pytest.mark.parametrize(
    "change",
    [
        {"txid": "t2"},
        {"run": "other"},
        {"round": 4},
        {"purpose": "metric"},
        {"plan": "other"},
        {"fence": 2},
        {"lines": LINES[:1]},
        {"lines": (Line("north", Unit.RECORD, "event", 3), LINES[1])},
        {"lines": (Line("north", Unit.USER, "event", 2), LINES[1])},
    ],
)
def test_a_grant_for_something_else_is_refused(change):
    """
    Another charge, plan, coordinator or price: the silo did not consent to it. Changing the grant breaks its signature.
    """
    with pytest.raises(PrivacyError, match="another charge, plan or coordinator"):
        GRANT.check(KEY.public, dataclasses.replace(ASKED, **change), now=100)
    with pytest.raises(VerificationError, match="forged"):
        dataclasses.replace(GRANT, **change).check_signature(KEY.public)


def test_a_grant_made_to_last_longer_is_forged():
    """
    When it ends is signed too.
    """
    with pytest.raises(VerificationError, match="forged"):
        dataclasses.replace(GRANT, expires=2000).check(KEY.public, ASKED, now=100)


def test_an_expired_grant_is_refused():
    """
    One second late.
    """
    with pytest.raises(PrivacyError, match="expired"):
        GRANT.check(KEY.public, ASKED, now=201)


def test_another_key_under_the_silos_name_is_refused():
    """
    Who signs is the key, not the name; naming the right key's number does not help.
    """
    other = SigningKey.generate("north")
    with pytest.raises(VerificationError, match="not by north"):
        Grant.of(ASKED, other.public, expires=200).signed(other).check_signature(KEY.public)
    with pytest.raises(VerificationError, match="forged"):
        dataclasses.replace(GRANT, signature=other.sign(GRANT.message)).check_signature(KEY.public)


@pytest.mark.parametrize("text", ["", "{}", "[]", GRANT.text + " ", GRANT.text.replace('"fence":1', '"fence":1.0')])
def test_what_is_no_grant_is_said(text):
    """
    A grant has one text.
    """
    with pytest.raises(VerificationError, match="not a grant"):
        Grant.parse(text)


def test_grants_beside_a_charge_are_checked_later():
    """
    Whoever reads the coordinator's ledger finds lines without consent, and consents of others.
    """
    keys, told = {"north": KEY.public}, dict.fromkeys(("north", "north/a"), GRANT.text)
    assert problems(told, "t1", LINES, keys) == []

    assert "without a silo's consent" in problems({"north": GRANT.text}, "t1", LINES, keys)[0]
    assert "another charge" in problems(told, "t2", LINES, keys)[0]
    assert "another charge" in problems(told, "t1", [Line("north", Unit.RECORD, "event", 9)], keys)[0]
    assert "not known" in problems(told, "t1", LINES, {})[0]


def test_verify_checks_the_grants_of_silos_whose_keys_are_given(tmp_path):
    """
    A coordinator that writes somebody's consent by itself, or one for another charge, is found by whoever has the key.
    """
    event = events.gaussian(8.0)
    line = Line("north", Unit.RECORD, events.key(event), 1)
    consents = {}
    for name, key, txid in (("good", KEY, "t"), ("forged", SigningKey.generate("north"), "t"), ("other", KEY, "u")):
        grant = Grant.of(Request(txid, "run", 0, "d", 1, (line,)), KEY.public, expires=2**40)
        consents[name] = (
            grant.signed(KEY).text if key is KEY else dataclasses.replace(grant, signature=key.sign(b"x")).text
        )
    for name, words in (("good", None), ("forged", "forged"), ("other", "another charge")):
        place = tmp_path / f"{name}.db"
        with Ledger(place) as ledger:
            ledger.open_account(Account("north", Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-5))
            ledger.admit("run", "d", {"north": [(event, 1)]}, 1e-5, noise_at=NoiseAt.SILO)
            ledger.open_run("run")
            ledger.reserve("t", "run", 0, "train", [line], consents={"north": consents[name]})
        assert verify(place).ok, "the file alone cannot tell"
        report = verify(place, silos=[KEY.public])
        assert report.ok is (words is None)
        assert words is None or words in report.problems[0]
