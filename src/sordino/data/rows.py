"""Rows as dictionaries, out of JSON Lines, JSON, CSV, Parquet, a folder of them, or a Hugging Face data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from sordino.core.errors import ConfigError

Row: TypeAlias = dict[str, Any]

PARQUET = (".parquet", ".pq")
KINDS = (".jsonl", ".json", ".csv", *PARQUET)
IN_FOLDERS = (".jsonl", *PARQUET)
"""A folder may hold other JSON and CSV files that describe it."""


def rows(where: str, path: str, split: str | None) -> list[Row]:
    """All rows, in the file's order.

    Args:
        where: The data set's name in messages.
        path: A file, a folder of .jsonl and .parquet files, or a data set's name on the Hugging Face hub.
        split: Of a folder or a Hugging Face data set: which part, e.g. "train". A folder's part is the files that, or
            whose folder, begin with its name; all of them where None.

    Raises:
        ConfigError: The file does not exist or cannot be read, a library for it is missing, or there is no such part.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        return [row for file in _files(where, local, split) for row in _read(where, file)]
    if local.is_file():
        return list(_read(where, local))
    if local.suffix in KINDS or path.startswith(("/", "./", "../", "~")):
        raise ConfigError.about(where, "does not exist", "give the path of a file or folder", path=path)
    return _from_hub(where, path, split or "train")


def _files(where: str, folder: Path, split: str | None) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix in IN_FOLDERS and file.is_file())
    if split is not None:
        files = [file for file in files if any(part.startswith(split) for part in file.relative_to(folder).parts)]
    if not files:
        part = "" if split is None else f" of the part {split!r}"
        remedy = f"it must hold {' or '.join(IN_FOLDERS)} files"
        raise ConfigError.about(where, f"holds no file{part}", remedy, path=folder.name)
    return files


def _read(where: str, file: Path) -> Iterator[Row]:
    if file.suffix == ".jsonl":
        yield from _json_lines(where, file)
        return
    try:
        yield from _table(where, file)
    except ImportError:
        remedy = "pip install 'sordino[tables]'"
        raise ConfigError.about(where, "needs pandas and pyarrow", remedy, path=file.name) from None
    except (ValueError, OSError) as problem:
        first = str(problem).splitlines()[0]
        remedy = f"give a file of the kinds {', '.join(KINDS)}"
        raise ConfigError.about(where, f"cannot be read ({first})", remedy, path=file.name) from None


def _table(where: str, file: Path) -> list[Row]:
    if file.suffix == ".json":
        found = json.loads(file.read_text("utf-8"))
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise ConfigError.about(where, "is no list of objects", "write [{…}, {…}]", path=file.name)
        return found
    if file.suffix in PARQUET:
        from pyarrow.parquet import read_table

        return list(read_table(file).to_pylist())
    import pandas as pd

    # As texts: pandas would else read 'null' as missing, and 007 as a number.
    return list(pd.read_csv(file, dtype=str, keep_default_na=False).to_dict("records"))


def _json_lines(where: str, file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise ConfigError.about(where, f"line {number} is no JSON object", "write {…}", path=file.name)
            yield row


def _from_hub(where: str, name: str, split: str) -> list[Row]:
    try:
        library = import_module("datasets")
    except ImportError:
        rule = "is no file here, and data sets of the hub need the library datasets"
        raise ConfigError.about(where, rule, "pip install datasets, or give the path of a file", path=name) from None
    try:
        return [dict(row) for row in library.load_dataset(name, split=split)]
    except (OSError, ValueError, RuntimeError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        remedy = "check the name, the split and the network, or give the path of a file"
        raise ConfigError.about(where, f"could not be had ({first})", remedy, path=name) from None
