"""Signed notes: a text, an empty line, and one line per signature. Programs for transparency logs read them too.

coordinator                              the text; of a checkpoint: origin, size and root
120
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— coordinator Az3grlgtzPICa5OS8npV…      by the owner of the ledger
— clinic-a jWbPPwAAAABkGFDLEZMHw…        a countersignature, with the time at which the silo saw it

Source:
    C2SP signed-note v1.0.0; C2SP tlog-cosignature v1.0.0, Ed25519 ("cosignature/v1").
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sordino.core.errors import VerificationError
from sordino.ledger.keys import SigningKey, VerifyKey, decoded

COSIGNED = b"\x04"
"""Kind of a countersignature, in key numbers."""

_DASH = "\u2014"
_LATEST = 253402300799  # the year 9999, the last that a time of Python can hold


@dataclass(frozen=True)
class Note:
    r"""A text and the signatures under it, not yet checked.

    >>> key = SigningKey.generate("clinic-a")
    >>> note = Note("hello\n").signed(key)
    >>> note.check(key.public)
    >>> Note.parse(str(note)) == note
    True
    """

    text: str
    signatures: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.text + "\n" + "".join(f"{_DASH} {name} {value}\n" for name, value in self.signatures)

    @classmethod
    def parse(cls, note: str) -> Note:
        """The inverse of `str`.

        Raises:
            VerificationError: It is not in the layout of a note.
        """
        text, gap, tail = note.rpartition("\n\n")
        lines = [line.split(" ") for line in tail.removesuffix("\n").split("\n")]
        tidy = gap and tail.endswith("\n") and all(len(line) == 3 and line[0] == _DASH for line in lines)
        if not tidy or any(letter < " " and letter != "\n" for letter in note):
            raise VerificationError.about("note", "is not a signed note")
        return cls(text + "\n", tuple((name, value) for _, name, value in lines))

    def signed(self, key: SigningKey) -> Note:
        """With one more signature."""
        return self._with(key.name, key.sign(self.text.encode()))

    def cosigned(self, key: SigningKey, seen: datetime | None = None) -> Note:
        """With one more countersignature: at this time, the signer had seen nothing later."""
        time = int((seen or datetime.now(UTC)).timestamp())
        value = key.public.number(COSIGNED) + struct.pack(">Q", time) + key.sign_raw(_countersigned(self.text, time))
        return self._with(key.name, base64.b64encode(value).decode())

    def with_cosignature(self, name: str, signature: str) -> Note:
        """With a countersignature that somebody else made."""
        return self._with(name, signature)

    def _with(self, name: str, signature: str) -> Note:
        return replace(self, signatures=(*self.signatures, (name, signature)))

    def check(self, key: VerifyKey) -> None:
        """Return only if the key signed the text.

        Raises:
            VerificationError: It did not.
        """
        for value in self._by(key, key.number()):
            key.verify_raw(self.text.encode(), value)
            return
        raise VerificationError.about("note", "is not signed by this key", key=str(key))

    def check_cosignature(self, key: VerifyKey) -> datetime:
        """The time at which the key's owner says to have seen this text, and nothing later.

        Raises:
            VerificationError: They did not say so.
        """
        for value in self._by(key, key.number(COSIGNED)):
            if len(value) != 8 + 64:
                break
            (time,) = struct.unpack(">Q", value[:8])
            if time > _LATEST:
                break
            key.verify_raw(_countersigned(self.text, time), value[8:])
            return datetime.fromtimestamp(time, UTC)
        raise VerificationError.about("note", "is not countersigned by this key", key=str(key))

    def _by(self, key: VerifyKey, number: bytes) -> Iterable[bytes]:
        for name, text in self.signatures:
            if name == key.name:
                value = decoded(text)
                if value[:4] == number:
                    yield value[4:]


def _countersigned(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()
