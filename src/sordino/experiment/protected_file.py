"""A JSONL file in, a protected one out: the text's column replaced, other columns left out unless they are named."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.core.errors import ConfigError

WHERE = "protect"


@dataclass(frozen=True)
class Job:
    """What is read and what is written.

    Args:
        file: JSONL, one object a line.
        column: The column to protect.
        out: The protected file; its statement lies beside it.
        keep: Columns that pass as they are, unprotected.
    """

    file: Path
    column: str
    out: Path
    keep: tuple[str, ...] = ()

    @property
    def statement(self) -> Path:
        """Where the statement is written."""
        return self.out.with_name(self.out.name + ".statement.json")

    def rows(self) -> list[dict[str, Any]]:
        """The file's objects, if each has the text and the columns to keep; asked for before anything is charged.

        Raises:
            ConfigError: The file cannot be read so, or something would be written over.
        """
        for path in (self.out, self.statement):
            if path.exists():
                raise ConfigError.about(WHERE, "is there already", "choose another, or remove it", out=str(path))
        if not self.out.parent.is_dir():
            raise ConfigError.about(WHERE, "is no folder", "make it first", out=str(self.out.parent))
        if self.column in self.keep:
            raise ConfigError.about(WHERE, "would leave as it is", "do not keep it", column=self.column)
        try:
            lines = self.file.read_text("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "is not UTF-8 text"
            raise ConfigError.about(WHERE, f"cannot be read: {reason}", file=str(self.file)) from None
        rows = [self._row(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
        if not rows:
            raise ConfigError.about(WHERE, "holds no records", file=str(self.file))
        return rows

    def texts(self, rows: list[dict[str, Any]]) -> list[str]:
        """The column to protect."""
        return [row[self.column] for row in rows]

    def written(self, rows: list[dict[str, Any]], name: str, values: list[Any]) -> bytes:
        """The protected file's bytes: the kept columns and the protected one."""
        kept = ({column: row[column] for column in self.keep} for row in rows)
        lines = (json.dumps({**row, name: value}, ensure_ascii=False) for row, value in zip(kept, values, strict=True))
        return "".join(f"{line}\n" for line in lines).encode()

    def _row(self, number: int, line: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            raise ConfigError.about(WHERE, f"line {number} is not JSON", file=str(self.file)) from None
        if not isinstance(row, dict) or not isinstance(row.get(self.column), str):
            raise ConfigError.about(WHERE, f"line {number} has no text in it", file=str(self.file), column=self.column)
        if missing := [column for column in self.keep if column not in row]:
            raise ConfigError.about(WHERE, f"line {number} lacks them", file=str(self.file), keep=missing)
        return row


def put(path: Path, content: bytes) -> Path:
    """The content, synced, under a temporary name beside `path`: renaming it is all that is left to do."""
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def published(path: Path, content: bytes) -> None:
    """A file, whole or not at all."""
    put(path, content).replace(path)


def sha256(content: bytes) -> str:
    """Of the protected file, for its statement."""
    return hashlib.sha256(content).hexdigest()
