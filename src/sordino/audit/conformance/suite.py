"""Put every question to a target, and keep one row an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sordino.audit.conformance.checks import Check, checks
from sordino.audit.conformance.limits import Endless, quietly, within
from sordino.audit.conformance.measure import Bench
from sordino.audit.conformance.protocol import Declared, NotApplicable, Refused, Target
from sordino.audit.conformance.verdicts import Fault, Outcome, Result, Row

LIMIT_S = 300.0
"""For one question to one target; hostile calls have shorter ones of their own."""

Progress = Callable[[str], None]


def examine(
    targets: Iterable[Target],
    *,
    spec: str = "",
    only: Iterable[str] = (),
    progress: Progress | None = None,
) -> list[Row]:
    """Every check on every target.

    Args:
        targets: Whom to ask.
        spec: How `load` finds them, for the reproductions.
        only: Checks, `C01` to `C20`; left out, all.
        progress: Called with what is being asked.
    """
    asked = [one for one in checks() if not only or one.id in set(only)]
    rows = []
    for target in targets:
        for one in asked:
            if progress is not None:
                progress(f"{target.name}: {one.id} {one.asks}")
            rows += answers(target, one, spec=spec)
    return rows


def answers(target: Target, one: Check, *, spec: str = "") -> list[Row]:
    """What one target answers to one question, case by case."""
    bench = Bench(target, spec=spec)
    found: list[Outcome] = []
    try:
        with quietly(), within(LIMIT_S):
            found.extend(_stopped_politely(one, bench))
    except Endless:
        found.append(Outcome(result=Result.CRASH, case="", evidence=f"still running after {LIMIT_S:g} CPU s"))
    except Exception as error:  # noqa: BLE001 - whatever foreign code raises is the finding
        said = f"{type(error).__name__}: {str(error).strip()[:200]}"
        found.append(Outcome(result=Result.CRASH, case="", evidence=said, shows=f"print(*answers(target, {one.id!r}))"))
    claim = target.claim()
    return [_row(target, one, claim, outcome, spec) for outcome in found]


def _stopped_politely(one: Check, bench: Bench) -> Iterator[Outcome]:
    try:
        yield from one.ask(bench)
    except NotApplicable as reason:
        yield Outcome(result=Result.NOT_APPLICABLE, case="", evidence=str(reason))
    except Refused as reason:
        yield Outcome(result=Result.REFUSED, case="", evidence=str(reason))


def _row(target: Target, one: Check, claim: Declared, outcome: Outcome, spec: str) -> Row:
    faulty = outcome.result in (Result.FAIL, Result.CRASH)
    disclosed = claim.discloses.get(f"{one.id}:{outcome.case}", claim.discloses.get(one.id, "")) if faulty else ""
    fault = Fault.HARM if outcome.harm else Fault.DEFAULT if disclosed else Fault.CLAIM
    return Row(
        target=target.name,
        id=one.id,
        check=f"{one.asks}: {outcome.case}" if outcome.case else one.asks,
        result=outcome.result,
        evidence=outcome.evidence,
        numbers=outcome.numbers,
        fault=fault if faulty else None,
        disclosed=disclosed,
        reproduction=_snippet(target, spec, outcome.shows) if faulty else "",
    )


def _snippet(target: Target, spec: str, shows: str) -> str:
    """A whole program from the lines that a check gives."""
    return (
        "import numpy as np\n"
        "from sordino.audit.conformance import Bench, load\n"
        "from sordino.audit.conformance.measure import MODEL, TINY, dense, quiet, spike, zeros\n"
        "from sordino.audit.conformance.checks.hostile import SMALL, bfloat16\n"
        "from sordino.audit.conformance.checks.noise import LAYERS\n"
        f"target = load({spec!r})[{target.name!r}]\n"
        f"bench = Bench(target)\n{shows}\n"
    )
