"""What a check found: one row each, with evidence, and a snippet that shows it again."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Result(enum.StrEnum):
    """The verdicts, best first."""

    PASS = "PASS"  # noqa: S105 - a verdict
    """Nothing found."""
    REFUSED = "REFUSED"
    """It fails closed on something public: nothing was released."""
    NOT_APPLICABLE = "N-A"
    """The question has no meaning here, or the target offers no way to ask it."""
    NOTE = "NOTE"
    """Worth knowing; contradicts nothing."""
    FAIL = "FAIL"
    """Something that the claim excludes happened, or the result is ruined."""
    CRASH = "CRASH"
    """One unit's data ends the round, or never lets it end."""


class Fault(enum.StrEnum):
    """What kind of fault a FAIL or CRASH is."""

    CLAIM = "violates the stated claim"
    DEFAULT = "unsafe default that its documentation discloses"
    HARM = "keeps the claim, but ruins the result"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One case of a check.

    Args:
        result: The verdict.
        case: What was tried, in a few words; distinct within a check.
        evidence: What was seen, in a sentence with its numbers.
        numbers: The same numbers by name.
        shows: Python lines that show it again, given `target` and `np`.
        harm: A FAIL or CRASH leaves the claim as it is: what is lost is the result.
    """

    result: Result
    case: str
    evidence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    shows: str = ""
    harm: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Args:
        target: Whose.
        id: The check, `C01` to `C20`.
        check: What the check asks, and the case.
        result: The verdict.
        evidence: What was seen.
        numbers: The numbers of the evidence by name.
        fault: For FAIL and CRASH, which kind.
        disclosed: Where its documentation says so.
        reproduction: A runnable snippet, for FAIL and CRASH.
    """

    target: str
    id: str
    check: str
    result: Result
    evidence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    fault: Fault | None = None
    disclosed: str = ""
    reproduction: str = ""

    @property
    def faulty(self) -> bool:
        """Whether something is wrong."""
        return self.result in (Result.FAIL, Result.CRASH)

    def to_plain(self) -> dict[str, Any]:
        """The row as JSON-able values."""
        return {
            "target": self.target,
            "id": self.id,
            "check": self.check,
            "result": self.result.value,
            "evidence": self.evidence,
            "numbers": {name: value if abs(value) < float("inf") else None for name, value in self.numbers.items()},
            "kind": self.fault.value if self.fault else None,
            "disclosed": self.disclosed,
            "reproduction": self.reproduction,
        }
