"""The questions, C01 to C20, a file for each group. The same ones for every target: none knows whose it is.

sensitivity  C01 C02 C03    how far one unit moves a release, by weight and by dropouts
hostile      C04 C05        what one client may send: values, types, names
noise        C06 C07 C08    is everything noised, by the right law, anew each time
adaptive     C09            a clip norm that follows the updates
budget       C11 C12        noise from ε; what releases cost
sampling     C10 C13        who takes part; the claim as a whole, by canaries
leakage      C14            an attack with its positive control
secure       C15            secure summation
modules      C16 C17        every trained tensor; records that influence one another
bits         C18            what the last bits of a float tell
harm         C19            what protection must not ruin
memory       C20            what was spent, over rounds, runs and processes
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sordino.audit.conformance.measure import Bench
from sordino.audit.conformance.verdicts import Outcome
from sordino.core.errors import ConfigError

Ask: TypeAlias = Callable[[Bench], Iterator[Outcome]]


@dataclass(frozen=True)
class Check:
    """One question.

    Args:
        id: `C01` to `C20`.
        asks: The question, in a few words.
        ask: Gives one outcome for each case.
    """

    id: str
    asks: str
    ask: Ask


_found: dict[str, Check] = {}


def check(id: str, asks: str) -> Callable[[Ask], Ask]:  # noqa: A002 - the table's word
    """Function decorator: make the question part of the suite."""

    def add(ask: Ask) -> Ask:
        if id in _found:
            raise ConfigError.about("check", "is registered twice", id=id)
        _found[id] = Check(id, asks, ask)
        return ask

    return add


def checks() -> list[Check]:
    """All questions, in order."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [_found[name] for name in sorted(_found)]
