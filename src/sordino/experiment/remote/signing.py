"""Letters under the coordinator's key: a site's process answers its coordinator, and nobody else who reaches its port.

TLS and node keys end at the node. Behind it, on the site's machine, letters pass a port of loopback and a socket.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sordino.core.errors import SordinoError
from sordino.federation.post import Answering, Field, Letter, Post, refusal
from sordino.ledger.keys import SigningKey
from sordino.ledger.rules import Rules

BY, SEAL = "by", "seal"
"""Fields that a signature adds: the name of the key, and the signature."""


def text(letter: Letter) -> bytes:
    """What is signed of a letter: all of it, but the signature.

    >>> text(Letter("hello", {"run": "r"})) == text(Letter("hello", {"run": "r", "seal": "…"}))
    True
    """
    fields = {name: _plain(value) for name, value in sorted(letter.fields.items()) if name != SEAL}
    vector = [] if letter.vector is None else [str(letter.vector.dtype), list(letter.vector.shape), _digest(letter)]
    return b"sordino letter\n" + json.dumps([letter.action, fields, vector]).encode()


def _plain(value: Field) -> list[str]:
    return [type(value).__name__, value.hex() if isinstance(value, bytes) else str(value)]


def _digest(letter: Letter) -> str:
    return hashlib.sha256(np.ascontiguousarray(letter.vector).data).hexdigest()


@dataclass(frozen=True)
class Signing(Post):
    """A post that signs every letter.

    Args:
        inner: Carries them.
        key: The coordinator's.
    """

    inner: Post
    key: SigningKey

    def present(self) -> tuple[str, ...]:
        return self.inner.present()

    def ask(self, letters: Mapping[str, Letter], timeout: float) -> Iterator[tuple[str, Letter]]:
        signed: dict[int, Letter] = {}  # a letter to several addresses is signed once
        for letter in letters.values():
            if id(letter) not in signed:
                named = replace(letter, fields={**letter.fields, BY: self.key.name})
                seal = self.key.sign(text(named))
                signed[id(letter)] = replace(named, fields={**named.fields, SEAL: seal})
        return self.inner.ask({address: signed[id(letter)] for address, letter in letters.items()}, timeout)


def signed_only(answering: Answering, rules: Rules) -> Answering:
    """The same for letters that one of the silo's coordinators signed; any other is refused.

    Args:
        answering: The site.
        rules: Names the coordinators' keys.
    """

    def answer(letter: Letter) -> Letter:
        try:
            rules.known(letter.text(BY), text(letter), letter.text(SEAL))
        except SordinoError as problem:
            return refusal(problem)
        bare = {name: value for name, value in letter.fields.items() if name not in (BY, SEAL)}
        return answering(replace(letter, fields=bare))

    return answer
