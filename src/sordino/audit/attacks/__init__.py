"""Attacks, one file each. Its contract: it finds a planted leak, and stays below the promise on a sound run."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from sordino.audit.findings import Finding, Grade
from sordino.core import registry

Progress: TypeAlias = Callable[[str], None]
"""Called with what is being done, e.g. "training shadow model 3 of 64"."""


class Kind(enum.StrEnum):
    """What an attack needs: the names of the files in `sordino.audit.subjects`."""

    CANARIES = "canaries"
    """A training that takes crafted records, each in or out by a fair coin."""
    CLIENTS = "clients"
    """Federated rounds that take crafted clients."""
    RECORDS = "records"
    """A training that can be repeated on chosen records, and the records themselves."""
    LANGUAGE = "language"
    """A language model's training that takes planted sequences."""
    MESSAGE = "message"
    """One message of a silo, and the model it was computed at."""


class Attack(Protocol):
    """Scores canaries or records against a model; its fields are its options."""

    example: ClassVar[Mapping[str, Any]]
    kind: ClassVar[Kind]
    grade: ClassVar[Grade]

    def run(self, subject: Any, progress: Progress) -> Finding:
        """Attack the subject, one of the attack's kind.

        Raises:
            DoesNotFit: The subject lacks what the attack needs; said before anything costly is done.
        """
        ...


attacks: registry.Registry[Attack] = registry.Registry("attack")

registry.load(__name__, __path__)
