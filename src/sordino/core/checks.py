"""Small preconditions with one clear line each. They raise; they never log."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

from sordino.core.errors import ConfigError


def nearest(name: str, known: Iterable[str]) -> str:
    """`"did you mean 'clip'? (known: clip, weight)"` for a misspelt name.

    >>> nearest("clpi", ["clip", "weight"])
    "did you mean 'clip'? (known: clip, weight)"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}(known: {', '.join(known) or 'none'})"


def one_of(where: str, known: Iterable[str], /, **argument: str) -> str:
    """The single argument, if it is one of the known names."""
    ((name, value),) = argument.items()
    known = list(known)
    if value not in known:
        raise ConfigError.about(where, "is not known", nearest(str(value), known), **{name: value})
    return value


def positive(where: str, /, **arguments: float) -> None:
    """Every argument is finite and above zero."""
    _require(where, "must be a finite number above 0", lambda v: v > 0, arguments)


def sensible(where: str, /, **arguments: float) -> None:
    """Every argument is above zero, and no larger or smaller than the arithmetic of a whole run can bear."""
    positive(where, **arguments)
    _require(where, "must lie between 1e-12 and 1e12", lambda v: 1e-12 <= v <= 1e12, arguments)


def non_negative(where: str, /, **arguments: float) -> None:
    """Every argument is finite and not below zero."""
    _require(where, "must be a finite number, 0 or more", lambda v: v >= 0, arguments)


def fraction(where: str, /, **arguments: float) -> None:
    """Every argument lies strictly between 0 and 1."""
    _require(where, "must lie strictly between 0 and 1", lambda v: 0 < v < 1, arguments)


def rate(where: str, /, **arguments: float) -> None:
    """Every argument lies in (0, 1]."""
    _require(where, "must lie in (0, 1]", lambda v: 0 < v <= 1, arguments)


def count(where: str, /, **arguments: int) -> None:
    """Every argument is a whole number of at least 1."""
    for name, value in arguments.items():
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise ConfigError.about(where, "must be a whole number of at least 1", **{name: value})


def _require(where: str, rule: str, holds: object, arguments: dict[str, float]) -> None:
    for name, value in arguments.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and holds(value)):  # type: ignore[operator]
            raise ConfigError.about(where, rule, **{name: value})
