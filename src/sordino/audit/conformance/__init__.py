"""The same questions put to any differentially private mechanism, ours and other people's.

    protocol.py   what an adapter must have: `claim` and `release`; all else is optional
    measure.py    sensitivity and noise by common random numbers
    checks/       the questions, C01 to C20
    adapters/     the frameworks that are asked
    suite.py      questions × targets → rows
    table.py      rows → a page
    plugin.py     rows → one pytest test each

Names are imported when they are used: pytest loads the plugin in everybody's runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sordino.audit.conformance.measure import Bench
    from sordino.audit.conformance.protocol import Declared, NotApplicable, Refused, Target
    from sordino.audit.conformance.suite import answers, examine
    from sordino.audit.conformance.targets import load
    from sordino.audit.conformance.verdicts import Fault, Outcome, Result, Row

_HOMES = {
    "Bench": "measure",
    "Declared": "protocol",
    "Fault": "verdicts",
    "NotApplicable": "protocol",
    "Outcome": "verdicts",
    "Refused": "protocol",
    "Result": "verdicts",
    "Row": "verdicts",
    "Target": "protocol",
    "answers": "suite",
    "examine": "suite",
    "load": "targets",
}

__all__ = [
    "Bench",
    "Declared",
    "Fault",
    "NotApplicable",
    "Outcome",
    "Refused",
    "Result",
    "Row",
    "Target",
    "answers",
    "examine",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
