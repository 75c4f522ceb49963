"""A registry per extension point: filled by decorator when the folder is imported, read by name.

Contract tests, `sordino list` and the reference pages run over the registries, so that a new
file is configured, tested and documented as soon as it exists.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from sordino.core.checks import one_of
from sordino.core.errors import ConfigError
from sordino.core.tables import build

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Named frozen dataclasses of one kind. Each has an `example`: a valid TOML table for it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, type] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator: make the class reachable under a name."""

        def add(cls: C) -> C:
            if name in self._classes:
                raise ConfigError.about(self.kind, "is registered twice", name=name)
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted(self._classes)

    def get(self, name: str) -> type:
        """The class of a name, or an error that offers the nearest."""
        one_of(self.kind, self._classes, name=name)
        return self._classes[name]

    def build(self, name: str, table: object, where: str | None = None) -> T:
        """The value that a TOML table describes."""
        value: T = build(self.get(name), table, where or f"{self.kind}.{name}")
        return value

    def example(self, name: str) -> T:
        """A valid value, for contract tests and reference pages."""
        return self.build(name, getattr(self.get(name), "example"))  # noqa: B009 - a class attribute no type declares

    def summary(self, name: str) -> str:
        """First line of the class's docstring."""
        return (self.get(name).__doc__ or "").strip().splitlines()[0]

    def name_of(self, value: object) -> str:
        """The name a value's class is registered under."""
        return next(name for name, cls in self._classes.items() if cls is type(value))


def load(package: str, path: Iterable[str]) -> None:
    """Import every module of a folder, so that its classes register themselves."""
    for module in pkgutil.iter_modules(path):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")


def single(where: str, table: Any) -> tuple[str, dict[str, Any]]:
    """The one `name = { … }` entry of a table such as `[strategy.momentum]`."""
    if not isinstance(table, dict) or len(table) != 1:
        raise ConfigError.about(where, "must hold exactly one named table", f"e.g. `[{where}.NAME]`")
    ((name, keys),) = table.items()
    return str(name), keys
