"""TOML tables to frozen dataclasses, strictly: an unknown key or a wrong type is an error."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from typing import Any, TypeVar, cast

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError

T = TypeVar("T")

_hints = functools.cache(typing.get_type_hints)  # a tenth of a millisecond each, and rounds build many small parts


def build(cls: type[T], table: object, where: str) -> T:
    """A frozen dataclass from a TOML table.

    Nested dataclasses, `X | None`, `tuple[X, ...]`, `dict[str, X]`, enums and `Literal` are understood;
    a whole number serves as a float. Fields with `metadata={"toml": False}` are not keys.

    Args:
        cls: The dataclass whose fields are the table's keys.
        table: What the TOML reader gave.
        where: The dotted place in the file, used in messages.

    Raises:
        ConfigError: Unknown or missing key, or a value of the wrong type, with the nearest known name.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Clip:
    ...     norm: float
    >>> build(Clip, {"norm": 1}, "clip")
    Clip(norm=1.0)
    """
    if not isinstance(table, dict):
        raise ConfigError.about(where, f"must be a table, not {_kind(table)}")
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls)) if f.metadata.get("toml", True)}
    for key in table:
        if key not in fields:
            raise ConfigError.about(where, f"has no key {key!r}", nearest(str(key), fields))
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise ConfigError.about(where, f"lacks the key {name!r}", f"add `{name} = …`")
    hints = _hints(cast(Any, cls))
    values = {key: _convert(hints[key], value, f"{where}.{key}") for key, value in table.items()}
    return cls(**values)


def plain(value: object) -> Any:
    """A dataclass tree as JSON-able values, `None` left out: the inverse of `build`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {key: plain(item) for key, item in pairs.items() if item is not None}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def value(hint: Any, given: object, where: str) -> Any:
    """One value of the type that a hint names, as `build` takes them for its fields.

    Raises:
        ConfigError: It is of another type.

    >>> value(dict[str, tuple[int, ...]], {"a": [1, 2]}, "here")
    {'a': (1, 2)}
    """
    return _convert(hint, given, where)


def _convert(hint: Any, value: object, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in arguments if a is not type(None)]
        return _convert_union(inner, value, where)
    if origin is typing.Literal:
        return _choice(arguments, value, where)
    if origin is tuple:
        return _sequence(arguments[0], value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError.about(where, f"must be a table, not {_kind(value)}")
        return {str(k): _convert(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(_choice([m.value for m in hint], value, where))
    if dataclasses.is_dataclass(hint):
        return build(cast(type, hint), value, where)
    return _scalar(hint, value, where)


def _convert_union(inner: list[Any], value: object, where: str) -> Any:
    error: ConfigError | None = None
    for hint in inner:
        try:
            return _convert(hint, value, where)
        except ConfigError as problem:
            error = error or problem
    raise cast(ConfigError, error)


def _choice(known: Any, value: object, where: str) -> object:
    if value not in known:
        raise ConfigError.about(where, f"{value!r} is not known", nearest(str(value), map(str, known)))
    return value


def _sequence(hint: Any, value: object, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError.about(where, f"must be a list, not {_kind(value)}")
    return tuple(_convert(hint, item, f"{where}[{i}]") for i, item in enumerate(value))


def _scalar(hint: Any, value: object, where: str) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if hint is float and (whole or isinstance(value, float)):
        return float(cast(float, value))
    if (hint is int and whole) or (hint in (str, bool) and isinstance(value, hint)):
        return value
    names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    raise ConfigError.about(where, f"{value!r} must be {names.get(hint, hint)}")


def _kind(value: object) -> str:
    return {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a table",
    }.get(type(value), type(value).__name__)
