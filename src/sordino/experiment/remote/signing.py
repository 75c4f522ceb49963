"""Letters under the coordinator's key, answers under the site's: what lies between can read both, and change neither.

coordinator: letter to NAME, sealed ──► site: by a coordinator of mine? to me?
coordinator: by NAME, to this very letter? ◄── site: its answer, sealed together with the letter's seal

TLS and node keys end at the server and at the node. In between, both lie in the server's database; behind the node, on
the site's machine, they pass a port of loopback and a socket.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.core.errors import EngineError, PrivacyError, SordinoError, VerificationError
from sordino.federation.post import BY, REFUSED, Answering, Field, Letter, Mail, Post, refusal
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.rules import Rules

SEAL = "seal"
"""Fields that a signature adds: whose it is, and the signature."""

TO, ONCE = "to", "once"
"""Further fields of a signed letter: the one silo that may answer it, and bytes by which no two seals are alike."""

LONGEST = 500
"""Characters of an unsigned refusal that are passed on."""


def text(letter: Letter) -> bytes:
    """What is signed of a letter: all of it, but the signature.

    >>> text(Letter("hello", {"run": "r"})) == text(Letter("hello", {"run": "r", "seal": "…"}))
    True
    """
    return b"sordino letter\n" + json.dumps(_whole(letter)).encode()


def answered(seal: str, answer: Letter) -> bytes:
    """What is signed of an answer: the seal of the letter that it answers, and all of it, but the signature.

    >>> answered("s", Letter("check")) == answered("t", Letter("check"))
    False
    """
    return b"sordino answer\n" + json.dumps([seal, *_whole(answer)]).encode()


def _whole(letter: Letter) -> list[Any]:
    fields = {name: _plain(value) for name, value in sorted(letter.fields.items()) if name != SEAL}
    vector = [] if letter.vector is None else [str(letter.vector.dtype), list(letter.vector.shape), _digest(letter)]
    return [letter.action, fields, vector]


def _plain(value: Field) -> list[str]:
    return [type(value).__name__, value.hex() if isinstance(value, bytes) else str(value)]


def _digest(letter: Letter) -> str:
    return hashlib.sha256(np.ascontiguousarray(letter.vector).data).hexdigest()


def _with(letter: Letter, **fields: Field) -> Letter:
    return replace(letter, fields={**letter.fields, **fields})


def _bare(letter: Letter) -> Letter:
    """A letter as it was before it was signed."""
    fields = {name: value for name, value in letter.fields.items() if name not in (BY, SEAL, TO, ONCE)}
    return replace(letter, fields=fields)


@dataclass(frozen=True)
class Signing(Post):
    """A post that signs every letter, and passes on what the silo that was asked has signed in answer to it.

    In place of an answer that does not hold comes a refusal of the kind that a failing network has: the silo counts as
    silent, and is asked again.

    Args:
        inner: Carries them.
        key: The coordinator's.
        silos: Every silo's public key, by its name.
    """

    inner: Post
    key: SigningKey
    silos: Mapping[str, VerifyKey]

    def present(self) -> tuple[str, ...]:
        return self.inner.present()

    def ask(self, letters: Mapping[str, Letter], timeout: float) -> Iterator[tuple[str, Letter]]:
        asked = self.signed(letters)
        for address, answer in self.inner.ask(asked, timeout):
            yield address, self.believed(asked[address], answer)

    def send(self, letters: Mapping[str, Letter], timeout: float) -> Collection[str]:
        return self.inner.send(self.signed(letters), timeout)

    def mail(self) -> Mail:
        return SignedMail(self, self.inner.mail())

    def signed(self, letters: Mapping[str, Letter]) -> dict[str, Letter]:
        """Letters under the coordinator's key."""
        signed: dict[int, Letter] = {}  # a letter to several addresses is signed once
        for letter in letters.values():
            if id(letter) not in signed:
                named = _with(letter, by=self.key.name, once=os.urandom(16))
                signed[id(letter)] = _with(named, seal=self.key.sign(text(named)))
        return {address: signed[id(letter)] for address, letter in letters.items()}

    def believed(self, letter: Letter, answer: Letter) -> Letter:
        """An answer, if it is one to this letter; else a refusal in its place."""
        try:
            self._check(letter, answer)
        except SordinoError as problem:
            return _unheard(letter, answer, problem)
        return _bare(answer)

    def _check(self, letter: Letter, answer: Letter) -> None:
        name = answer.text(BY)
        if name not in self.silos or letter.fields.get(TO, name) != name:
            raise VerificationError.about("answer", "is not by the site that was asked")
        if answer.vector is not None and answer.vector.dtype.kind not in "fui":
            raise VerificationError.about("answer", "brings no numbers", by=name)
        self.silos[name].verify(answered(letter.text(SEAL), answer), answer.text(SEAL))


@dataclass
class SignedMail:
    """Signed letters that are answered in their own time.

    Args:
        post: Signs and checks.
        inner: Carries them.
    """

    post: Signing
    inner: Mail

    def send(self, letters: Mapping[str, Letter], timeout: float) -> None:
        self.inner.send(self.post.signed(letters), timeout)

    def answers(self, wait: float) -> Iterator[tuple[str, Letter, Letter]]:
        for address, letter, answer in self.inner.answers(wait):
            yield address, letter, self.post.believed(letter, answer)


def _unheard(letter: Letter, answer: Letter, problem: SordinoError) -> Letter:
    """In place of an answer that does not hold. A node that finds no site's process says so, and has no silo's key."""
    why = answer.fields.get("why")
    if answer.action == REFUSED and SEAL not in answer.fields and isinstance(why, str):
        said = "".join(character if character.isprintable() else " " for character in why[:LONGEST])
        return refusal(EngineError(f"{said} (nobody signed this)"))
    return refusal(EngineError.about("post", f"is dropped: {problem}", answer_to=letter.action))


def signed_only(answering: Answering, ruled: Callable[[], Rules], key: SigningKey) -> Answering:
    """The same for letters to this silo that one of its coordinators signed; the silo signs what it answers.

    Who signed a letter stays in it (`BY`): a run that one coordinator has joined is not another's.

    Any other letter is refused, without a signature: it may bear the seal of a true one, which it would then refuse.

    Args:
        answering: The site.
        ruled: Gives the silo's rules as they are now: its name, and the coordinators' keys.
        key: The silo's.
    """

    def answer(letter: Letter) -> Letter:
        rules = ruled()
        try:
            rules.known(letter.text(BY), text(letter), letter.text(SEAL))
            if letter.fields.get(TO, rules.name) != rules.name:
                raise PrivacyError.about(f"silo {rules.name!r}", "is not whom this letter is to", to=letter.text(TO))
        except SordinoError as problem:
            return refusal(problem)
        own = _with(answering(_with(_bare(letter), by=letter.text(BY))), by=rules.name)
        return _with(own, seal=key.sign(answered(letter.text(SEAL), own)))

    return answer
