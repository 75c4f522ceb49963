"""Ed25519 keys with names: who signed a checkpoint, a grant, a policy. A private key is never printed.

The printable forms are those of C2SP signed notes, so that other programs read them:

public key   `clinic-a+94a1c2e7+<base64 of 0x01 and the 32 bytes>`
signature    `<base64 of the 4-byte key number and the 64 bytes>`
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sordino.core.errors import ConfigError, VerificationError

ED25519 = b"\x01"
"""Kind of a plain signature, in key numbers."""

_NAME = "name: "


def _check_name(name: str) -> None:
    if not name or "+" in name or not name.isprintable() or any(letter.isspace() for letter in name):
        raise ConfigError.about("key", "must be a printable word without '+'", "e.g. 'clinic-a'", name=name)


def decoded(text: str) -> bytes:
    """The bytes of a base64 text.

    Raises:
        VerificationError: It is none; nothing is skipped or guessed, so each value has one text.
    """
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VerificationError.about("signature", "is not base64") from error
    if base64.b64encode(value).decode() != text:
        raise VerificationError.about("signature", "is not base64 in its one form")
    return value


@dataclass(frozen=True)
class VerifyKey:
    """A public key and the name of its owner.

    Args:
        name: A printable word without "+".
        raw: The 32 bytes.

    Source:
        C2SP signed-note, "Signature types" and "Verifier keys".
    """

    name: str
    raw: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.raw) != 32:
            raise ConfigError.about("key", "must be 32 bytes", bytes=len(self.raw))

    def number(self, kind: bytes = ED25519) -> bytes:
        """Four bytes by which a signature says whose it is; a hint, not a proof."""
        return hashlib.sha256(self.name.encode() + b"\n" + kind + self.raw).digest()[:4]

    def verify(self, message: bytes, signature: str) -> None:
        """Return only if this key's owner signed the message.

        Raises:
            VerificationError: They did not.
        """
        value = decoded(signature)
        if value[:4] != self.number():
            raise VerificationError.about("signature", "is by another key", key=self.name)
        self.verify_raw(message, value[4:])

    def verify_raw(self, message: bytes, signature: bytes) -> None:
        """As `verify`, of the 64 bytes alone."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature as error:
            raise VerificationError.about("signature", "is not by this key", key=self.name) from error

    def __str__(self) -> str:
        return f"{self.name}+{self.number().hex()}+{base64.b64encode(ED25519 + self.raw).decode()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`.

        Raises:
            ConfigError: It is not the text of a public key.
        """
        name, _, rest = text.strip().partition("+")
        number, _, coded = rest.partition("+")
        try:
            raw = decoded(coded)
        except VerificationError:
            raw = b""
        if raw[:1] != ED25519 or len(raw) != 33:
            raise ConfigError.about("key", "is not a public key", "expected name+number+base64", key=text)
        key = cls(name, raw[1:])
        if key.number().hex() != number:
            raise ConfigError.about("key", "has a wrong number: it was mistyped or changed", key=text)
        return key


@dataclass(frozen=True)
class SigningKey:
    """A private key. Its text shows the public half only.

    One key signs several kinds of text (checkpoints, grants, policies), so each kind must begin differently.

    >>> key = SigningKey.generate("clinic-a")
    >>> key.public.verify(b"grant 7", key.sign(b"grant 7"))
    >>> VerifyKey.parse(str(key.public)) == key.public
    True
    """

    name: str
    private: Ed25519PrivateKey = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)

    @classmethod
    def generate(cls, name: str) -> Self:
        """A new key from the system's randomness."""
        return cls(name, Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ConfigError: The file is not there, is no Ed25519 key with a name, or others can read it.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode  # of the file that is read, not of one swapped in after
                text = file.read()
        except OSError as error:
            raise ConfigError.about(
                "key", f"cannot be read ({error.strerror})", "make one with `generate`", file=str(path)
            ) from error
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError.about("key", "can be read by others", f"chmod 600 {path.name}", file=str(path))
        first, _, pem = text.partition(b"\n")
        if not first.startswith(_NAME.encode()):
            raise ConfigError.about("key", f"must begin with a line `{_NAME}…`", file=str(path))
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            private = None  # the parser's own message may quote the file
        if not isinstance(private, Ed25519PrivateKey):
            raise ConfigError.about("key", "is not an Ed25519 key in PEM (PKCS #8)", file=str(path))
        return cls(first.decode(errors="replace").removeprefix(_NAME).strip(), private)

    def save(self, path: str | Path) -> None:
        """Write a new file that only its owner can read: a line with the name, then PEM (PKCS #8).

        Raises:
            ConfigError: The file exists already; a key is never overwritten.
        """
        pem = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise ConfigError.about("key", f"cannot be written ({error.strerror})", file=str(path)) from error
        with os.fdopen(number, "wb") as file:
            file.write(_NAME.encode() + self.name.encode() + b"\n" + pem)
            file.flush()
            os.fsync(file.fileno())

    @property
    def public(self) -> VerifyKey:
        """The half that may be shown to everybody."""
        raw = self.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return VerifyKey(self.name, raw)

    def sign(self, message: bytes) -> str:
        """The signature, for `VerifyKey.verify`."""
        return base64.b64encode(self.public.number() + self.sign_raw(message)).decode()

    def sign_raw(self, message: bytes) -> bytes:
        """The 64 bytes alone."""
        return self.private.sign(message)

    def verify(self, message: bytes, signature: str) -> None:
        """As `VerifyKey.verify`."""
        self.public.verify(message, signature)

    def __str__(self) -> str:
        return f"signing key of {self.public}"
