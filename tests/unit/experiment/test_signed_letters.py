"""A site's process answers letters of its coordinators only, word for word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sordino.experiment.remote.signing import BY, SEAL, Signing, signed_only
from sordino.federation.post import Letter, Within
from sordino.ledger.keys import SigningKey
from sordino.ledger.rules import Rules

KEY, OTHER = SigningKey.generate("coordinator"), SigningKey.generate("coordinator")
RULES = Rules("north", coordinators=(str(KEY.public),))
LETTER = Letter("train", {"round": 3, "plan": "ab", "nonce": b"\x00\xff"}, np.arange(4, dtype=np.float32))


class Site:
    """Answers with what it heard, and lets tests change a letter on its way."""

    def __init__(self, change=lambda letter: letter):
        self.heard, self._change = [], change
        self.answering = signed_only(self._answer, RULES)

    def _answer(self, letter):
        self.heard.append(letter)
        return Letter("done")

    def arrives(self, letter):
        return self.answering(self._change(letter))


def sent(site, key=KEY, letter=LETTER):
    ((_, answer),) = Signing(Within({"7": site.arrives}), key).ask({"7": letter}, 1.0)
    return answer


def test_a_signed_letter_arrives_as_it_was_written():
    """
    Without the fields that carried the signature.
    """
    site = Site()
    assert sent(site).action == "done"
    (heard,) = site.heard
    assert (heard.action, heard.fields) == (LETTER.action, LETTER.fields)
    assert np.array_equal(heard.vector, LETTER.vector)


@pytest.mark.parametrize(
    "change",
    [
        lambda letter: replace(letter, action="leave"),
        lambda letter: replace(letter, fields={**letter.fields, "round": 4}),
        lambda letter: replace(letter, fields={**letter.fields, "round": "3"}),
        lambda letter: replace(letter, fields={**letter.fields, "more": 1}),
        lambda letter: replace(letter, fields={k: v for k, v in letter.fields.items() if k != SEAL}),
        lambda letter: replace(letter, fields={k: v for k, v in letter.fields.items() if k != BY}),
        lambda letter: replace(letter, fields={**letter.fields, BY: "another"}),
        lambda letter: replace(letter, vector=letter.vector + 1),
        lambda letter: replace(letter, vector=letter.vector.astype(np.float64)),
        lambda letter: replace(letter, vector=letter.vector.reshape(2, 2)),
        lambda letter: replace(letter, vector=None),
    ],
)
def test_a_letter_that_was_changed_is_refused(change):
    """
    Nothing of it reaches the silo.
    """
    site = Site(change)
    assert sent(site).action == "refused"
    assert site.heard == []


def test_a_letter_by_another_key_of_that_name_is_refused():
    """
    Names are not keys.
    """
    site = Site()
    answer = sent(site, OTHER)
    assert answer.action == "refused"
    assert site.heard == []


def test_one_letter_to_many_is_signed_once(monkeypatch):
    """
    A greeting goes to all addresses.
    """
    signed = []
    sign = SigningKey.sign
    monkeypatch.setattr(SigningKey, "sign", lambda self, text: signed.append(text) or sign(self, text))
    sites = {str(i): Site() for i in range(3)}
    post = Signing(Within({name: site.arrives for name, site in sites.items()}), KEY)
    assert post.present() == tuple(sites)
    assert [answer.action for _, answer in post.ask(dict.fromkeys(sites, LETTER), 1.0)] == ["done"] * 3
    assert len(signed) == 1
