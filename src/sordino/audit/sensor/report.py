"""What the checks of one audit measured, and what follows at a stated rate of false alarms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Measured:
    """One check's result.

    Args:
        name: What was checked.
        p: Probability, if all is as declared, of something at least as odd. Already corrected for everything that
            the check looked at; 0 or 1 where chance has no part.
        says: What was found, in a few words.
        note: What is odd but costs no privacy, such as more noise than declared.
    """

    name: str
    p: float
    says: str
    note: str = ""


@dataclass(frozen=True)
class Check(Measured):
    """A result with its share of the audit's false-alarm rate."""

    share: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it is not too odd to be chance. A p-value that is not a number is no pass."""
        return self.p > self.share


@dataclass(frozen=True)
class Report:
    """All checks of one audit.

    Args:
        checks: In the order of the audit, one per name.
        alpha: The chance of any failure if everything is as declared, at most.
        not_driven: What the subject could not be asked, with the reason.
        cpu_seconds: What the audit cost.
    """

    checks: tuple[Check, ...]
    alpha: float
    not_driven: tuple[str, ...] = ()
    cpu_seconds: float = 0.0

    @classmethod
    def of(cls, measured: Iterable[Measured], alpha: float, not_driven: Iterable[str] = ()) -> Report:
        """The report at a total false-alarm rate, which the checks share equally.

        Results of one name count as one check: their smallest p-value times their number.

        >>> report = Report.of([Measured("a", 0.4, ""), Measured("a", 0.01, "odd"), Measured("b", 1.0, "")], 0.1)
        >>> [(check.name, check.p, check.share, check.passed) for check in report.checks]
        [('a', 0.02, 0.05, False), ('b', 1.0, 0.05, True)]
        """
        by_name: dict[str, list[Measured]] = {}
        for each in measured:
            by_name.setdefault(each.name, []).append(each)
        share = alpha / max(1, len(by_name))
        checks = []
        for name, several in by_name.items():
            worst = min(several, key=lambda each: -1.0 if math.isnan(each.p) else each.p)
            p = worst.p if math.isnan(worst.p) else min(1.0, worst.p * len(several))
            notes = "; ".join(dict.fromkeys(each.note for each in several if each.note))
            checks.append(Check(name, p, worst.says, notes, share))
        return cls(tuple(checks), alpha, tuple(not_driven))

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that did not pass, the oddest first."""
        failed = (check for check in self.checks if not check.passed)
        return tuple(sorted(failed, key=lambda check: (not math.isnan(check.p), check.p)))

    def took(self, cpu_seconds: float) -> Report:
        """The report with what it cost."""
        return replace(self, cpu_seconds=cpu_seconds)

    def counted(self) -> dict[str, Any]:
        """The report in a few numbers, for a summary."""
        return {
            "checks": len(self.checks),
            "failed": len(self.failed),
            "alpha": self.alpha,
            "cpu_seconds": round(self.cpu_seconds, 3),
        }

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "alpha": self.alpha,
            "failed": [check.name for check in self.failed],
            "cpu_seconds": round(self.cpu_seconds, 3),
            "not_driven": list(self.not_driven),
            "checks": [
                {
                    "check": check.name,
                    "passed": check.passed,
                    "p": check.p if math.isfinite(check.p) else None,
                    "share": check.share,
                    "says": check.says,
                    "note": check.note,
                }
                for check in self.checks
            ],
        }
