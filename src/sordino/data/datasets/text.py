"""Texts or conversations of your own, with columns that name the client and the person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.fetch import Archive
from sordino.data.rows import Row, rows
from sordino.data.texts import Message, Record, Texts

WHERE = "dataset.text"


@datasets.register("text")
@dataclass(frozen=True)
class Text:
    """Texts or conversations of your own: JSON Lines, JSON, CSV, Parquet, or a Hugging Face data set.

    A record is one row. Give `text`, or `messages`, or `prompt` and `answer`. Nothing is learnt from the values:
    the classes are public knowledge that you state.

    Args:
        path: A .jsonl, .json, .csv or .parquet file, a folder of .jsonl and .parquet files, or a data set's name on
            the Hugging Face hub, which needs the library datasets.
        text: Column of plain texts.
        messages: Column of conversations: lists of {role, content}, the roles system, user and assistant.
        prompt: Column of what the user says; with `answer`.
        answer: Column of what the assistant answers, which is learnt.
        system: What the system says first in every conversation made of prompt and answer.
        label: Column to predict from the text. Left out, the text itself is to be continued.
        classes: Public values of the label, in order. May be left out for public data only, where they are the
            label's sorted values.
        client: Column that names the client, for the natural partition.
        user: Column that names the person behind a record, for the unit `user`.
        group: Column of a public label that sets a record's budget, e.g. its tier of consent.
        split: The part of a folder or a Hugging Face data set, e.g. "train".
        public: Published research data, whose plain metrics may be shown.
    """

    example: ClassVar[dict[str, Any]] = {
        "path": "notes.jsonl",
        "prompt": "question",
        "answer": "answer",
        "client": "site",
    }
    source: ClassVar[str] = "texts of your own"
    licence: ClassVar[str] = "yours"
    fetch: ClassVar[Archive | None] = None
    path: str | None = None
    text: str | None = None
    messages: str | None = None
    prompt: str | None = None
    answer: str | None = None
    system: str | None = None
    label: str | None = None
    classes: tuple[str, ...] | None = None
    client: str | None = None
    user: str | None = None
    group: str | None = None
    split: str | None = None
    public: bool = False

    def __post_init__(self) -> None:
        kinds = [self.text, self.messages, self.prompt or self.answer]
        if sum(kind is not None for kind in kinds) != 1:
            rule = "needs one of: text, messages, or prompt with answer"
            raise ConfigError.about(WHERE, rule, 'write e.g. text = "COLUMN"')
        if (self.prompt is None) != (self.answer is None):
            raise ConfigError.about(WHERE, "has only one of prompt and answer", "name both columns")
        if self.system is not None and self.prompt is None:
            rule = "goes with prompt and answer"
            raise ConfigError.about(WHERE, rule, "put it into the messages", system=self.system)
        if self.label is not None and self.classes is None and not self.public:
            remedy = 'write e.g. classes = ["no", "yes"]; which labels occur is private'
            raise ConfigError.about(WHERE, "needs classes, unless the data are public", remedy, label=self.label)

    def load(self) -> Texts:
        """The rows in the file's order."""
        if self.path is None:
            raise ConfigError.about(WHERE, "lacks the key 'path'", "no package carries this data: give path = …")
        found = rows(WHERE, self.path, self.split)
        if not found:
            raise ConfigError.about(WHERE, "holds no records", "check the file", path=self.path)
        self._check_columns(found[0])
        y, classes = self._labels(found)
        return Texts(
            records=tuple(self._record(i, row) for i, row in enumerate(found)),
            y=y,
            classes=classes,
            client=_column(found, self.client),
            user=_column(found, self.user),
            group=_column(found, self.group),
            public=self.public,
            source=self.source,
            licence=self.licence,
        ).validated(WHERE)

    def stand_in(self) -> Texts:
        """One made-up record of the declared form, for whoever has no file.

        Raises:
            ConfigError: The form is not all declared.
        """
        if self.label is not None and self.classes is None:
            raise ConfigError.about(WHERE, "needs classes where no file is at hand", "list them", label=self.label)
        said: dict[str, Any] = dict.fromkeys(filter(None, (self.text, self.prompt, self.answer)), "…")
        if self.messages is not None:
            said[self.messages] = [{"role": role, "content": "…"} for role in ("user", "assistant")]
        y, classes = (None, None) if self.classes is None else (np.zeros(1, np.int64), len(self.classes))
        return Texts((self._record(0, said),), y, classes, source=self.source, licence=self.licence)

    def _check_columns(self, first: Row) -> None:
        """Every column named anywhere, in the first row; later rows of JSON may still lack one."""
        wanted = (self.text, self.messages, self.prompt, self.answer, self.label, self.client, self.user, self.group)
        for name in wanted:
            if name is not None and name not in first:
                raise ConfigError.about(WHERE, f"has no column {name!r}", nearest(name, map(str, first)))

    def _record(self, i: int, row: Row) -> Record:
        if self.text is not None:
            return _words(i, row, self.text)
        if self.messages is not None:
            return _conversation(i, row, self.messages)
        asked = Message("user", _words(i, row, cast(str, self.prompt)))
        told = Message("assistant", _words(i, row, cast(str, self.answer)))
        return (asked, told) if self.system is None else (Message("system", self.system), asked, told)

    def _labels(self, found: Sequence[Row]) -> tuple[NDArray[np.int64] | None, int | None]:
        if self.label is None:
            return None, None
        names = [_name(i, row, self.label) for i, row in enumerate(found)]
        known = self.classes or tuple(sorted(set(names)))
        if len(known) < 2:
            raise ConfigError.about(WHERE, "has a single value", "a model needs two classes", label=self.label)
        place = {name: i for i, name in enumerate(known)}
        for i, name in enumerate(names):
            if name not in place:
                rule = f"row {i} has in column {self.label!r} none of the classes"
                raise ConfigError.about(WHERE, rule, f"known: {', '.join(known)}")
        return np.array([place[name] for name in names], np.int64), len(known)


def _words(i: int, row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError.about(WHERE, f"row {i} has no text in column {column!r}", "fill it, or leave the row out")
    return value


def _conversation(i: int, row: Row, column: str) -> tuple[Message, ...]:
    """A cell of messages; what is wrong with their roles and contents is found by `Texts.validated`."""
    cell = row.get(column)
    remedy = "write [{role, content}, …]"
    if not isinstance(cell, list) or not cell:
        raise ConfigError.about(WHERE, f"row {i} has no list of messages in column {column!r}", remedy)
    for j, turn in enumerate(cell):
        if not isinstance(turn, dict) or not all(isinstance(turn.get(key), str) for key in ("role", "content")):
            rule = f"row {i}, column {column!r}: message {j} lacks a text for role or content"
            raise ConfigError.about(WHERE, rule, remedy)
    return tuple(Message(turn["role"], turn["content"]) for turn in cell)


def _column(found: Sequence[Row], column: str | None) -> NDArray[Any] | None:
    return None if column is None else np.array([_name(i, row, column) for i, row in enumerate(found)])


def _name(i: int, row: Row, column: str) -> str:
    """A value as a name; a whole number has no decimal point, whatever type holds it."""
    value = row.get(column)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, (list, dict)) or not str(value).strip():
        raise ConfigError.about(WHERE, f"row {i} has nothing in column {column!r}", "every record needs one")
    return str(value)
