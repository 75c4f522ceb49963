"""A sensor report as a finding of an audit: conformance."""

from __future__ import annotations

from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.promise import Promise
from sordino.audit.sensor.report import Report

NAME = "sensor"

CAUSES = {
    "noise scale": "less noise is drawn than the ledger charged for",
    "noise law": "the noise has another distribution than was accounted",
    "freshness": "noise is used for more than one release",
    "independent coordinates": "coordinates share their noise",
    "independent groups": "parameter tensors share their noise",
    "every release noised": "some releases have less noise",
    "every group noised": "a parameter tensor is left without noise",
    "every coordinate noised": "some coordinates are left without noise",
    "noise lattice": "noise is rounded to a coarse grid",
    "clip bound": "one unit moves a sum further than the clip: it is too long, or of the batch, or comes too early",
    "equal weights": "contributions are scaled after the clip, or clipped together with others",
    "denominators": "sums are divided by how many really came",
    "sampling rate": "units join more often than accounted",
    "participation law": "batches are not drawn by independent coins: shuffled, or in turns",
    "batch-size law": "batches have a fixed size, or come in company",
    "empty batch": "noise depends on how many come",
    "non-finite input": "a record that is not finite changes more than its own share",
    "independent silos": "silos draw the same noise: a shared seed",
    "noise after a restart": "noise repeats after a restart: a fixed seed",
}
"""Likely cause of each check's failure."""


def finding(report: Report, promise: Promise | None) -> Finding:
    """What a sensor audit says about a promise.

    Args:
        report: Of the run's own step or aggregation.
        promise: What the run claims.
    """
    failed = report.failed
    checks = len(report.checks)
    found = "; ".join(f"{check.name}, {check.says}" for check in failed)
    says = (
        f"The run's own steps do not release what they declare: {found}."
        if failed
        else f"The run's own steps release what they declare: {checks} checks of noise, clip and sampling pass."
    )
    return Finding(
        attack=NAME,
        grade=Grade.CONFORMANCE,
        verdict=Verdict.REFUTED if failed else Verdict.HOLDS,
        says=says,
        does_not_show="That the accounting is right, or that records unlike canaries are treated alike. "
        "It drove the installation as it is now, not as it was when the run ended.",
        promise=promise,
        confidence=1 - report.alpha,
        figures={f"p, {check.name}": Figure(check.p) for check in report.checks},
        causes=tuple(CAUSES[check.name] for check in failed if check.name in CAUSES),
        cpu_seconds=report.cpu_seconds,
    )
