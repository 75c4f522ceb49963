"""A site answers letters of its coordinators only, and they believe answers of their sites only: word for word."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sordino.core.errors import BudgetRefused
from sordino.experiment.remote.signing import ONCE, SEAL, TO, Signing, answered, signed_only
from sordino.experiment.site import serving
from sordino.experiment.site.serving import listening
from sordino.experiment.site.wire import ask
from sordino.federation.engines.flower import GridPost
from sordino.federation.post import BY, Letter, Within, refusal
from sordino.ledger.keys import SigningKey
from sordino.ledger.rules import Rules

KEY, OTHER = SigningKey.generate("coordinator"), SigningKey.generate("coordinator")
RULES = Rules("north", coordinators=(str(KEY.public),))
NORTH, SOUTH = SigningKey.generate("north"), SigningKey.generate("south")
SILOS = {"north": NORTH.public, "south": SOUTH.public}
LETTER = Letter(
    "train", {"to": "north", "round": 3, "plan": "ab", "nonce": b"\x00\xff"}, np.arange(4, dtype=np.float32)
)


ANSWER = Letter("train", {"round": 3, "grant": "{}", "proof": b"\x00"}, np.arange(3, dtype=np.float32))


class Site:
    """Keeps what it heard, and lets tests change a letter on its way, and the answer on its way back."""

    def __init__(self, change=lambda letter: letter, back=lambda answer, letter: answer, answer=ANSWER):
        self.heard, self._change, self._back, self._said = [], change, back, answer
        self.answering = signed_only(self._answer, lambda: RULES, NORTH)

    def _answer(self, letter):
        self.heard.append(letter)
        return self._said

    def arrives(self, letter):
        changed = self._change(letter)
        return self._back(self.answering(changed), changed)


def sent(site, key=KEY, letter=LETTER):
    ((_, answer),) = Signing(Within({"7": site.arrives}), key, SILOS).ask({"7": letter}, 1.0)
    return answer


def alike(one, other):
    return (one.action, one.fields) == (other.action, other.fields) and np.array_equal(one.vector, other.vector)


def test_a_signed_letter_arrives_as_it_was_written_and_so_does_its_answer():
    """
    Without the fields that carried the signatures; a letter keeps who signed it.
    """
    site = Site()
    assert alike(sent(site), ANSWER)
    (heard,) = site.heard
    bare = {k: v for k, v in LETTER.fields.items() if k != TO}
    assert alike(heard, replace(LETTER, fields={**bare, BY: heard.fields[BY]}))


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
        lambda letter: replace(letter, fields={**letter.fields, ONCE: bytes(16)}),
        lambda letter: replace(letter, fields={k: v for k, v in letter.fields.items() if k != TO}),
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
    post = Signing(Within({name: site.arrives for name, site in sites.items()}), KEY, SILOS)
    assert post.present() == tuple(sites)
    assert [answer.action for _, answer in post.ask(dict.fromkeys(sites, LETTER), 1.0)] == ["train"] * 3
    assert sum(text.startswith(b"sordino letter") for text in signed) == 1


def test_a_letter_to_another_silo_is_refused():
    """
    The server may deliver it where it wants.
    """
    site = Site()
    answer = sent(site, letter=replace(LETTER, fields={**LETTER.fields, TO: "south"}))
    assert "is not whom this letter is to" in answer.text("why")
    assert site.heard == []


def fields(answer, **other):
    return replace(answer, fields={**answer.fields, **other})


def by(name, key):
    """The same, signed by another silo."""

    def back(answer, letter):
        own = fields(answer, by=name)
        return fields(own, seal=key.sign(answered(letter.text(SEAL), own)))

    return back


BACK = {
    "another vector": lambda answer, _: replace(answer, vector=answer.vector + 1),
    "another type": lambda answer, _: replace(answer, vector=answer.vector.astype(np.float64)),
    "another shape": lambda answer, _: replace(answer, vector=answer.vector.reshape(3, 1)),
    "no vector": lambda answer, _: replace(answer, vector=None),
    "no numbers": lambda answer, _: replace(answer, vector=np.array(["2026-01-01"], "datetime64[D]")),
    "another grant": lambda answer, _: fields(answer, grant="[]"),
    "another kind of field": lambda answer, _: fields(answer, round="3"),
    "another action": lambda answer, _: replace(answer, action="lost"),
    "a refusal": lambda answer, _: replace(refusal(BudgetRefused("spent")), fields={**answer.fields, "why": "spent"}),
    "no signature": lambda answer, _: replace(answer, fields=ANSWER.fields),
    "a signature that is none": lambda answer, _: fields(answer, seal="é"),
    "a short signature": lambda answer, _: fields(answer, seal=answer.text(SEAL)[:8]),
    "a signature that is no text": lambda answer, _: fields(answer, seal=7),
    "another silo's": by("south", SOUTH),
    "another silo's under this name": by("north", SOUTH),
    "a silo's that nobody knows": by("west", SOUTH),
}


@pytest.mark.parametrize("back", BACK.values(), ids=BACK)
def test_an_answer_that_was_changed_is_not_passed_on(back):
    """
    In its place comes a failure of the network, whatever it claims to be.
    """
    answer = sent(Site(back=back))
    assert (answer.action, answer.fields["kind"], answer.vector) == ("refused", "EngineError", None)
    assert "post: answer_to='train' is dropped: " in answer.text("why")


def test_an_answer_serves_one_letter_only():
    """
    The same letter, asked again, has another seal; a site that answers anew is believed.
    """
    first = []
    replayed = Site(back=lambda answer, _: (first.append(answer), first[0])[1])
    assert alike(sent(replayed), ANSWER)
    assert "is dropped" in sent(replayed).text("why")
    again = Site()
    assert alike(sent(again), sent(again))


def test_who_is_not_known_yet_may_be_any_silo_but_not_nobody():
    """
    A greeting is to nobody in particular.
    """
    hello = Letter("hello", {"nonce": b"1"})
    assert alike(sent(Site(), letter=hello), ANSWER)
    assert alike(sent(Site(back=by("south", SOUTH)), letter=hello), fields(ANSWER))
    assert sent(Site(back=by("west", SOUTH)), letter=hello).action == "refused"


def test_a_silo_s_refusal_keeps_its_kind_and_a_node_s_only_its_words():
    """
    Without the site's process its node has no key to sign with. Such words may be anybody's: they stop no run.
    """
    spent = refusal(BudgetRefused("ledger: spent"))
    assert alike(sent(Site(answer=spent)), spent)
    answer = sent(Site(back=lambda *_: replace(spent, fields={**spent.fields, "why": "\x1b[2Jspent" + "!" * 999})))
    assert (answer.fields["kind"], len(answer.text("why"))) == ("EngineError", 500 + len(" (nobody signed this)"))
    assert answer.text("why").startswith(" [2Jspent!")


@pytest.mark.parametrize("vector", [None, np.arange(5, dtype=np.uint8), np.arange(2**19, dtype=np.float32)])
def test_signatures_hold_on_every_way_that_letters_take(vector, tmp_path):
    """
    Messages of Flower's, with the vector among their fields or beside them, and the socket of a site's process.
    """
    pytest.importorskip("flwr")
    from sordino.experiment.flower.local_grid import LocalGrid
    from sordino.experiment.flower_app import client_app

    site = Site(answer=replace(ANSWER, vector=vector))
    with listening(tmp_path / "s", site.answering):
        post = Signing(GridPost(LocalGrid({7: client_app(partial(ask, tmp_path / "s"))})), KEY, SILOS)
        ((_, answer),) = post.ask({"7": replace(LETTER, vector=vector)}, 1.0)
    assert alike(answer, replace(ANSWER, vector=vector))
    assert len(site.heard) == 1


def test_a_caller_that_says_nothing_keeps_others_waiting_for_a_while_only(tmp_path, monkeypatch):
    """
    The socket serves one at a time.
    """
    monkeypatch.setattr(serving, "SILENT_S", 0.2)
    with listening(tmp_path / "s", lambda _: ANSWER), socket.socket(socket.AF_UNIX) as mute:
        mute.connect(str(tmp_path / "s"))
        assert alike(ask(tmp_path / "s", LETTER, timeout=10.0), ANSWER)


def test_strangers_get_no_signature():
    """
    A letter of theirs may bear the seal of a true one, for which a signed refusal would count.
    """
    site = Site()
    answer = site.answering(fields(LETTER, by="coordinator", seal=OTHER.sign(b"")))
    assert answer.action == "refused"
    assert SEAL not in answer.fields


def test_a_coordinator_that_checks_no_answer_believes_them(monkeypatch):
    """
    Broken twin.
    """
    monkeypatch.setattr(Signing, "_check", lambda *_: None)
    answer = sent(Site(back=BACK["another vector"]))
    assert np.array_equal(answer.vector, ANSWER.vector + 1)
