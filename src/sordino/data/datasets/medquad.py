"""Medical questions and answers of nine sites of the National Institutes of Health."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.datasets.dialogue import Dialogue
from sordino.data.fetch import Archive, cache_folder, located
from sordino.data.rows import Row, rows
from sordino.data.texts import Message, Texts

WHERE = "dataset.medquad"
FILE = "medquad_short.jsonl"
SITES = 9


@datasets.register("medquad")
@dataclass(frozen=True)
class MedQuad:
    """Medical questions and answers of nine NIH sites, as conversations; the site is the natural client.

    No package carries the file. It is JSON Lines with the keys source, question and answer, at `path` or in the cache
    folder as medquad_short.jsonl.

    Args:
        path: The file, or its folder.
        otherwise: Where there is no file: "error", or "shakespeare": the dialogue of Shakespeare's nine longest plays
            instead, so that an example runs everywhere. The source says which it was.
    """

    example: ClassVar[dict[str, Any]] = {"path": FILE}
    source: ClassVar[str] = "Ben Abacha and Demner-Fushman (2019), MedQuAD, BMC Bioinformatics 20:511; short answers"
    licence: ClassVar[str] = "CC BY 4.0"
    fetch: ClassVar[Archive | None] = None
    path: str | None = None
    otherwise: Literal["error", "shakespeare"] = "error"

    def load(self) -> Texts:
        """The questions and answers in the file's order."""
        file = self._file()
        if file is None:
            return _shakespeare()
        found = rows(WHERE, str(file), None)
        return Texts(
            records=tuple(_record(i, row) for i, row in enumerate(found)),
            client=np.array([_text(i, row, "source") for i, row in enumerate(found)]),
            public=True,
            source=self.source,
            licence=self.licence,
        ).validated(WHERE)

    def _file(self) -> Path | None:
        """The file, or None where Shakespeare is to stand in."""
        given = None if self.path is None else Path(self.path).expanduser()
        for path in (given, cache_folder()):
            for file in () if path is None else (path, path / FILE):
                if file.is_file():
                    return file
        if self.otherwise == "shakespeare":
            return None
        located("medquad", self.path)
        raise ConfigError.about(WHERE, f"holds no {FILE}", "give the path of the file", path=self.path)


def _shakespeare() -> Texts:
    texts = Dialogue(silos=SITES).load()
    return replace(texts, source=f"{texts.source}; in place of MedQuAD, whose file is not here")


def _record(i: int, row: Row) -> tuple[Message, Message]:
    return Message("user", _text(i, row, "question")), Message("assistant", _text(i, row, "answer"))


def _text(i: int, row: Row, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError.about(WHERE, f"row {i} has no text under {key!r}", "get the file again")
    return value
