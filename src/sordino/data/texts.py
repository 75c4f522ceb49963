"""Texts and conversations before a model's tokenizer has read them: what loaders of text return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.data.examples import BELONGING

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Args:
        role: Who speaks: "system", "user" or "assistant".
        content: What is said.
    """

    role: str
    content: str


Record: TypeAlias = str | tuple[Message, ...]
"""A text, or a conversation whose assistant turns are to be learnt."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Records of text, and who they belong to where that is known.

    `sordino.data.tokenise.encode` makes examples of them, for one model's tokenizer and one public length.

    Args:
        records: One text or conversation each.
        y: Labels, shape (n,), int64 in [0, classes), where texts are to be classified.
        classes: Number of classes, public; None without labels.
        client: The natural client of each record, shape (n,), or None.
        user: The person behind each record, shape (n,), or None.
        group: A public label per record that sets its budget, e.g. its tier of consent, shape (n,), or None.
        public: Published research data, whose plain metrics may be shown.
        source: Where the data comes from, for reports.
        licence: Under what terms, for reports.

    >>> len(Texts(records=("good", "bad"), y=np.array([1, 0]), classes=2).validated("mine"))
    2
    """

    records: tuple[Record, ...]
    y: NDArray[np.int64] | None = None
    classes: int | None = None
    client: NDArray[Any] | None = None
    user: NDArray[Any] | None = None
    group: NDArray[Any] | None = None
    public: bool = False
    source: str = ""
    licence: str = ""

    def __len__(self) -> int:
        return len(self.records)

    def validated(self, where: str) -> Self:
        """These texts, if nothing is wrong with them.

        Args:
            where: The data set's name in messages, e.g. "dataset.text".

        Raises:
            ConfigError: No records, lengths that differ, an empty text, an unknown role, or a label that is
                missing or outside the classes.

        >>> Texts(records=((Message("doctor", "Rest."),),)).validated("mine")
        Traceback (most recent call last):
        sordino.core.errors.ConfigError: mine: record 0, message 0 has role 'doctor'; (known: assistant, system, user)
        """
        if not self.records:
            raise ConfigError.about(where, "holds no records", "check the file and the chosen part")
        for name in ("y", *BELONGING):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.records):
                raise ConfigError.about(where, f"has {len(array)} rows of {name} but {len(self.records)} records")
        for i, record in enumerate(self.records):
            _check_record(where, i, record)
        self._check_labels(where)
        return self

    def _check_labels(self, where: str) -> None:
        if (self.y is None) != (self.classes is None):
            raise ConfigError.about(where, "has labels or classes, but not both", "give both, or neither")
        if self.y is None or self.classes is None:
            return
        if self.y.dtype != np.int64 or self.y.ndim != 1:
            raise ConfigError.about(where, f"has labels of type {self.y.dtype} and shape {self.y.shape}", "use int64")
        wrong = np.flatnonzero((self.y < 0) | (self.y >= self.classes))
        if len(wrong):
            rule = f"record {wrong[0]} has label {self.y[wrong[0]]}, outside the {self.classes} classes"
            raise ConfigError.about(where, rule, f"labels run from 0 to {self.classes - 1}")


def _check_record(where: str, i: int, record: Record) -> None:
    if isinstance(record, str):
        if not record.strip():
            raise ConfigError.about(where, f"record {i} is an empty text", "leave it out")
        return
    if not record:
        raise ConfigError.about(where, f"record {i} has no messages", "leave it out")
    for j, message in enumerate(record):
        if message.role not in ROLES:
            rule = f"record {i}, message {j} has role {message.role!r}"
            raise ConfigError.about(where, rule, nearest(message.role, ROLES))
        if not message.content.strip():
            raise ConfigError.about(where, f"record {i}, message {j} is empty", "leave the record out")
