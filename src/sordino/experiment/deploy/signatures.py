"""Signatures over the exact code that a site will run, in the form that a Flower node checks. No Flower is needed here.

A signature is over eight bytes of time and the SHA-256 of the code bundle, by an Ed25519 key. Texts that these keys
sign elsewhere begin with a word, and a time in seconds begins with four zero bytes until the year 2106, so that no
signature passes for another.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sordino.core import tables
from sordino.core.errors import ConfigError, VerificationError
from sordino.ledger.keys import SigningKey, VerifyKey

FOLDER = "signatures"
"""Where a coordinator keeps what reviewers sent."""


@dataclass(frozen=True)
class CodeSignature:
    """One reviewer's word for one bundle of code.

    Args:
        fab: SHA-256 of the bundle, in hexadecimal.
        reviewer: Name of the key.
        signed_at: When, in seconds.
        signature: The 64 bytes in URL-safe base64.
    """

    fab: str
    reviewer: str
    signed_at: int
    signature: str

    def verify(self, keys: Sequence[VerifyKey], bundle: bytes) -> None:
        """Return only if one of the keys signed this bundle.

        Raises:
            VerificationError: None did.
        """
        digest = hashlib.sha256(bundle).digest()
        key = next((key for key in keys if key.name == self.reviewer), None)
        if key is None:
            raise VerificationError.about("code signature", "is by nobody who reviews here", reviewer=self.reviewer)
        if digest.hex() != self.fab:
            raise VerificationError.about("code signature", "is for other code", "sign again", fab=self.fab[:16])
        key.verify_raw(_message(self.signed_at, digest), base64.urlsafe_b64decode(self.signature))

    def json(self) -> str:
        """For a file."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def entry(self) -> str:
        """For Flower's database."""
        return json.dumps({"signed_at": self.signed_at, "signature": self.signature})


def _message(signed_at: int, digest: bytes) -> bytes:
    return signed_at.to_bytes(8, "big") + digest


def sign(key: SigningKey, bundle: bytes, *, signed_at: int | None = None) -> CodeSignature:
    """A reviewer's signature over a bundle of code.

    >>> key = SigningKey.generate("north")
    >>> sign(key, b"code").verify([key.public], b"code")
    """
    moment = int(time.time()) if signed_at is None else signed_at
    digest = hashlib.sha256(bundle).digest()
    value = base64.urlsafe_b64encode(key.sign_raw(_message(moment, digest))).decode()
    return CodeSignature(digest.hex(), key.name, moment, value)


def read(folder: Path, bundle: bytes) -> list[CodeSignature]:
    """The signatures over a bundle among the files of a coordinator's folder; those over other bundles are left out.

    Raises:
        ConfigError: A file is none.
    """
    digest = hashlib.sha256(bundle).hexdigest()
    return [one for one in map(_read, sorted((folder / FOLDER).glob("*.json"))) if one.fab == digest]


def _read(file: Path) -> CodeSignature:
    try:
        return tables.build(CodeSignature, json.loads(file.read_text(encoding="utf-8")), "code signature")
    except (OSError, ValueError) as error:
        raise ConfigError.about("code signature", "cannot be read", "sign again", file=file.name) from error


def trusted_entities(keys: Sequence[VerifyKey]) -> str:
    """The file by which a Flower node knows whose signatures count: names to public keys in OpenSSH's form.

    Raises:
        ConfigError: Two keys have one name.
    """
    names = [key.name for key in keys]
    if len(set(names)) < len(names):
        raise ConfigError.about("reviewers", "must have names of their own, unlike the site's", names=names)
    return "".join(f"{json.dumps(key.name)}: {json.dumps(_openssh(key))}\n" for key in keys)


def _openssh(key: VerifyKey) -> str:
    public = Ed25519PublicKey.from_public_bytes(key.raw)
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
