"""A silo's side of sums under homomorphic encryption: it seals its released updates, and opens one sum for each."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from sordino.core.errors import PrivacyError
from sordino.core.types import Vector
from sordino.federation.secure.homomorphic import Key, Terms, decrypt, encrypt

KEY = "homomorphic.key"
"""In a site's folder: the one secret key, the same at all sites and nowhere else."""


class Sealing:
    """What is sealed and not opened yet lives in this process only.

    Args:
        folder: The site's.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / KEY
        self._sealed: Terms | None = None

    @cached_property
    def key(self) -> Key:
        """The silos' key.

        Raises:
            ConfigError: It is not there.
        """
        return Key.load(self._file)

    def sealed(self, terms: Terms, update: Vector) -> bytes:
        """A released update, as only silos can read it."""
        content = encrypt(self.key, terms, update)
        self._sealed = terms
        return content

    def opened(self, txid: str, total: bytes) -> Vector:
        """The sum of a round in which the silo sent something, once for each time that it sent.

        Raises:
            PrivacyError: It sent nothing, or the sum was opened.
            EngineError: These are the bytes of no sum of this round.
        """
        terms, self._sealed = self._sealed, None
        if terms is None or terms.txid != txid:
            raise PrivacyError.about("site", "has no sum to open: it opens one for each update it sealed", txid=txid)
        return decrypt(self.key, terms, total)
